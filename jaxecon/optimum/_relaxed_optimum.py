"""The relaxed optimum as a result to read."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError, InputError
from .._numerics import scalar
from .._programs import staged
from ..scenarios import Scenario
from ..specs import Layout
from ._interior import Point
from ._relaxation import CONSTRAINTS, Limits, layout_at
from ._relaxed import TOLERANCE, Solutions, find_starts, finish, follow
from ._scan import UNFIT, Candidate, taken
from ._space import MAX_ACCELERATORS, MAX_BATCH


class RelaxedOptimum(eqx.Module):
    """The fastest layout with real degrees at a budget.

    `speed` and `cost` are by the exact arithmetic at `layout`, hard ceil, max and min included.
    """

    layout: Layout
    speed: float
    """Tokens/s of one request."""
    cost: float
    """US dollars per million output tokens; at most the budget."""
    bound: float
    """A speed that no legal layout exceeds, where the relaxation proves one; else nan. The
    relaxed problem is not convex (the least of several protocols is taken), so it is nan."""
    shadow_price: float
    """d ln speed / d ln budget."""
    multipliers: dict[str, float]
    """Of every constraint: d ln speed / d ln of what it allows."""
    interior: Layout
    """Where the smoothed problem is stationary, which the multipliers belong to; next to `layout`."""
    residual: float
    """Of the Karush-Kuhn-Tucker conditions, relative."""
    status: str
    """"success" only where the residual is at most 1e-6; else why not."""


class First(eqx.Module):
    """The best local optimum of one partition."""

    rank: Array
    solution: Solutions
    """Without a leading axis."""
    interior: Layout
    """Where its path ends."""


def _finish(
    scenario: Scenario, limits: Limits, starts: tuple[Candidate, ...], points: tuple[Point, ...]
) -> tuple[tuple[Solutions, ...], tuple[First, ...]]:
    """Local optima of each partition, and the best of each."""
    kinds = finish(scenario, limits, starts, points)
    return kinds, tuple(_first(kind) for kind in kinds)


_solve = staged(find_starts, follow, _finish)
"""(scenario, limits) to what `_finish` returns."""


def _first(kind: Solutions) -> First:
    best = jnp.argmax(kind.rank)
    one = taken(kind, best)
    return First(one.rank, one, layout_at(one.point.degrees(one.box), one.box))


def best_of(firsts: tuple[First, ...]) -> First:
    """The fastest of all partitions."""
    return max(firsts, key=lambda x: float(x.rank))


def limits_of(budget: float | Array, max_accelerators: float, max_batch: float) -> Limits:
    """Limits as arrays."""
    return Limits(*(scalar(x) for x in (budget, max_accelerators, max_batch)))


def prepare_relaxed(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> None:
    """In a command's process begin to compile what `relaxed_optimum` with these arguments runs."""
    _solve.prepare(scenario, limits_of(budget, max_accelerators, max_batch))


def relaxed_optimum(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> RelaxedOptimum:
    """The fastest layout with real degrees and batch at no more than `budget`.

    Tensor degree, pipeline degree, drafted tokens and batch are positive reals; with routed experts
    tensor or data degree, the other being enumerated (`scenarios/_serving_families.py`). Partitions
    (1-D, 2-D), the number of scale-up domains and the paper's pipeline degrees are enumerated,
    collective protocols smoothed.

    Raises:
        InputError: for a budget that is not a positive number.
        InfeasibleError: if no relaxed layout meets it.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    _, firsts = _solve(scenario, limits_of(budget, max_accelerators, max_batch))
    first = best_of(firsts)
    best = first.solution
    if float(best.log_speed) <= UNFIT:
        raise InfeasibleError(
            f"a budget of ${budget:g} per million tokens is unreachable by any real degrees up to "
            f"{max_accelerators} accelerators"
        )
    residual = float(best.residual)
    multipliers = np.asarray(best.point.multipliers).tolist()
    status = "success"
    if not residual <= TOLERANCE:
        status = "no interior" if np.isinf(residual) else "residual above tolerance"
        if np.isinf(residual):
            multipliers = [np.nan] * len(multipliers)
    return RelaxedOptimum(
        layout=best.layout,
        speed=float(np.exp(best.log_speed)),
        cost=float(best.cost),
        bound=np.nan,
        shadow_price=multipliers[0],
        multipliers=dict(zip(CONSTRAINTS, multipliers, strict=True)),
        interior=first.interior,
        residual=residual,
        status=status,
    )
