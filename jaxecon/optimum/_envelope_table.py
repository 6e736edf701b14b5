"""Speeds over a grid of degrees and batches, shared by all budgets, and where each budget peaks.

The smallest batch that a budget affords at given degrees lies between two neighbouring entries, one too
dear and one affordable; ln cost is nearly straight in ln batch. The table costs as much for one budget as
for many; for each of them the best local maxima along the free degree are what `_envelope.py` narrows.
A box is a range of degrees without a jump in the number of scale-up domains.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics import EXACT
from ..scenarios import Family, Scenario
from ..specs import Layout
from ._relaxation import Limits
from ._scan import UNFIT

FIT = -1e-12
PARTITIONS = ("1d", "2d")
_EVEN, _BATCHES = 64, 24
_DOMAINS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64)
_PARTS = 2
"""Of every family's degrees, each with a candidate of its own."""
_ABOVE = 1.0 + 1e-12
_RANKS = 1e6
WIDE = {"xla_cpu_prefer_vector_width": 512}
"""Options of the compiler: the widest vectors that the processor has."""
_NARROWEST = 0.03
"""Half the width of the range about a peak, where the grid is finer than this."""


class Spaces(eqx.Module):
    """The families of a scenario with a fixed pipeline degree, one entry each."""

    low: Float[Array, " f"]
    high: Float[Array, " f"]
    stages: Float[Array, " f"]
    draft_low: Float[Array, " f"]
    draft_high: Float[Array, " f"]
    partition: Array
    """Index into `PARTITIONS`."""


class Envelope(eqx.Module):
    """The best point at each budget."""

    layout: Layout
    partition: Array
    """Index into `PARTITIONS`."""
    log_speed: Array
    """By the exact arithmetic; `UNFIT` or less where nothing admissible was found."""
    cost: Array
    gain: Array
    """Relative speed that the last round of the search added."""
    low: Array
    """Bounds of the free degree between which the point was found."""
    high: Array


class Found(NamedTuple):
    """What is said of an `Envelope`."""

    tensor: np.ndarray
    stages: np.ndarray
    batch: np.ndarray
    drafts: np.ndarray
    partition: np.ndarray
    log_speed: np.ndarray
    cost: np.ndarray
    gain: np.ndarray


def rows_of(best: Envelope) -> Array:
    """The rows of `Found` in one array: each array that leaves the device takes a while."""
    at = best.layout
    rows = (at.tensor, at.pipeline, at.batch, at.draft_tokens, best.partition, best.log_speed, best.cost)
    return jnp.stack(jnp.broadcast_arrays(*rows, best.gain))


class Candidates(eqx.Module):
    """Where each budget may be fastest: ranges of x = ln N within a box, and what is known in their middles.

    Axes: candidate, best first; budget.
    """

    stages: Array
    partition: Array
    low: Array
    """Bounds of the box."""
    high: Array
    first: Array
    """ln N at the bounds."""
    last: Array
    x: Array
    width: Array
    """Half of the range's."""
    log_batch: Array
    """Least affordable batch."""
    left: Array
    """d log_batch/dx below the middle."""
    right: Array
    value: Array
    """`score` there."""


def spaces(families: tuple[Family, ...]) -> Spaces:
    """Families without routed experts: the free degree is the tensor degree."""

    def column(name: str) -> Array:
        return jnp.stack([getattr(f, name) for f in families])

    names = ("tensor_low", "tensor_high", "pipeline_low", "draft_low", "draft_high")
    index = jnp.asarray([float(PARTITIONS.index(f.partition)) for f in families])
    return Spaces(*map(column, names), index)


def layout_of(tensor: Array, stages: Array, batch: Array, drafts: Array | float = 0.0) -> Layout:
    one = jnp.ones(())
    return Layout(tensor, stages, one, one, batch, drafts * one)


def score(log_speed: Array, slack: Array) -> Array:
    """ln speed where admissible; else below `UNFIT`, by how much a limit is missed."""
    return jnp.where(slack >= FIT, log_speed, 2.0 * UNFIT + jnp.clip(slack, -50.0, 0.0))


class Table(eqx.Module):
    """Axes: batch, family, free degree."""

    tensor: Float[Array, "f g"]
    box: Array
    low: Float[Array, "f boxes"]
    """Bounds of the boxes."""
    high: Float[Array, "f boxes"]
    log_batch: Float[Array, "b f 1"]
    log_speed: Float[Array, "b f g"]
    most: Float[Array, "f g"]
    """ln of the largest batch that fits in memory."""


def tabulate(scenario: Scenario, limits: Limits, s: Spaces) -> Table:
    degrees = grid(scenario, s)
    tensor = degrees[0]
    steps = jnp.linspace(0.0, 1.0, _BATCHES)[:, None, None]
    stages = s.stages[:, None]
    log_batch = jnp.log(stages) + steps * jnp.log(limits.max_batch / stages)
    layout = layout_of(tensor, stages, jnp.exp(log_batch))
    speed = scenario.speed_among(layout, PARTITIONS, s.partition[:, None])
    log_speed = jnp.broadcast_to(jnp.log(speed), (_BATCHES, *tensor.shape))
    return Table(*degrees, log_batch, log_speed, _most(scenario, tensor, stages))


def _most(scenario: Scenario, tensor: Array, stages: Array) -> Array:
    """ln of the largest batch in memory, whose need is affine in the batch; very low where none fits."""
    batches = (jnp.zeros(()), jnp.ones(()))
    room, less = (scenario.memory_margin(layout_of(tensor, stages, b), EXACT) for b in batches)
    return jnp.log(jnp.clip(room / jnp.maximum(room - less, 1e-300), 1e-20, 1e20))


