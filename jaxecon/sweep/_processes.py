"""Several processes of one sweep, joined by JAX's multi-process runtime (`jax.distributed`).

Chunks that are missing are dealt out by process number; every few seconds all processes meet, so that
the loss of one is noticed by the others, and ends the run.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .._errors import InputError

_HEARTBEAT_S = 30
_LOST = (
    "a process of this sweep was lost, so the others stop too; completed chunks are kept: run the "
    "same command on all processes again to compute the rest"
)
_kept_alive: list[Any] = []


class ProcessLost(RuntimeError):
    """Another process of the run is gone; the message says how to go on."""


class Processes(NamedTuple):
    """This process among those of the run."""

    number: int = 0
    total: int = 1

    def agree(self, missing: list[int], chunks: int) -> list[int]:
        """The list of missing chunks as process 0 sees it.

        Raises:
            ProcessLost: if another process is gone.
        """
        if self.total == 1:
            return missing
        flags = np.zeros(chunks, bool)
        flags[missing] = True
        from jax.experimental import multihost_utils

        return np.flatnonzero(_together(multihost_utils.broadcast_one_to_all, flags)).tolist()

    def meet(self, ok: bool = True, seconds: float = 0.0) -> tuple[bool, float]:
        """Wait for all processes: (whether all of them are well, the most seconds that one states).

        Raises:
            ProcessLost: if another process is gone.
        """
        if self.total == 1:
            return ok, seconds
        from jax.experimental import multihost_utils

        told = _together(multihost_utils.process_allgather, np.asarray([float(ok), seconds]))
        return bool(np.all(told[:, 0] == 1.0)), float(np.max(told[:, 1]))


def join_processes(coordinator: str | None, count: int | None, index: int | None) -> Processes:
    """Start JAX's multi-process runtime; must come before any other use of JAX.

    Without arguments the cluster's scheduler (SLURM, Open MPI) is asked.

    Raises:
        InputError: if the processes cannot be joined.
    """
    import jax

    try:
        jax.distributed.initialize(coordinator, count, index, heartbeat_timeout_seconds=_HEARTBEAT_S)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the processes of the sweep could not be joined: {reason}; give --coordinator HOST:PORT, "
            "--processes N and --process 0 to N - 1, or run under a scheduler that JAX knows"
        ) from error
    _explain_abort()
    processes = Processes(jax.process_index(), jax.process_count())
    with _standard_output_aside():
        processes.meet()
    return processes


@contextmanager
def _standard_output_aside() -> Iterator[None]:
    """Send what libraries print to standard error: the first meeting makes Gloo say who is connected."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _together(operation: Any, value: np.ndarray) -> np.ndarray:
    """A collective operation on the host; its failure means that a process is gone."""
    import jax

    try:
        return np.asarray(operation(value))
    except jax.errors.JaxRuntimeError as error:
        raise ProcessLost(_LOST) from error


def _explain_abort() -> None:
    """Add the cure to JAX's own message where it aborts this process because the coordinator is gone.

    The runtime calls abort() from a thread of its own, which no handler written in Python's `signal`
    sees before the process ends.
    """

    def handler(_: int) -> None:
        os.write(2, f"jaxecon: {_LOST}\n".encode())
        os._exit(2)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    function = kind(handler)
    _kept_alive.append(function)
    ctypes.CDLL(None).signal(ctypes.c_int(int(signal.SIGABRT)), function)
