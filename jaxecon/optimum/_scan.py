"""A coarse exact scan of one family of the relaxed space, zooming into what it finds.

Feasible regions can be slivers (a demand limit from above, memory from below), so later rounds look
between the neighbours of the best point and across the edges of the feasible range. Where nothing
is feasible, the point that misses least counts as the best.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..scenarios import Family, Scenario
from ._relaxation import Box, Limits, box_of, domains_of, least_batch, spread

UNFIT = -1e2
"""Scores below this are of points that break a constraint."""
_EVEN, _DOMAINS = 20, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
# Later rounds: peaks, points and full domains about each, points across either edge; as many in all.
_PEAKS, _NEAR_PEAK, _FULL, _NEAR_EDGE = 3, 6, 3, 4
_MANY = 16
"""Degrees of as many domains or more are full ones only: where a domain that is not full costs much, each
full one is a peak, and their own maximum would be missed among degrees between."""
_STAGES, _DRAFTS = 6, 6
_ROUNDS, _STEPS = 3, 14
_APART = 0.02
"""Candidates of one box closer in ln free degree than this are one."""


class Candidate(eqx.Module):
    """A point with its box; leading axes where there are many."""

    box: Box
    z: Array
    score: Array
    """ln speed; below `UNFIT`, by how much, where a constraint is broken."""


class _Grid(eqx.Module):
    """Logarithms of the free degree, shape (family, G), and at each of stages and 1 + drafted tokens."""

    tensor: Array
    stages: Array
    drafts: Array


class _Found(eqx.Module):
    """The best of each free degree; a first axis of families where there are many."""

    nodes: Array
    z: Array
    score: Array


def candidate(
    scenario: Scenario, limits: Limits, z: Array, box: Box, steps: int, stated_nodes: bool = True
) -> Candidate:
    """The degrees of z with the smallest affordable batch, scored by the exact arithmetic."""
    found = least_batch(scenario, limits, z, box, steps, stated_nodes=stated_nodes)
    missed = jnp.clip(jnp.min(found.slacks, axis=-1), -1e2, 0.0)
    return Candidate(box, found.z, jnp.where(found.fits, -found.objective, 2.0 * UNFIT + missed))


def scan(scenario: Scenario, limits: Limits, family: Family, index: Array, ranks: Array) -> Candidate:
    """Points of families stacked on a first axis, with their `index` among all: those of these `ranks`
    by score among all that are the best of their surroundings along the free degree."""
    grid = _first_grid(scenario, family)

    def look(grid: _Grid, _: None) -> tuple[_Grid, _Found]:
        found = _evaluate(scenario, limits, family, index, grid)
        return _zoomed(grid, found, family, scenario), found

    _, rounds = jax.lax.scan(look, grid, length=_ROUNDS)
    count = len(index)
    every = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(count, -1, *x.shape[3:]), rounds)
    every = _rows(every, jnp.argsort(every.z[..., 0], axis=-1))
    exists = family.tensor_low <= family.tensor_high * (1.0 + 1e-12)
    score = jnp.where(_peaks(every) & exists[:, None], every.score, 9.0 * UNFIT)
    each = score.shape[1]
    score = score.ravel()
    at = taken(jax.lax.top_k(score, len(ranks))[1], ranks)
    z, score = taken((every.z.reshape(-1, 4), score), at)
    family, index = taken((family, index), jax.lax.div(at, np.asarray(each, at.dtype)))
    return Candidate(_box_at(z[:, 0], family, index, scenario, limits), z, score)


def taken(tree: Any, index: Array) -> Any:
    """Every leaf's rows at an index in bounds, in fewer operations than `x[index]`."""
    return jax.tree.map(
        lambda x: x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), tree
    )


def _rows(tree: Any, index: Array) -> Any:
    """Of every leaf, shape (family, n, ...), the rows at an index in bounds, shape (family, k)."""
    leaf = jax.tree.leaves(tree)[0]
    first = leaf.shape[1] * np.arange(leaf.shape[0], dtype=index.dtype)[:, None]
    return taken(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree), index + first)


def _box_at(log_free: Array, family: Family, index: Array, scenario: Scenario, limits: Limits) -> Box:
    """The box in which a free degree lies."""
    free = jnp.exp(log_free)
    nodes = domains_of(free, family, scenario)
    return box_of(family, index, scenario, limits, nodes, free <= 1.0)


def _peaks(every: _Found) -> Array:
    """Local maxima along the free degree, and of those that lie close together in a box the best."""
    score = every.score
    beyond = np.full((*score.shape[:-1], 1), -np.inf)
    left = jnp.concatenate([beyond, score[..., :-1]], axis=-1)
    peak = (score >= left) & (score > jnp.concatenate([score[..., 1:], beyond], axis=-1))
    score = jnp.where(peak, score, -jnp.inf)
    one, other = score[..., :, None], score[..., None, :]
    free = every.z[..., 0]
    close = jnp.abs(free[..., :, None] - free[..., None, :]) < _APART
    close &= every.nodes[..., :, None] == every.nodes[..., None, :]
    before = np.tri(score.shape[-1], k=-1, dtype=bool)
    ahead = (other > one) | ((other == one) & before)
    return peak & ~jnp.any(close & ahead, axis=-1)


