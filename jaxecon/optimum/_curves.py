"""Speed against cost, certified and relaxed side by side."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from ..scenarios import Erdil2025, Scenario
from ..specs import Layout
from ._envelope_types import PARTITIONS, Found
from ._frontier import Frontier, certified_frontier
from ._relaxation import Limits
from ._relaxed import Solutions, solve_relaxed
from ._scan import UNFIT
from ._side_by_side import envelopes
from ._space import MAX_ACCELERATORS, MAX_BATCH


class RelaxedFrontier(eqx.Module):
    """Relaxed optima at a range of budgets, dearest first; speed and cost by exact arithmetic.

    `residual` is that of the KKT conditions; for `Erdil2025`, whose search takes no derivatives, the
    relative speed that its last round added.
    """

    speed: np.ndarray
    cost: np.ndarray
    layout: Layout
    partition: tuple[str, ...] = eqx.field(static=True)
    residual: np.ndarray


class Frontiers(eqx.Module):
    """Both curves; `speed`, `cost` and `layout` are those of the certified one."""

    certified: Frontier
    relaxed: RelaxedFrontier

    @property
    def speed(self) -> np.ndarray:
        """Tokens/s of one request, falling."""
        return self.certified.speed

    @property
    def cost(self) -> np.ndarray:
        """US dollars per million output tokens, falling."""
        return self.certified.cost

    @property
    def layout(self) -> Layout:
        """Integer layouts, one entry per point."""
        return self.certified.layout


@eqx.filter_jit
def _solve_many(scenario: Scenario, limits: Limits, budgets: Array) -> tuple[Solutions, ...]:
    """The best local optimum of each partition, for every budget."""

    def at(budget: Array) -> tuple[Solutions, ...]:
        kinds = solve_relaxed(scenario, eqx.tree_at(lambda x: x.budget, limits, budget))
        return tuple(jax.tree.map(lambda x, k=k: x[jnp.argmax(k.rank)], k) for k in kinds)

    return jax.vmap(at)(budgets)


def relaxed_frontier(
    scenario: Scenario,
    budgets: np.ndarray | Array,
    *,
    max_accelerators: float = MAX_ACCELERATORS,
    max_batch: float = MAX_BATCH,
) -> RelaxedFrontier:
    """The relaxed optimum at each budget, in one compiled call; unreachable budgets are left out.

    For `Erdil2025` in the paper's own space: real accelerators and batch, its pipeline degrees, both
    partitions and whole numbers of drafted tokens.

    Raises:
        InputError: for budgets that are not positive numbers.
    """
    budgets = np.sort(np.asarray(budgets, dtype=np.float64))[::-1]
    if budgets.size == 0 or not np.all(np.isfinite(budgets) & (budgets > 0)):
        raise InputError("budgets must be positive numbers of US dollars")
    sizes = (np.asarray(float(x)) for x in (budgets[0], max_accelerators, max_batch))
    if isinstance(scenario, Erdil2025):
        return _enveloped(scenario, Limits(*sizes), budgets)
    kinds = _solve_many(scenario, Limits(*sizes), jnp.asarray(budgets))
    columns, partitions = [], []
    for i in range(len(budgets)):
        kind = int(np.argmax([float(k.rank[i]) for k in kinds]))
        if kinds[kind].log_speed[i] <= UNFIT:
            continue
        one = jax.tree.map(lambda x, i=i: np.asarray(x)[i], kinds[kind])
        columns.append((np.exp(one.log_speed), one.cost, one.residual, *jax.tree.leaves(one.layout)))
        partitions.append(kinds[kind].layout.partition)
    speed, cost, residual, *fields = np.asarray(columns).reshape(len(columns), -1).T
    return RelaxedFrontier(speed, cost, Layout(*fields), tuple(partitions), residual)


def _enveloped(scenario: Erdil2025, limits: Limits, budgets: np.ndarray) -> RelaxedFrontier:
    """All budgets by one search, their number padded to a power of two."""
    padded = np.full(1 << (len(budgets) - 1).bit_length(), budgets[-1])
    padded[: len(budgets)] = budgets
    rows = envelopes(scenario, limits, padded)[:, : len(budgets)]
    found = Found(*rows[:, Found(*rows).log_speed > UNFIT])
    one = np.ones_like(found.batch)
    degrees = (found.tensor, found.stages, one, one, found.batch, found.drafts)
    # The constructor would move each to the device.
    layout = jax.tree.unflatten(_layout_structure(), degrees)
    partition = tuple(PARTITIONS[int(i)] for i in found.partition)
    return RelaxedFrontier(np.exp(found.log_speed), found.cost, layout, partition, found.gain)


@functools.cache
def _layout_structure() -> Any:
    return jax.tree.structure(Layout())


def frontier(
    scenario: Scenario,
    points: int = 64,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Frontiers:
    """Every certified vertex, and `points` relaxed optima over the same range of costs.

    Raises:
        InputError: for fewer than 2 points.
        InfeasibleError: if the model fits on no allowed layout.
    """
    if points < 2:
        raise InputError(f"a frontier needs at least 2 points, got {points}")
    limits = {"max_accelerators": max_accelerators, "max_batch": max_batch}
    certified = certified_frontier(scenario, **limits)
    budgets = np.geomspace(certified.cost.min(), certified.cost.max(), points) * (1 + 1e-12)
    return Frontiers(certified, relaxed_frontier(scenario, budgets, **limits))
