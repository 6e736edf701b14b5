"""All tables of ratios, with the machine described, as Markdown.

Run: python benchmarks/table.py [PART ...]        (needs the `bench` extra; about 25 minutes)
Without arguments every part runs, each in a process of its own.
"""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NUMBA = "| cores | layouts a call | jaxecon, M/s | plain loop | parallel loop | ratio to the better |"
NUMPY = "| cores | grid here, M/s | layouts here | NumPy grid | open axes | grid/grid | to open | layouts |"
RULE = {NUMBA: "| --- | --- | --- | --- | --- | --- |", NUMPY: "| --- " * 8 + "|"}
FIRST = str(min(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "0"
ONE_CORE = ["taskset", "-c", FIRST]


def parts() -> dict[str, tuple[str, list[list[str]]]]:
    """Name: (what stands above, commands)."""

    def script(name: str, *words: str) -> list[str]:
        return [sys.executable, str(FOLDER / f"{name}.py"), *words]

    rates, grid = script("exact_rates"), script("exact_rates", "numpy")
    return {
        "numba": (f"{NUMBA}\n{RULE[NUMBA]}", [[*ONE_CORE, *rates], rates]),
        "numpy": (f"{NUMPY}\n{RULE[NUMPY]}", [[*ONE_CORE, *grid], grid]),
        "methods": ("", [script("other_methods")]),
        "batch": ("", [script("many_scenarios")]),
        "processes": ("", [script("two_processes")]),
        "million": ("", [script("million")]),
        "cold": ("", [script("cold_start")]),
    }


def machine() -> str:
    """Processor, memory, system and versions."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), name)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{p} {version(p)}" for p in ("jax", "numpy", "scipy", "numba"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{name}, {cores} core(s), {memory:.0f} GiB; {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {packages}; load average before: {load}"
    )


def main(chosen: list[str]) -> None:
    """Print the machine and the tables of the chosen parts."""
    print(f"{machine()}\n", flush=True)
    every = parts()
    for name in chosen or every:
        head, commands = every[name]
        print(f"### {name}\n\n{head}".rstrip(), flush=True)
        for command in commands:
            subprocess.run(command, check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"})
        print(flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
