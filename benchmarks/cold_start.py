"""Time of the main job in a fresh process, as a multiple of a bare compiled JAX call.

Run: python benchmarks/cold_start.py
Prints medians of alternating runs, with an empty and with a filled compilation cache: wall time, and
processor time, which other work on the machine disturbs less. The package's bytecode is written first,
as installing it does.
"""

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARE = [sys.executable, "-c", "import jax, jax.numpy as jnp; jax.jit(lambda x: x + 1)(jnp.ones(3))"]
MAIN = [sys.executable, "-c", "from jaxecon.cli import main; main()", "optimize"]
MAIN += ["--model", "llama-3.1-70b", "--accelerator", "h100-sxm", "--budget", "1.5", "--json"]
HELP = [sys.executable, "-c", "from jaxecon.cli import main; main()", "--help"]
PACKAGE = Path(__file__).resolve().parents[1] / "jaxecon"


def seconds(command: list[str], cache: str) -> tuple[float, float]:
    """(wall, processor) time of one process with a given compilation cache folder."""
    environment = os.environ | {"XDG_CACHE_HOME": cache, "PYTHONDONTWRITEBYTECODE": ""}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(repeats: int = 5) -> None:
    """Print each time and its multiple of the bare call."""
    compileall.compile_dir(str(PACKAGE), quiet=2)
    times: dict[str, list[tuple[float, float]]] = {k: [] for k in ("bare", "cold", "warm", "help")}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            times["bare"].append(seconds(BARE, cache))
            times["cold"].append(seconds(MAIN, cache))
            times["warm"].append(seconds(MAIN, cache))
            times["help"].append(seconds(HELP, cache))
    middle = {name: [statistics.median(x) for x in zip(*runs, strict=True)] for name, runs in times.items()}
    print("| process | wall | of bare | processor | of bare |\n| --- | --- | --- | --- | --- |")
    for name, (wall, busy) in middle.items():
        ratios = wall / middle["bare"][0], busy / middle["bare"][1]
        print(f"| {name} | {wall:.2f} s | {ratios[0]:.2f} | {busy:.2f} s | {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
