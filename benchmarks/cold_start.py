"""Time of the main job in a fresh process, as a multiple of a bare compiled JAX call.

Run: python benchmarks/cold_start.py
Prints medians of alternating runs, with an empty and with a filled compilation cache.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

BARE = [sys.executable, "-c", "import jax, jax.numpy as jnp; jax.jit(lambda x: x + 1)(jnp.ones(3))"]
MAIN = [sys.executable, "-c", "from jaxecon.cli import main; main()", "optimize"]
MAIN += ["--model", "llama-3.1-70b", "--accelerator", "h100-sxm", "--budget", "1.5", "--json"]
HELP = [sys.executable, "-c", "from jaxecon.cli import main; main()", "--help"]


def seconds(command: list[str], cache: str) -> float:
    """Wall time of one process with a given compilation cache folder."""
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def main(repeats: int = 7) -> None:
    """Print each time and its multiple of the bare call."""
    times: dict[str, list[float]] = {k: [] for k in ("bare", "cold", "warm", "help")}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            times["bare"].append(seconds(BARE, cache))
            times["cold"].append(seconds(MAIN, cache))
            times["warm"].append(seconds(MAIN, cache))
            times["help"].append(seconds(HELP, cache))
    bare = statistics.median(times["bare"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:5s} {middle:6.2f} s  {middle / bare:5.2f} x bare")


if __name__ == "__main__":
    main()
