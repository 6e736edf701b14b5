"""The table of `_envelope_table.py` with a draft length at every point, the best of a few.

At given degrees the time per token is affine in the batch between the kinks of the paper's equations, so
the batch that spends a budget c follows from two neighbouring entries: tau = alpha + beta b meets
tau = kappa b, kappa = c/(1e6 N price), at b = alpha/(kappa - beta). The table costs as much for one
budget as for many; for each of them its local maxima along the free degree are the brackets that
`_drafted_envelope.py` refines.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import EXACT
from ..scenarios import Scenario
from ._envelope_table import FIT, PARTITIONS, Spaces, grid, layout_of, score
from ._relaxation import Limits

RESERVE = 1e-8
"""Share of a limit that a search leaves free, so that rounding does not break it."""
_BATCHES, _DRAFTS = 24, 14
_PEAKS = 2
_GAIN = 0.3
"""Most that a peak between grid points may be expected to gain in ln speed over them."""


class Points(eqx.Module):
    """Layouts with a free degree across a stage, and what decides whether they are admissible."""

    stages: Array
    partition: Array
    low: Array
    """Bounds of the free degree."""
    high: Array
    budget: Array


class Window(eqx.Module):
    """Five neighbouring points (last axis) along x = ln(N b), the best in the middle."""

    x: Array
    log_batch: Array
    log_draft: Array
    """ln(1 + drafted tokens)."""
    log_speed: Array
    slack: Array


def slack_of(scenario: Scenario, limits: Limits, batch: Array, time: Array, room: Array) -> Array:
    """The least of what memory (share), largest batch and demand (logarithms) leave."""
    slack = jnp.minimum(room, jnp.log(limits.max_batch / batch) + 1e-9)
    if scenario.workload.demand is not None:
        slack = jnp.minimum(slack, jnp.log(scenario.workload.demand * time / batch))
    return slack


def met(alpha: Array, beta: Array, kappa: Array) -> Array:
    """Where alpha + beta b = kappa b; huge where nowhere."""
    return jnp.minimum(alpha / jnp.maximum(kappa - beta, 1e-300), 1e150)


class Table(eqx.Module):
    """Axes: family, free degree, batch."""

    tensor: Float[Array, "f g"]
    box: Array
    batch: Float[Array, "f b"]
    time: Float[Array, "f g b"]
    """Seconds per token with the best draft length."""
    log_draft: Array
    room: Float[Array, "f g b"]


def tabulate(scenario: Scenario, limits: Limits, s: Spaces) -> Table:
    tensor, box, _, _ = grid(scenario, s)
    steps = jnp.linspace(0.0, 1.0, _BATCHES)
    batch = s.stages[:, None] * jnp.exp(steps * jnp.log(limits.max_batch / s.stages)[:, None])
    low, high = (jnp.log1p(d)[:, None] for d in (s.draft_low, s.draft_high))
    drafts = low + jnp.linspace(0.0, 1.0, _DRAFTS) * (high - low)
    layout = layout_of(
        tensor[:, :, None, None],
        s.stages[:, None, None, None],
        batch[:, None, :, None],
        jnp.expm1(drafts)[:, None, None, :],
    )
    speed = scenario.speed_among(layout, PARTITIONS, s.partition[:, None, None, None])
    speed = jnp.broadcast_to(speed, (*tensor.shape, _BATCHES, drafts.shape[1]))
    best = jnp.argmax(speed, axis=-1)
    room = scenario.memory_margin(layout, EXACT)[..., 0] / scenario.accelerator.hbm_size
    chosen = jnp.sum(jax.nn.one_hot(best, drafts.shape[1]) * drafts[:, None, None, :], axis=-1)
    time, room = 1.0 / jnp.max(speed, axis=-1), jnp.broadcast_to(room, best.shape)
    return Table(tensor, box, batch, time, chosen, room)


class Levels(eqx.Module):
    """What each budget gets at each degree of the table; axes: budget, family, free degree."""

    batch: Array
    log_speed: Array
    slack: Array


def levels(scenario: Scenario, limits: Limits, s: Spaces, table: Table, budgets: Array) -> Levels:
    """The least affordable batch, by the lines on either side of the cell where it lies."""
    b, time = table.batch[:, None, :], table.time
    beta = jnp.diff(time) / jnp.diff(b)
    alpha = time[..., :-1] - beta * b[..., :-1]
    rate = 1e6 * table.tensor * s.stages[:, None] * scenario.accelerator.price
    cost = rate[..., None] * time / b
    cells, budget = _BATCHES - 1, budgets[:, None, None]
    kappa = budget / rate

    def cell(i: int) -> int:
        return min(max(i, 0), cells - 1)

    lines = [jnp.broadcast_to(x, kappa.shape) for i in (0, 1) for x in (alpha[..., i], beta[..., i])]
    for j in range(1, cells):
        near = [x for i in (j - 1, j + 1) for x in (alpha[..., cell(i)], beta[..., cell(i)])]
        dear = cost[..., j] > budget
        lines = [jnp.where(dear, new, old) for new, old in zip(near, lines, strict=True)]
    left, right = met(lines[0], lines[1], kappa), met(lines[2], lines[3], kappa)
    batch = jnp.where(lines[3] >= lines[1], jnp.maximum(left, right), jnp.minimum(left, right))
    least = cost[..., 0] <= budget
    batch = jnp.where(least, b[..., 0], jnp.minimum(batch, 1e3 * limits.max_batch))
    spent = jnp.where(least, time[..., 0], kappa * batch)
    slope = (table.room[..., -1] - table.room[..., 0]) / (b[..., -1] - b[..., 0])
    room = table.room[..., 0] + slope * (batch - b[..., 0])
    return Levels(batch, -jnp.log(spent), slack_of(scenario, limits, batch, spent, room))


def brackets(
    limits: Limits, s: Spaces, table: Table, found: Levels, budgets: Array, count: int
) -> tuple[Points, Window]:
    """The `count` most promising local maxima of every budget; axes: budget, candidate (, window)."""
    new = table.box[:, 1:] != table.box[:, :-1]
    first = jnp.pad(new, ((0, 0), (1, 0)), constant_values=True)
    last = jnp.pad(new, ((0, 0), (0, 1)), constant_values=True)
    batch = jnp.clip(found.batch, s.stages[:, None], limits.max_batch)
    x = jnp.log(table.tensor * s.stages[:, None] * batch)
    rank = _promise(x, found, first, last)
    width = table.tensor.shape[1]
    values, places = [], []
    for _ in range(_PEAKS):  # of each family; a whole sort of the table would take longer than all else
        place = jnp.argmax(rank, axis=-1)
        values.append(jnp.take_along_axis(rank, place[..., None], -1)[..., 0])
        places.append(place + width * jnp.arange(rank.shape[1]))
        rank = jnp.where(jnp.arange(width) == place[..., None], -jnp.inf, rank)
    _, order = jax.lax.top_k(jnp.concatenate(values, axis=1), min(count, _PEAKS * rank.shape[1]))
    at = jnp.take_along_axis(jnp.concatenate(places, axis=1), order, 1)
    place = jnp.arange(width)
    begin = jax.lax.cummax(jnp.where(first, place, 0), axis=1).ravel()[at]
    end = jax.lax.cummin(jnp.where(last, place, width - 1), axis=1, reverse=True).ravel()[at]
    family = at // width
    near = jnp.clip((at % width)[..., None] + jnp.arange(-2, 3), begin[..., None], end[..., None])
    near = near + family[..., None] * width
    rows = jnp.arange(len(budgets))[:, None, None]
    x, batch, speed, slack = (
        a.reshape(len(budgets), -1)[rows, near] for a in (x, batch, found.log_speed, found.slack)
    )
    column = jnp.sum(batch[..., None] >= table.batch[family][..., None, :], axis=-1) - 1
    drafts = table.log_draft.reshape(-1, _BATCHES)[near, jnp.clip(column, 0, _BATCHES - 1)]
    degrees = table.tensor.ravel()
    points = Points(
        s.stages[family],
        s.partition[family],
        degrees[family * width + begin],
        degrees[family * width + end],
        jnp.broadcast_to(budgets[:, None], family.shape),
    )
    return points, Window(x, jnp.log(batch), drafts, speed, slack)


def _promise(x: Array, found: Levels, first: Array, last: Array) -> Array:
    """What local maxima within a box may come to between grid points; -inf elsewhere.

    Where a limit breaks on the way to a neighbour, the speed at the edge by interpolation; else where
    the lines through the two points on either side cross. Inadmissible points are ranked by what
    they lack, at two parts of speed for one of slack.
    """
    f, slack = found.log_speed, found.slack
    value, fit = score(f, slack), slack >= FIT

    def shifted(a: Array, by: int) -> Array:
        return jnp.roll(a, -by, axis=-1)

    def edge(by: int, wall: Array) -> Array:
        theirs, speed = shifted(slack, by), shifted(f, by)
        crossed = fit & (theirs < FIT) & ~wall
        return jnp.where(crossed, f + (speed - f) * slack / jnp.where(crossed, slack - theirs, 1.0), f)

    gap = shifted(x, 1) - x
    slope = jnp.where(last, 0.0, (shifted(f, 1) - f) / jnp.maximum(gap, 1e-9))

    def crossing(start: Array, rise: Array, fall: Array, width: Array, final: Array, valid: Array) -> Array:
        bend = rise - fall
        valid = valid & (bend > 1e-9)
        t = (final - start - fall * width) / jnp.where(valid, bend, 1.0)
        return jnp.where(valid & (t > 0.0) & (t < width), start + rise * t, f)

    not_right = last | shifted(last, 1) | first | ~fit | ~shifted(fit, 1)
    not_left = first | shifted(first, -1) | last | ~fit | ~shifted(fit, -1)
    right = crossing(f, shifted(slope, -1), shifted(slope, 1), gap, shifted(f, 1), ~not_right)
    left = crossing(shifted(f, -1), shifted(slope, -2), slope, shifted(gap, -1), f, ~not_left)
    best = jnp.maximum(jnp.maximum(right, left), jnp.maximum(edge(1, last), edge(-1, first)))
    best = jnp.where(fit, jnp.clip(best, f, f + _GAIN), f + 2.0 * jnp.clip(slack, -50.0, 0.0))
    peak = (first | (value >= shifted(value, -1))) & (last | (value > shifted(value, 1)))
    return jnp.where(peak, best, -jnp.inf)