def _first_grid(scenario: Scenario, family: Family) -> _Grid:
    least, largest = jnp.log(family.tensor_low), jnp.log(family.tensor_high)
    size = scenario.accelerator.network.domain_size / family.across.fixed
    domains = jnp.log(size[:, None] * jnp.asarray(_DOMAINS, jnp.float64))
    full = jnp.clip(domains, least[:, None], largest[:, None])
    even = _filled(_between(least, largest, _EVEN), size, least, largest)
    low, high = jnp.log(family.pipeline_low), jnp.log(family.pipeline_high)
    stages = _between(low, high, 1 if family.fixed_pipeline else _STAGES)
    lowest, most = jnp.log1p(family.draft_low), jnp.log1p(family.draft_high)
    drafts = _between(lowest, most, _DRAFTS if family.drafted else 1)
    tensor = jnp.sort(jnp.concatenate([even, full], axis=-1))
    rows = (jnp.broadcast_to(x[:, None], (*tensor.shape, x.shape[-1])) for x in (stages, drafts))
    return _Grid(tensor, *rows)


def _full(log_free: Array, size: Array, least: Array, largest: Array) -> Array:
    """The nearest full domains of degrees, shape (family, ...), within bounds, all in logarithms; `size` is
    the free degree that fills a domain."""
    size, least, largest = (x.reshape(-1, *[1] * (log_free.ndim - 1)) for x in (size, least, largest))
    domains = jnp.maximum(jnp.round(jnp.exp(log_free) / size), 1.0)
    return jnp.clip(jnp.log(size * domains), least, largest)


def _filled(log_free: Array, size: Array, least: Array, largest: Array) -> Array:
    """`_full` of degrees of many domains, others as they are."""
    many = jnp.exp(log_free) >= _MANY * size.reshape(-1, *[1] * (log_free.ndim - 1))
    return jnp.where(many, _full(log_free, size, least, largest), log_free)


def _between(low: Array, high: Array, count: int) -> Array:
    """`count` values from low to high on a further axis; the low one alone where that is 1."""
    return low[..., None] + np.linspace(0.0, 1.0, count) * (high - low)[..., None]


def _evaluate(scenario: Scenario, limits: Limits, family: Family, index: Array, grid: _Grid) -> _Found:
    """The best stages and draft at each free degree, shape (family, free degree)."""
    wide = jax.tree.map(lambda x: x[:, None], family)
    boxes = _box_at(grid.tensor, wide, index[:, None], scenario, limits)
    grids = (grid.tensor[:, :, None, None], grid.stages[:, :, :, None], grid.drafts[:, :, None, :])
    z = jnp.stack(jnp.broadcast_arrays(*grids), axis=-1)
    points = candidate(scenario, limits, z, spread(boxes, 2), _STEPS)
    scores = points.score.reshape(*grid.tensor.shape, -1)
    best = jnp.argmax(scores, axis=-1)[..., None]
    z = points.z.reshape(*grid.tensor.shape, -1, 4)
    chosen = jnp.take_along_axis(z, best[..., None], axis=-2)[..., 0, :]
    return _Found(boxes.nodes, chosen, jnp.max(scores, axis=-1))


def _zoomed(grid: _Grid, found: _Found, family: Family, scenario: Scenario) -> _Grid:
    """A grid of the same shape between the neighbours of the best peaks, with the full domains there,
    and over the edges of what is feasible."""
    last = grid.tensor.shape[-1] - 1
    fit = found.score > UNFIT
    score = jnp.where(_peaks(found), found.score, -jnp.inf)
    peaks = jax.lax.top_k(score, _PEAKS)[1].astype(jnp.int64)
    first, final = jnp.argmax(fit, axis=-1), last - jnp.argmax(fit[:, ::-1], axis=-1)
    ends = jnp.where(jnp.any(fit, axis=-1)[:, None], jnp.stack([first, final], axis=-1), peaks[:, :1])
    middles = jnp.concatenate([peaks, ends], axis=-1)
    low, high = (_rows(grid.tensor, jnp.clip(middles + side, 0, last)) for side in (-1, 1))
    middle = _rows(grid.tensor, middles)

    size = scenario.accelerator.network.domain_size / family.across.fixed
    bounds = (size, jnp.log(family.tensor_low), jnp.log(family.tensor_high))
    inside = low[:, :_PEAKS], high[:, :_PEAKS]
    full = _full(_between(*inside, _FULL), *bounds)
    near = jnp.concatenate([_filled(_between(*inside, _NEAR_PEAK), *bounds), full], axis=-1)
    sides = jnp.stack([low[:, -2], middle[:, -1]], -1), jnp.stack([middle[:, -2], high[:, -1]], -1)
    edges = _between(*sides, _NEAR_EDGE)
    centres = [jnp.broadcast_to(x[..., None], y.shape) for x, y in ((peaks, near), (ends, edges))]
    both = [[x.reshape(len(x), -1) for x in parts] for parts in ((near, edges), centres)]
    tensor, about = jax.lax.sort([jnp.concatenate(parts, axis=-1) for parts in both], num_keys=1)
    stages, drafts, z = _rows((grid.stages, grid.drafts, found.z), about)
    return _Grid(tensor, _closer(stages, z[..., 1]), _closer(drafts, z[..., 2]))


def _closer(values: Array, at: Array) -> Array:
    """As many values, on a last axis, between the neighbours of `at`, the least value kept."""
    count = values.shape[-1]
    if count == 1:
        return values
    nearest = jnp.argmin(jnp.abs(values - at[..., None]), axis=-1)
    sides = (jnp.maximum(nearest - 1, 0), jnp.minimum(nearest + 1, count - 1))
    low, high = (jnp.take_along_axis(values, side[..., None], axis=-1)[..., 0] for side in sides)
    return jnp.sort(jnp.concatenate([values[..., :1], _between(low, high, count - 1)], axis=-1))
