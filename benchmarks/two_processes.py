"""One process on one core against two through `jax.distributed`, each on a core of its own.

Run: python benchmarks/two_processes.py [SCENARIOS]
Both sweep the same scenarios with a filled compilation cache. The whole runs are compared, start of
Python and joining of the processes included, and their marginal rates: the difference of a long and a
short run.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = """
budget = {{ low = 0.3, high = 10.0, scale = "log" }}
rows_per_chunk = 4096
[scenario]
model = "llama-3.1-70b"
accelerator = "h100-sxm"
[sample]
count = {count}
[axes]
"accelerator.hbm_bandwidth" = {{ low = "x0.25", high = "x4" }}
"workload.context" = {{ low = 100, high = 100000, scale = "log" }}
"""
MAIN = [sys.executable, "-c", "from jaxecon.cli import main; main()", "sweep"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def seconds(folder: Path, count: int, processes: int) -> float:
    """Wall time of one sweep with each process pinned to a core."""
    config, out = folder / f"{count}.toml", folder / "out.csv"
    config.write_text(CONFIG.format(count=count))
    for old in folder.glob("out.csv*"):
        old.unlink()
    words = [str(config), "--out", str(out)]
    if processes > 1:
        words += ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", str(processes), "--process"]
    cores = sorted(os.sched_getaffinity(0))
    began = time.perf_counter()
    running = []
    for i in range(processes):
        mine = [*words, str(i)] if processes > 1 else words
        # The core is set before Python starts, so that JAX sees one only.
        pinned = ["taskset", "-c", str(cores[i % len(cores)]), *MAIN, *mine]
        environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
        running.append(subprocess.Popen(pinned, stdout=subprocess.DEVNULL, env=environment))
    codes = [process.wait() for process in running]
    assert codes == [0] * processes, codes
    return time.perf_counter() - began


def main(count: int = 400_000, rounds: int = 3) -> None:
    """Print the ratio of the two, the least of several alternating runs each."""
    short = count // 8
    times: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for processes in (1, 2):
            seconds(folder, 8192, processes)
        for _ in range(rounds):
            for size in (short, count):
                for processes in (1, 2):
                    took = seconds(folder, size, processes)
                    times[size, processes] = min(took, times.get((size, processes), took))
    print("| scenarios | one process | two | ratio |\n| --- | --- | --- | --- |")
    for size in (short, count):
        one, two = times[size, 1], times[size, 2]
        print(f"| {size:,} | {one:.1f} s | {two:.1f} s | {one / two:.2f} |")
    one, two = (times[count, n] - times[short, n] for n in (1, 2))
    print(f"| the difference | {one:.1f} s | {two:.1f} s | {one / two:.2f} |\n")


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:]))
