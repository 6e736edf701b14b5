"""One process on one core against two through `jax.distributed`, each on a core of its own.

Run: python benchmarks/two_processes.py [SCENARIOS]
Both sweep the same scenarios with a filled compilation cache. The whole runs are compared, start of
Python and joining of the processes included, and their marginal rates: the difference of a long and a
short run. Wall times mean something on an idle machine only; processor times of the busiest process
show how evenly the work is divided whatever else runs.
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


def seconds(folder: Path, count: int, processes: int) -> tuple[float, float]:
    """(wall time, processor time of the busiest process) of one sweep, each process pinned to a core."""
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
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(pinned, env=environment, **quiet))
    ends = [os.wait4(process.pid, 0) for process in running]
    wall = time.perf_counter() - began
    assert all(status == 0 for _, status, _ in ends), ends
    for process in running:
        process.returncode = 0
    return wall, max(usage.ru_utime + usage.ru_stime for _, _, usage in ends)


def main(count: int = 1_600_000, rounds: int = 2) -> None:
    """Print the ratio of the two, the least of several alternating runs each."""
    short = count // 8
    times: dict[tuple[int, int], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for processes in (1, 2):
            seconds(folder, 8192, processes)
        for _ in range(rounds):
            for size in (short, count):
                for processes in (1, 2):
                    took = seconds(folder, size, processes)
                    before = times.get((size, processes), took)
                    times[size, processes] = min(took[0], before[0]), min(took[1], before[1])
    print("| scenarios | time | one process | two | ratio |\n| --- | --- | --- | --- | --- |")
    for i, kind in enumerate(("wall", "processor")):
        rows = [(f"{size:,}", *(times[size, n][i] for n in (1, 2))) for size in (short, count)]
        more = [times[count, n][i] - times[short, n][i] for n in (1, 2)]
        for name, one, two in [*rows, ("the difference", *more)]:
            print(f"| {name} | {kind} | {one:.1f} s | {two:.1f} s | {one / two:.2f} |")
    print()


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:]))