def grid(scenario: Scenario, s: Spaces) -> tuple[Array, Array, Array, Array]:
    """(free degrees, index of their box, bounds of boxes): even in the logarithm, and both sides of full
    domains."""
    low, high = s.low[:, None], s.high[:, None]
    even = low * jnp.exp(jnp.linspace(0.0, 1.0, _EVEN)[1:-1] * jnp.log(high / low))
    full = scenario.accelerator.network.domain_size * jnp.asarray(_DOMAINS, jnp.float64)
    full = jnp.clip(full, low, high)
    beyond = jnp.clip(full * _ABOVE, low, high)
    lower, upper = jnp.concatenate([low, beyond], axis=1), jnp.concatenate([full, high], axis=1)
    degrees = jnp.sort(jnp.concatenate([lower, even, upper], axis=1), axis=1)
    return degrees, jnp.sum(full[:, None, :] < degrees[:, :, None], axis=-1), lower, upper


class Levels(eqx.Module):
    """What each budget gets at each degree of the table; axes: budget, family, free degree."""

    log_batch: Array
    value: Array


def entries(scenario: Scenario, s: Spaces, table: Table, budgets: Array) -> Array:
    """The least affordable batch at each degree of the table, in steps from entry to entry; axes: budget,
    family, free degree."""
    cost = _rate(scenario, s, table) - table.log_speed - table.log_batch
    budget = jnp.log(budgets)[:, None, None]
    before, after, cell = cost[0], cost[1], jnp.zeros(())
    for j in range(1, _BATCHES - 1):
        dear = cost[j] > budget
        before, after = jnp.where(dear, cost[j], before), jnp.where(dear, cost[j + 1], after)
        cell = jnp.where(dear, float(j), cell)
    return cell + jnp.clip((before - budget) / jnp.maximum(before - after, 1e-12), 0.0, 1e3)


def _rate(scenario: Scenario, s: Spaces, table: Table) -> Array:
    """ln of US dollars per second, in millionths."""
    return jnp.log(1e6 * scenario.accelerator.price) + jnp.log(table.tensor * s.stages[:, None])


def levels(
    scenario: Scenario, limits: Limits, s: Spaces, table: Table, budgets: Array, steps: Array
) -> Levels:
    """The value of the least affordable batch, from `entries`."""
    rate, budget = _rate(scenario, s, table), jnp.log(budgets)[:, None, None]
    batch = table.log_batch[0] + (table.log_batch[1] - table.log_batch[0]) * steps
    speed = jnp.where(steps > 0.0, rate - budget - batch, table.log_speed[0])
    slack = jnp.minimum(table.most, jnp.log(limits.max_batch)) - batch
    if scenario.workload.demand is not None:
        slack = jnp.minimum(slack, jnp.log(scenario.workload.demand) - speed - batch)
    return Levels(batch, score(speed, slack))


def candidates(limits: Limits, s: Spaces, table: Table, found: Levels, count: int) -> Array:
    """The `count` best local maxima of every budget, at most one of each part of a family.

    Rows of `Candidates`.
    """
    new = table.box[:, 1:] != table.box[:, :-1]
    first = jnp.pad(new, ((0, 0), (1, 0)), constant_values=True)
    last = jnp.pad(new, ((0, 0), (0, 1)), constant_values=True)
    value, columns = found.value, table.tensor.shape[1]
    higher = (first | (value >= jnp.roll(value, 1, -1))) & (last | (value > jnp.roll(value, -1, -1)))
    # Whole numbers that hold their place: their maximum takes vector instructions, an argmax does not.
    place = jnp.arange(columns)
    rank = jnp.where(higher, jnp.floor((value + 4.0 * abs(UNFIT)) * _RANKS), 0.0).astype(jnp.int64)
    rank = (rank * columns + place).reshape(*value.shape[:-1], _PARTS, columns // _PARTS)
    ranks = jnp.max(rank, axis=-1).reshape(len(value), -1)
    places = ranks % columns + columns * jnp.repeat(jnp.arange(value.shape[1]), _PARTS)
    kept = min(count, places.shape[1])
    at = _first(ranks, places, kept)
    family = at // columns
    near = jnp.stack([jnp.where(first.ravel()[at], at, at - 1), at, jnp.where(last.ravel()[at], at, at + 1)])
    rows = jnp.arange(len(value))[:, None]
    batch, values = (a.reshape(len(value), -1)[rows, near] for a in (found.log_batch, value))
    stages = s.stages[family]
    batch = jnp.clip(batch, jnp.log(stages), jnp.log(limits.max_batch))
    x = jnp.log(table.tensor.ravel()[near] * stages)
    gap = x[1:] - x[:-1]
    slopes = jnp.where(gap > 1e-6, (batch[1:] - batch[:-1]) / jnp.maximum(gap, 1e-6), 0.0)
    width = jnp.maximum(jnp.max(gap, axis=0), _NARROWEST)
    box = table.box.ravel()[at]
    low, high = table.low[family, box], table.high[family, box]
    ends = jnp.log(low * stages), jnp.log(high * stages)
    fields = (stages, s.partition[family], low, high, *ends, x[1], width, batch[1], *slopes, values[1])
    rows = jnp.stack(fields).swapaxes(1, 2)
    return jnp.pad(rows, ((0, 0), (0, count - kept), (0, 0)), mode="edge")


def _first(ranks: Array, places: Array, count: int) -> Array:
    """The places of the highest ranks, by how many are higher: a sort of short rows takes longer."""
    number = jnp.arange(ranks.shape[1])
    mine, other = ranks[:, :, None], ranks[:, None, :]
    higher = (other > mine) | ((other == mine) & (number < number[:, None]))
    order = jnp.sum(higher, axis=-1)
    return jnp.sum(jnp.where(order[:, :, None] == jnp.arange(count), places[:, :, None], 0), axis=1)
