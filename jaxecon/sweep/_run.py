"""A sweep from its file to its result."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._errors import InputError
from ._config import read_config
from ._processes import Processes, ProcessLost
from ._store import Store

if TYPE_CHECKING:
    from ._plan import Plan

SUFFIXES = (".csv", ".parquet")
_BETWEEN_MEETINGS_S = 10.0
"""A meeting costs what the slowest process is behind by; where chunks are quick, several lie in between."""


class Summary(NamedTuple):
    """What a run did."""

    rows: int
    chunks: int
    computed: int
    """Chunks that this process computed; the others were there, or are another process's."""
    seconds: float


def run_sweep(
    config: Path,
    out: Path,
    processes: Processes | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Compute what is missing of a sweep, and join it to one file.

    A run that was killed is taken up by the same call, and gives the same file, byte for byte. With several
    processes every one of them makes the same call; all must see the folder of `out`.

    Args:
        config: the TOML file.
        out: the file to write, .csv or .parquet.
        processes: which process this is; None where there is one.
        progress: called with (chunks done, chunks) after each round.

    Raises:
        InputError: for a configuration that cannot be used, results of another sweep, a corrupt
            chunk, or a disk that is full.
        ProcessLost: if another process of the run is gone.
    """
    began = time.monotonic()
    processes = Processes() if processes is None else processes
    if out.suffix not in SUFFIXES:
        raise InputError(f"--out must end in .csv or .parquet, got '{out}'")
    if out.suffix == ".parquet":
        from ._parquet import require_pyarrow

        require_pyarrow()
    if not out.parent.is_dir():
        raise InputError(f"--out '{out}': there is no folder '{out.parent}'")
    from ._plan import Plan
    from ._solve import columns_of

    plan = Plan(read_config(config))
    store = Store(out, plan.provenance(), ",".join(columns_of(plan)) + "\n", plan.chunks)
    try:
        computed = _complete(plan, store, processes, progress)
    finally:
        store.close()
    return Summary(plan.points.rows, plan.chunks, computed, time.monotonic() - began)


def _complete(
    plan: "Plan", store: Store, processes: Processes, progress: Callable[[int, int], None] | None
) -> int:
    """Compute what is missing and join it; the number of chunks that this process computed."""
    from ._solve import solve_chunk

    missing: list[int] = []
    with _AllOrNone(processes):
        finished = store.finished()
        if not finished and processes.number == 0:
            store.open()
            missing = store.missing()
    if finished:
        return 0
    missing = processes.agree(missing, plan.chunks)
    computed, start, rounds = 0, 0, 1
    while start < len(missing):
        these = missing[start : start + processes.total * rounds]
        with _AllOrNone(processes) as step:
            for chunk in these[processes.number :: processes.total]:
                store.write(chunk, solve_chunk(plan, chunk))
                computed += 1
        start += len(these)
        if processes.total > 1:
            # All see the same seconds, and so meet after the same number of rounds.
            rounds = max(1, min(2 * rounds, int(rounds * _BETWEEN_MEETINGS_S / step.seconds)))
        if progress is not None:
            progress(plan.chunks - len(missing) + start, plan.chunks)
    with _AllOrNone(processes):
        if processes.number == 0:
            store.join()
    return computed


class _AllOrNone:
    """A step that every process takes: where one fails, none goes on."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.seconds = 0.0
        """Of the slowest process."""

    def __enter__(self) -> "_AllOrNone":
        self.began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None and issubclass(kind, ProcessLost):
            return
        well, self.seconds = self.processes.meet(kind is None, time.monotonic() - self.began + 1e-9)
        if kind is None and not well:
            raise InputError("another process of this sweep failed; its message says why")
