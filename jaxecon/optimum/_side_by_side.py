"""The search for the continuous frontier on several cores: a table, then parts of the budgets at once.

XLA does not share loops over a few thousand numbers between cores, but budgets do not depend on each other.
"""

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..scenarios import Erdil2025
from ._envelope import envelope
from ._envelope_table import Table, tabulate
from ._envelope_types import WIDE, spaces
from ._relaxation import Limits

_MOST, _LEAST = 4, 16
"""Parts, and budgets that are worth one."""


def envelopes(scenario: Erdil2025, limits: Limits, budgets: np.ndarray) -> np.ndarray:
    """The fastest layout of real degrees within each budget, as rows of `Found`.

    The number of budgets is a power of two, so that its parts are of one size and share a compilation.
    """
    count = _parts(len(budgets), _cores())
    parts = [np.ascontiguousarray(budgets[i::count]) for i in range(count)]
    leaves, structure = jax.tree.flatten((scenario, limits))
    search = searches(structure)
    search.prepare(leaves, parts[0])
    table = search.table(leaves)

    def part(i: int) -> np.ndarray:
        with jax.enable_x64(True):  # which may be a setting of the caller's thread alone
            return np.asarray(search.rows(leaves, table, parts[i]))

    others = [_threads().submit(part, i) for i in range(1, count)]
    found = [part(0), *(x.result() for x in others)]
    return np.stack(found, axis=-1).reshape(len(found[0]), len(budgets))


class Search:
    """Both programs for questions of one structure.

    Their arguments are its leaves, in the order of `jax.tree.flatten`: dispatch takes a third as long.
    """

    def __init__(self, structure: Any) -> None:
        def table(leaves: list[Array]) -> Table:
            scenario, limits = jax.tree.unflatten(structure, leaves)
            return tabulate(scenario, limits, spaces(scenario.families(limits.max_accelerators)))

        def rows(leaves: list[Array], table: Table, budgets: Array) -> Array:
            scenario, limits = jax.tree.unflatten(structure, leaves)
            return envelope(scenario, limits, table, budgets)

        self.table = jax.jit(table, compiler_options=WIDE)
        self.rows = jax.jit(rows, compiler_options=WIDE)
        self._sizes: set[int] = set()

    def prepare(self, leaves: list[Array], budgets: np.ndarray) -> None:
        """Before the first calls compile both at the same time; JAX keeps what it compiled."""
        if len(budgets) in self._sizes:
            return
        table = self.table.trace(leaves)
        other = None if self._sizes else _threads().submit(table.lower().compile)
        self.rows.lower(leaves, table.out_info, budgets).compile()
        if other is not None:
            other.result()
        self._sizes.add(len(budgets))


@functools.lru_cache
def searches(structure: Any) -> Search:
    """The search for a structure of (scenario, limits)."""
    return Search(structure)


def _parts(budgets: int, cores: int) -> int:
    """A power of two."""
    most = min(cores, _MOST, max(budgets // _LEAST, 1))
    return 1 << (most.bit_length() - 1)


def _cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST)
