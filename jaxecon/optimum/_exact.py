"""Exact discrete search over all legal integer layouts.

For a fixed set of degrees, speed and cost both fall as the batch grows, so the fastest layout
within a budget has the smallest batch that meets it: a bisection over integers. Degrees whose
speed at the least batch, which bounds theirs, is below the best found are removed unexamined.
"""

from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._errors import InfeasibleError, InputError
from ..scenarios import Scenario, evaluate_layouts
from ..specs import Layout
from ._relaxed_optimum import relaxed_optimum
from ._rounding import rounded
from ._space import MAX_ACCELERATORS, MAX_BATCH, Block, Space

_PART = 128
_ROOMY = 16


class Certified(eqx.Module):
    """The best of all legal integer layouts, and how that was established."""

    layout: Layout
    speed: float
    """Tokens/s of one request."""
    cost: float
    """US dollars per million output tokens."""
    examined: int
    """Distinct layouts whose speed and cost were evaluated."""
    pruned: int
    """Layouts that a bound on their degrees removed; the rest fell to monotonicity."""
    space_size: int
    """Legal integer layouts that fit in memory and demand."""
    gap: float
    """Relative distance between the best known bound and `speed`; 0 when proven."""
    status: str


class _Best:
    """The best layout so far; ties go to the smaller second figure, then the smaller layout."""

    def __init__(self) -> None:
        self.key: tuple[float, ...] | None = None
        self.layout: Layout | None = None

    def offer(
        self, block: Block, index: np.ndarray, batch: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> None:
        degrees = block.take(index)
        parts = (degrees.tensor, degrees.pipeline, degrees.draft_tokens, degrees.expert, degrees.data)
        keys = (first, second, np.asarray(degrees.accelerators), *parts, batch)
        i = int(np.lexsort(keys[::-1])[0])
        key = tuple(float(k[i]) for k in keys)
        if self.key is None or key < self.key:
            self.key, self.layout = key, block.at(int(index[i]), batch[i])


def certified_optimum(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
    start: str = "auto",
) -> Certified:
    """The fastest legal integer layout at no more than `budget` US dollars per million tokens.

    Ties go to the cheaper, then the smaller layout. With `start="relaxed"` the best lattice
    neighbour of the relaxed optimum is an incumbent, and degrees whose bound lies below it are never
    searched; with "enumerate" degrees are searched in descending order of their bound. Both give the
    same answer. "auto" enumerates: every space measured so far is enumerated faster than one relaxed
    problem is solved (benchmarks/README.md).

    Raises:
        InputError: for a budget that is not a positive number, or an unknown start.
        InfeasibleError: if the model fits on no allowed layout, or none meets the budget.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    if start not in ("auto", "relaxed", "enumerate"):
        raise InputError(f"start must be 'auto', 'relaxed' or 'enumerate', got {start!r}")
    space = legal_space(scenario, max_accelerators, max_batch)
    floor = -np.inf
    if start == "relaxed":
        floor = _incumbent(scenario, space, budget, max_accelerators, max_batch)
    best, pruned, cheapest = _Best(), 0, (np.inf, 0.0)
    for block in space.blocks:
        everything = np.arange(len(block))
        bound, _, _ = space.evaluate(block, everything, block.low)
        end_speed, end_cost, _ = space.evaluate(block, everything, block.high)
        at = int(np.argmin(end_cost))
        cheapest = min(cheapest, (float(end_cost[at]), float(end_speed[at])))
        able = np.flatnonzero(end_cost <= budget)
        order = able[np.argsort(-bound[able], kind="stable")]
        done = 0
        while done < len(order):
            least = floor if best.key is None else max(floor, -best.key[0])
            if bound[order[done]] < least:
                break
            part = order[done : done + _PART]
            batch = space.last(block, part, lambda s, c, fits: c > budget) + 1.0
            speed, cost, _ = space.evaluate(block, part, batch)
            best.offer(block, part, batch, -speed, cost)
            done += len(part)
        out = np.setdiff1d(everything, order[:done])
        pruned += int((block.high[out] - block.low[out] + 1).sum())
    if best.key is None:
        raise InfeasibleError(
            f"a budget of ${budget:g} per million tokens is unreachable: the cheapest layout "
            f"costs ${cheapest[0]:.4g} at {cheapest[1]:.4g} tokens/s"
        )
    return _certified(best, space, pruned, by_speed=True)


def _incumbent(
    scenario: Scenario, space: Space, budget: float, max_accelerators: int, max_batch: int
) -> float:
    """Speed of the best lattice neighbour of the relaxed optimum; -inf where there is none."""
    sizes = {"max_accelerators": max_accelerators, "max_batch": max_batch}
    try:
        relaxed = relaxed_optimum(scenario, budget, **sizes)
    except InfeasibleError:
        return -np.inf
    near = rounded(space, relaxed.layout, budget)
    return -np.inf if near is None else near[1]


def cheapest_at_speed(
    scenario: Scenario,
    speed: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Certified:
    """The cheapest legal integer layout of at least `speed` tokens/s per request.

    Raises:
        InputError: for a speed that is not a positive number.
        InfeasibleError: if no allowed layout fits or reaches it.
    """
    if not np.isfinite(speed) or speed <= 0:
        raise InputError(f"the speed must be a positive number of tokens/s, got {speed}")
    space = legal_space(scenario, max_accelerators, max_batch)
    best, pruned, fastest = _Best(), 0, 0.0
    for block in space.blocks:
        everything = np.arange(len(block))
        bound, _, _ = space.evaluate(block, everything, block.low)
        fastest = max(fastest, float(bound.max()))
        able = np.flatnonzero(bound >= speed)
        if len(able):
            batch = space.last(block, able, lambda s, c, fits: s >= speed)
            found, cost, _ = space.evaluate(block, able, batch)
            best.offer(block, able, batch, cost, -found)
        out = np.setdiff1d(everything, able)
        pruned += int((block.high[out] - block.low[out] + 1).sum())
    if best.key is None:
        raise InfeasibleError(
            f"a speed of {speed:g} tokens/s is unreachable: the fastest layout gives {fastest:.4g}"
        )
    return _certified(best, space, pruned, by_speed=False)


def _certified(best: _Best, space: Space, pruned: int, by_speed: bool) -> Certified:
    assert best.key is not None and best.layout is not None
    first, second = best.key[:2]
    speed, cost = (-first, second) if by_speed else (-second, first)
    examined, size = space.examined, space.size
    return Certified(best.layout, speed, cost, examined, pruned, size, 0.0, "optimal")


def legal_space(scenario: Scenario, max_accelerators: int, max_batch: int) -> Space:
    """The layouts that fit.

    Raises:
        InputError: for a limit below 1.
        InfeasibleError: if there are none; the message says how much memory is missing, or which other
            limit every layout that fits breaks.
    """
    for name, value in (("max_accelerators", max_accelerators), ("max_batch", max_batch)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    space = Space(scenario, max_accelerators, max_batch)
    if space.size == 0:
        raise InfeasibleError(_why_none(scenario, max_accelerators, max_batch))
    return space


def _why_none(scenario: Scenario, max_accelerators: int, max_batch: int) -> str:
    """How far the roomiest allowed layout is from fitting, and the smallest one that would; or what else
    forbids those that fit."""
    size = float(scenario.accelerator.hbm_size)
    best = _margins(scenario, max_accelerators)
    if best is None:
        return f"no legal layout exists on up to {max_accelerators} accelerators"
    margin, layout = best
    if np.max(margin) >= 0.0:
        return _outrun(scenario, max_accelerators, max_batch)
    need = (size - float(np.max(margin))) / 1e9
    text = (
        f"the model fits on no allowed layout of up to {max_accelerators} accelerators: the "
        f"roomiest needs {need:.4g} GB per accelerator, which has {size / 1e9:.4g} GB"
    )
    wider = _margins(scenario, max_accelerators * _ROOMY)
    assert wider is not None
    margin, layout = wider
    fit = np.flatnonzero(margin >= 0.0)
    if not len(fit):
        return text + f"; none of up to {max_accelerators * _ROOMY} would fit"
    i = fit[np.argmin(np.asarray(layout.accelerators)[fit])]
    return text + (
        f"; the smallest that would fit has {int(layout.accelerators[i])} accelerators "
        f"({_across(layout, i)}pipeline {int(layout.pipeline[i])})"
    )


def _outrun(scenario: Scenario, max_accelerators: int, max_batch: int) -> str:
    """By how much every layout that fits, at its least batch, exceeds the largest batch or the demand."""
    batches, rates = [], []
    for at in _at_least_batches(scenario, max_accelerators):
        speed, _, _, margin = evaluate_layouts(scenario, at)
        fit = np.asarray(margin) >= 0.0
        batches.append(np.asarray(at.batch)[fit])
        rates.append(np.asarray(at.batch * speed)[fit])
    batch, rate = np.concatenate(batches), np.concatenate(rates)
    if np.min(batch) > max_batch or scenario.workload.demand is None:
        return f"max_batch {max_batch} is too small: every layout that fits needs at least {np.min(batch):g}"
    return (
        f"a demand of {float(scenario.workload.demand):g} tokens/s is below what any layout of up to "
        f"{max_accelerators} accelerators serves: the slowest that fits makes "
        f"{np.min(rate[batch <= max_batch]):.4g} tokens/s"
    )


def _across(layout: Layout, i: int) -> str:
    """Degrees across a stage in words, those of experts only where there are any."""
    names = ["tensor", *(k for k in ("data", "expert") if float(getattr(layout, k)[i]) > 1.0)]
    return "".join(f"{k} {int(getattr(layout, k)[i])}, " for k in names)


def _at_least_batches(scenario: Scenario, max_accelerators: int) -> Iterator[Layout]:
    """All legal degrees, in blocks, each with its least batch."""
    for layouts in scenario.degrees(max_accelerators):
        if layouts.tensor.size:
            yield eqx.tree_at(lambda x: x.batch, layouts, jnp.asarray(scenario.least_batch(layouts)))


def _margins(scenario: Scenario, max_accelerators: int) -> tuple[np.ndarray, Layout] | None:
    found = None
    for at in _at_least_batches(scenario, max_accelerators):
        margin = np.asarray(scenario.memory_margin(at))
        if found is None or margin.max() > found[0].max():
            found = margin, at
    return found
