"""What `jaxecon reproduce` does: run every experiment in one process, and tabulate its findings."""

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from .._errors import InputError, nearest
from ..report import Finding
from ..report._findings import findings_page, write_page

# Claims in the paper's order, the comparisons after them.
ORDER = (
    "parameter_exponent bandwidth_exponent doubling_parameters tenfold_parameters doubling_bandwidth "
    "halving_latency speed_without_latency collective_size collective_batch collective_base_latency "
    "pipeline_threshold speculative_gain speculative_arithmetic pipeline_against_data"
).split()


def experiments_folder() -> Path:
    """Inside an installed wheel, else beside the package."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "experiments"
    return inside if inside.is_dir() else package.parent / "experiments"


def experiment_names() -> list[str]:
    """All experiments, claims first.

    Raises:
        InputError: where the scripts are missing.
    """
    found = sorted(p.stem for p in experiments_folder().glob("*.py"))
    if not found:
        raise InputError(f"there are no experiments in '{experiments_folder()}'")
    return [n for n in ORDER if n in found] + [n for n in found if n not in ORDER]


def check(names: Sequence[str], folder: Path) -> list[str]:
    """The experiments to run, and the folder made.

    Raises:
        InputError: for an unknown name or a folder that cannot be made.
    """
    every = experiment_names()
    for name in names:
        if name not in every:
            raise InputError(f"there is no experiment '{name}'; {nearest(name, every)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder '{folder}': {error.strerror}") from error
    return list(names) or every


def run(names: Sequence[str], folder: Path, findings_file: Path | None) -> dict[str, list[Finding]]:
    """Run experiments with a line of progress each; write FINDINGS.md into the folder and where asked."""
    console = Console(stderr=True)
    found: dict[str, list[Finding]] = {}
    for i, name in enumerate(names):
        began = time.perf_counter()
        with console.status(f"{i + 1} of {len(names)}: {name}"):
            found[name] = _module(name).main(folder)
        console.print(
            f"{i + 1} of {len(names)}: {name}, {time.perf_counter() - began:.1f} s", highlight=False
        )
    page = findings_page(found)
    for path in (folder / "FINDINGS.md", findings_file):
        if path is not None:
            write_page(page, path)
    return found


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"jaxecon_{name}", experiments_folder() / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(found: dict[str, list[Finding]]) -> list[dict[str, Any]]:
    """One mapping per finding."""
    return [{"experiment": name, **f._asdict()} for name, fs in found.items() for f in fs]


def show(found: dict[str, list[Finding]]) -> None:
    """Print the claims with their verdicts, then the comparisons."""
    console = Console()
    every = [f for fs in found.values() for f in fs]
    claims = [f for f in every if not f.compares]
    if claims:
        table = Table("claim", "stated", "found", "verdict", "range, and what moves it", show_lines=True)
        for f in claims:
            color = {"holds": "green", "fails": "red"}.get(f.verdict, "yellow")
            table.add_row(f.claim, f.stated, f.found, f"[{color}]{f.verdict}[/]", f.why)
        console.print(table)
    for f in every:
        if f.compares:
            console.print(f"[bold]{f.claim}[/]: {f.found} ({f.why})", highlight=False)
