"""Memory and time of a large sweep: a million scenarios with certified optima.

Run: python benchmarks/million.py [SCENARIOS]
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from two_processes import CONFIG, MAIN


def main(count: int = 1_000_000) -> None:
    """Print peak memory, time and size of the file."""
    with tempfile.TemporaryDirectory() as name:
        config, out = Path(name) / "sweep.toml", Path(name) / "out.csv"
        config.write_text(CONFIG.format(count=count).replace("rows_per_chunk = 4096\n", ""))
        began = time.perf_counter()
        environment = os.environ | {"XDG_CACHE_HOME": name}
        subprocess.run([*MAIN, str(config), "--out", str(out)], check=True, env=environment)
        took = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print("| scenarios | seconds | peak memory, GiB | file, MB |\n| --- | --- | --- | --- |")
        print(f"| {count:,} | {took:.0f} | {peak / 2**30:.2f} | {out.stat().st_size / 1e6:.0f} |\n")


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:]))
