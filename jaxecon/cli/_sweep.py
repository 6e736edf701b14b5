"""What `jaxecon sweep` does: join the processes, run, and say what came of it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from .._errors import InputError
from ..sweep import Processes, ProcessLost, join_processes, run_sweep


def run(
    config: Path,
    out: Path,
    joined: tuple[str | None, int | None, int | None],
    distributed: bool,
    as_json: bool,
) -> None:
    """Run a sweep and print its summary.

    Raises:
        InputError: where options, configuration or files cannot be used.
    """
    processes = _processes(joined, distributed)
    show, stop = _progress(processes)
    try:
        summary = run_sweep(config, out, processes, show)
    except ProcessLost as error:
        stop()
        typer.echo(f"jaxecon: {error}", err=True)
        os._exit(2)  # an orderly end would wait for the lost process
    finally:
        stop()
    if processes.number:
        return
    figures = {
        "out": str(out),
        "rows": summary.rows,
        "chunks": summary.chunks,
        "chunks_computed": summary.computed,
        "seconds": summary.seconds,
    }
    if as_json:
        typer.echo(json.dumps(figures))
    elif summary.computed or processes.total > 1:
        typer.echo(
            f"{summary.rows:,} scenarios in '{out}'; computed {summary.computed} of {summary.chunks} "
            f"chunks in {summary.seconds:.1f} s"
        )
    else:
        typer.echo(f"'{out}' was complete already: {summary.rows:,} scenarios")


def _processes(joined: tuple[str | None, int | None, int | None], distributed: bool) -> Processes:
    if distributed:
        return join_processes(*joined)
    if joined == (None, None, None):
        return Processes()
    for name, value in zip(("coordinator", "processes", "process"), joined, strict=True):
        if value is None:
            raise InputError(f"several processes need --{name} too")
    coordinator, count, index = joined
    assert coordinator is not None and count is not None and index is not None
    if index >= count:
        raise InputError(f"--process must be below --processes {count}, got {index}")
    if not coordinator.rpartition(":")[2].isdigit() or ":" not in coordinator:
        raise InputError(f"--coordinator must be HOST:PORT, got '{coordinator}'")
    return join_processes(coordinator, count, index)


def _progress(processes: Processes) -> tuple[Callable[[int, int], None] | None, Callable[[], None]]:
    """(what to call after each round, what to call at the end): a bar where standard error is a terminal."""
    if processes.number or not sys.stderr.isatty():
        return None, lambda: None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("chunks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task: Any = bar.add_task("chunks", total=None)
    bar.start()
    return lambda done, total: bar.update(task, completed=done, total=total), bar.stop
