"""Speeds over a grid of degrees and batches, shared by all budgets, and where each budget peaks.

The smallest batch that a budget affords at given degrees lies between two neighbouring entries, one too dear
and one affordable; at one draft length cost is affine in 1/b between kinks. The table costs as much for one
budget as for many; for each of them the best local maxima along the free degree are what `_envelope.py`
narrows. A box is a range of degrees without a jump in the number of scale-up domains, or in the stages that
the draft may have.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import EXACT
from ..scenarios import Erdil2025
from ._draft_table import best_drafts
from ._envelope_types import Spaces, layout_of, score
from ._relaxation import Limits
from ._scan import UNFIT

_EVEN, _BATCHES = 64, 24
_DOMAINS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64)
_MORE = 48
"""Batches of the table with a draft, whose best length moves with them."""
_ABOVE = 1.0 + 1e-12
_FARTHEST = 1e-9
"""Least 1/b beyond the last entry, over that of the last."""
_RANKS = 1e6
_NARROWEST = 0.03
"""Half the width of the range about a peak, where the grid is finer than this."""


class Table(eqx.Module):
    """Axes: batch, family, free degree."""

    tensor: Float[Array, "f g"]
    box: Array
    low: Float[Array, "f boxes"]
    """Bounds of the boxes."""
    high: Float[Array, "f boxes"]
    log_batch: Float[Array, "b f 1"]
    costs: tuple[Float[Array, "b f g"], ...]
    """US dollars per million tokens at the best draft length, then at that of the entry before."""
    fastest: Float[Array, "f g"]
    """ln of the speed at the least batch."""
    most: Float[Array, "f g"]
    """ln of the largest batch that fits in memory."""
    drafts: Float[Array, "b f g"] | None = None
    """Drafted tokens at which the speed is highest."""


def tabulate(scenario: Erdil2025, limits: Limits, s: Spaces) -> Table:
    degrees = grid(scenario, s)
    tensor = degrees[0]
    stages = s.stages[:, None]
    log_batch = _batches(scenario, limits, stages)
    layout = layout_of(tensor, stages, jnp.exp(log_batch))
    speeds: tuple[Array, ...]
    if scenario.draft is None:
        speeds, drafts = (scenario.speed_among(layout, s.partition[:, None] > 0.0),), None
    else:
        speeds, drafts = best_drafts(scenario, s, layout)
    costs = tuple(scenario.cost_at_speed(layout, speed) for speed in speeds)
    return Table(*degrees, log_batch, costs, jnp.log(speeds[0][0]), _most(scenario, tensor, stages), drafts)


def _batches(scenario: Erdil2025, limits: Limits, stages: Array) -> Array:
    """ln of batches, even, and both sides of those at which the draft may take more stages."""
    steps = jnp.linspace(0.0, 1.0, _BATCHES if scenario.draft is None else _MORE)[:, None, None]
    even = jnp.log(stages) + steps * jnp.log(limits.max_batch / stages)
    if scenario.draft is None:
        return even
    full = jnp.log(jnp.asarray(scenario.pipelines[1:]))[:, None, None]
    both = jnp.concatenate([full - 1e-12, full])
    both = jnp.clip(jnp.broadcast_to(both, (len(both), *even.shape[1:])), even[0], even[-1])
    return jnp.sort(jnp.concatenate([even, both]), axis=0)


def _most(scenario: Erdil2025, tensor: Array, stages: Array) -> Array:
    """ln of the largest batch in memory, whose need is affine in the batch; very low where none fits."""
    batches = (jnp.zeros(()), jnp.ones(()))
    room, less = (scenario.memory_margin(layout_of(tensor, stages, b), EXACT) for b in batches)
    return jnp.log(jnp.clip(room / jnp.maximum(room - less, 1e-300), 1e-20, 1e20))


def grid(scenario: Erdil2025, s: Spaces) -> tuple[Array, Array, Array, Array]:
    """(free degrees, index of their box, bounds of boxes): even in the logarithm, and both sides of full
    domains."""
    low, high = s.low[:, None], s.high[:, None]
    even = low * jnp.exp(jnp.linspace(0.0, 1.0, _EVEN)[1:-1] * jnp.log(high / low))
    full = scenario.accelerator.network.domain_size * jnp.asarray(_DOMAINS, jnp.float64)
    full = jnp.broadcast_to(full, (len(low), len(_DOMAINS)))
    if scenario.draft is not None:
        full = jnp.concatenate([full, jnp.asarray(scenario.pipelines[1:]) / s.stages[:, None]], axis=1)
    full = jnp.sort(jnp.where(full > low, jnp.minimum(full, high), high), axis=1)
    beyond = jnp.clip(full * _ABOVE, low, high)
    lower, upper = jnp.concatenate([low, beyond], axis=1), jnp.concatenate([full, high], axis=1)
    degrees = jnp.sort(jnp.concatenate([lower, even, upper], axis=1), axis=1)
    return degrees, jnp.sum(full[:, None, :] < degrees[:, :, None], axis=-1), lower, upper


class Levels(eqx.Module):
    """What each budget gets at each degree of the table; axes: budget, family, free degree."""

    log_batch: Array
    value: Array


def entries(table: Table, budgets: Array) -> Array:
    """ln of the least affordable batch at each degree of the table; axes: budget, family, free degree."""
    budget, inverse = budgets[:, None, None], jnp.exp(-table.log_batch)
    ends = _cell(table, inverse, 0)
    for j in range(1, len(inverse) - 1):
        dear = table.costs[0][j] > budget
        ends = [jnp.where(dear, new, old) for new, old in zip(_cell(table, inverse, j), ends, strict=True)]
    # The next entry is affordable, except beyond the last.
    farthest = jnp.where(table.costs[0][-1] > budget, _FARTHEST, 1.0)
    return -jnp.log(_root(ends, budget, farthest))


def _cell(table: Table, inverse: Array, j: int) -> list[Array]:
    """1/b at entries j and j + 1, and costs at both at the draft length of the first."""
    return [inverse[j], inverse[j + 1], table.costs[0][j], table.costs[-1][j + 1]]


def _root(ends: list[Array], budget: Array, farthest: Array) -> Array:
    """The greatest 1/b that is affordable: at one draft length cost is affine in 1/b, between kinks."""
    first, last, before, after = ends
    part = jnp.maximum((before - budget) / jnp.maximum(before - after, 1e-12 * before), 0.0)
    return jnp.maximum(first + part * (last - first), farthest * last)


def levels(
    scenario: Erdil2025, limits: Limits, s: Spaces, table: Table, budgets: Array, batch: Array
) -> Levels:
    """The value of the least affordable batch, from `entries`."""
    rate = jnp.log(1e6 * scenario.accelerator.price) + jnp.log(table.tensor * s.stages[:, None])
    speed = jnp.where(
        batch > table.log_batch[0], rate - jnp.log(budgets)[:, None, None] - batch, table.fastest
    )
    slack = jnp.minimum(table.most, jnp.log(limits.max_batch)) - batch
    if scenario.workload.demand is not None:
        slack = jnp.minimum(slack, jnp.log(scenario.workload.demand) - speed - batch)
    return Levels(batch, score(speed, slack))


def candidates(limits: Limits, s: Spaces, table: Table, found: Levels, count: int) -> Array:
    """The `count` best local maxima of every budget.

    Rows of `Candidates`.
    """
    new = table.box[:, 1:] != table.box[:, :-1]
    first = jnp.pad(new, ((0, 0), (1, 0)), constant_values=True)
    last = jnp.pad(new, ((0, 0), (0, 1)), constant_values=True)
    value = found.value
    at = _peaks(value, first, last, count)
    family = at // value.shape[2]
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
    if table.drafts is not None:
        entry = jnp.sum(table.log_batch[:, family, 0] <= batch[1], axis=0) - 1
        drafts = table.drafts.reshape(len(table.drafts), -1)[jnp.clip(entry, 0, len(table.drafts) - 1), at]
        fields = (*fields, drafts, 0.0 * drafts)
    return jnp.stack(fields).swapaxes(1, 2)


def _peaks(value: Array, first: Array, last: Array, count: int) -> Array:
    """Places of the highest local maxima within boxes; axes: budget, peak."""
    higher = (first | (value >= jnp.roll(value, 1, -1))) & (last | (value > jnp.roll(value, -1, -1)))
    # Whole numbers that hold their place: their maximum takes vector instructions, an argmax does not.
    size = value[0].size
    rank = jnp.where(higher, jnp.floor((value + 4.0 * abs(UNFIT)) * _RANKS), 0.0).astype(jnp.int64)
    rank = rank.reshape(len(value), size) * size + jnp.arange(size)
    highest = []
    for _ in range(count):
        highest.append(jnp.max(rank, axis=1))
        rank = jnp.where(rank == highest[-1][:, None], 0, rank)
    return jnp.stack(highest, axis=1) % size
