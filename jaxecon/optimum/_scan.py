"""A coarse exact scan of one family of the relaxed space, zooming into what it finds.

Feasible regions can be slivers (a demand limit from above, memory from below), so later rounds look
between the neighbours of the best point and across the edges of the feasible range. Where nothing
is feasible, the point that misses least counts as the best.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..scenarios import Family, Scenario
from ._relaxation import Box, Limits, box_of, domains_of, least_batch

UNFIT = -1e2
"""Scores below this are of points that break a constraint."""
_EVEN, _DOMAINS = 20, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_NEAR_BEST, _NEAR_EDGE = 16, 8
_STAGES, _DRAFTS = 6, 6
_ROUNDS, _STEPS = 3, 14


class Candidate(eqx.Module):
    """A point with its box; leading axes where there are many."""

    box: Box
    z: Array
    score: Array
    """ln speed; below `UNFIT`, by how much, where a constraint is broken."""


class _Grid(eqx.Module):
    """Logarithms of the free degree, stages and 1 + drafted tokens."""

    tensor: Array
    stages: Array
    drafts: Array


def candidate(
    scenario: Scenario, limits: Limits, z: Array, box: Box, steps: int, stated_nodes: bool = True
) -> Candidate:
    """The degrees of z with the smallest affordable batch, scored by the exact arithmetic."""
    found = least_batch(scenario, limits, z, box, steps, stated_nodes=stated_nodes)
    missed = jnp.clip(jnp.min(found.slacks, axis=-1), -1e2, 0.0)
    return Candidate(box, found.z, jnp.where(found.fits, -found.objective, 2.0 * UNFIT + missed))


def scan(scenario: Scenario, limits: Limits, family: Family, index: Array) -> Candidate:
    """Candidates along the free degree; all but local maxima are scored as unfit."""
    grid = _first_grid(scenario, family)

    def look(grid: _Grid, _: None) -> tuple[_Grid, Candidate]:
        found = _evaluate(scenario, limits, family, index, grid)
        return _zoomed(grid, found), found

    _, rounds = jax.lax.scan(look, grid, length=_ROUNDS)
    every = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rounds)
    order = jnp.argsort(every.z[:, 0])
    every = jax.tree.map(lambda x: x[order], every)
    padded = jnp.pad(every.score, 1, constant_values=-jnp.inf)
    peak = (every.score >= padded[:-2]) & (every.score > padded[2:])
    peak = peak & (family.tensor_low <= family.tensor_high * (1.0 + 1e-12))
    return eqx.tree_at(lambda c: c.score, every, jnp.where(peak, every.score, 9.0 * UNFIT))


def _first_grid(scenario: Scenario, family: Family) -> _Grid:
    size = scenario.accelerator.network.domain_size / family.across.fixed
    least, largest = jnp.log(family.tensor_low), jnp.log(family.tensor_high)
    full = jnp.clip(jnp.log(size * jnp.asarray(_DOMAINS, jnp.float64)), least, largest)
    even = _between(least, largest, _EVEN)
    stages = _between(
        jnp.log(family.pipeline_low),
        jnp.log(family.pipeline_high),
        1 if family.fixed_pipeline else _STAGES,
    )
    lowest, most = jnp.log1p(family.draft_low), jnp.log1p(family.draft_high)
    drafts = _between(lowest, most, _DRAFTS if family.drafted else 1)
    return _Grid(jnp.sort(jnp.concatenate([even, full])), stages, drafts)


def _between(low: Array, high: Array, count: int) -> Array:
    return low + jnp.linspace(0.0, 1.0, count) * (high - low) if count > 1 else low[None]


def _evaluate(scenario: Scenario, limits: Limits, family: Family, index: Array, grid: _Grid) -> Candidate:
    """The best stages and draft at each free degree."""
    tensor = jnp.exp(grid.tensor)
    nodes = domains_of(tensor, family, scenario)

    def box(nodes: Array, alone: Array) -> Box:
        return box_of(family, index, scenario, limits, nodes, alone)

    boxes = jax.vmap(box)(nodes, tensor <= 1.0)

    def at(box: Box, log_tensor: Array, log_stages: Array, log_drafts: Array) -> Candidate:
        z = jnp.stack([log_tensor, log_stages, log_drafts])
        return candidate(scenario, limits, z, box, _STEPS)

    over_drafts = jax.vmap(at, in_axes=(None, None, None, 0))
    over_both = jax.vmap(over_drafts, in_axes=(None, None, 0, None))
    points = jax.vmap(over_both, in_axes=(0, 0, None, None))(boxes, grid.tensor, grid.stages, grid.drafts)
    count = len(tensor)
    scores = points.score.reshape(count, -1)
    rows, best = jnp.arange(count), jnp.argmax(scores, axis=1)
    return Candidate(boxes, points.z.reshape(count, -1, 4)[rows, best], scores[rows, best])


def _zoomed(grid: _Grid, found: Candidate) -> _Grid:
    """A grid of the same shape between the neighbours of the best point and over the edges."""
    last = len(grid.tensor) - 1
    best = jnp.argmax(found.score)
    fit = found.score > UNFIT
    first, final = jnp.argmax(fit), last - jnp.argmax(fit[::-1])
    first = jnp.where(jnp.any(fit), first, best)
    final = jnp.where(jnp.any(fit), final, best)

    def span(low: Array, high: Array, count: int) -> Array:
        a, b = grid.tensor[jnp.maximum(low, 0)], grid.tensor[jnp.minimum(high, last)]
        return a + jnp.linspace(0.0, 1.0, count) * (b - a)

    tensor = jnp.concatenate(
        [
            span(best - 1, best + 1, _NEAR_BEST),
            span(first - 1, first, _NEAR_EDGE),
            span(final, final + 1, _NEAR_EDGE),
        ]
    )
    return _Grid(
        jnp.sort(tensor),
        _closer(grid.stages, found.z[best, 1]),
        _closer(grid.drafts, found.z[best, 2]),
    )


def _closer(values: Array, at: Array) -> Array:
    """As many values between the neighbours of `at`, the least value kept."""
    if len(values) == 1:
        return values
    nearest = jnp.argmin(jnp.abs(values - at))
    low = values[jnp.maximum(nearest - 1, 0)]
    high = values[jnp.minimum(nearest + 1, len(values) - 1)]
    inner = low + jnp.linspace(0.0, 1.0, len(values) - 1) * (high - low)
    return jnp.sort(jnp.concatenate([values[:1], inner]))
