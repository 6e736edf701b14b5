"""Speeds over a grid of degrees and batches, shared by all budgets, and where each budget peaks.

The smallest batch that a budget affords at given degrees lies between two neighbouring entries, one too dear
and one affordable; at one draft length cost is affine in 1/b between kinks. The table costs as much for one
budget as for many; for each of them the best local maxima along the free degree are what `_envelope.py`
narrows. A box is a range of degrees without a jump in the number of scale-up domains, or in the stages that
the draft may have.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import EXACT
from ..scenarios import Erdil2025
from ._draft_table import best_drafts
from ._envelope_types import FIT, Spaces, kept, layout_of
from ._relaxation import Limits

_EVEN, _BATCHES = 64, 24
_DOMAINS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64)
_MORE = 48
"""Batches of the table with a draft, whose best length moves with them."""
_ABOVE = 1.0 + 1e-12
_FARTHEST = 1e-9
"""Least 1/b beyond the last entry, over that of the last."""
_NARROWEST = 0.03
"""Half the width of the range about a peak, where the grid is finer than this."""


class Table(eqx.Module):
    """Axes: batch, family, free degree."""

    tensor: Float[Array, "f g"]
    box: Array
    low: Float[Array, "f boxes"]
    """Bounds of the boxes."""
    high: Float[Array, "f boxes"]
    inverse: Float[Array, "b f"]
    """1/batch, falling."""
    costs: Float[Array, "b f g"]
    """US dollars per million tokens at the best draft length."""
    offset: Float[Array, "b-1 f g"]
    """1/b between an entry and the next is offset + slope x cost."""
    slope: Float[Array, "b-1 f g"]
    fastest: Float[Array, "f g"]
    """Speed at the least batch."""
    most: Float[Array, "f g"]
    """The largest batch that fits in memory."""
    drafts: Float[Array, "b f g"] | None = None
    """Drafted tokens at which the speed is highest."""


def tabulate(scenario: Erdil2025, limits: Limits, s: Spaces) -> Table:
    degrees = grid(scenario, s)
    tensor = degrees[0]
    stages = s.stages[:, None]
    inverse = jnp.exp(-_batches(scenario, limits, stages))
    layout = layout_of(tensor, stages, 1.0 / inverse)
    times: tuple[Array, ...]
    if scenario.draft is None:
        times, drafts = (scenario.target_time(layout, s.partition[:, None] > 0.0).total,), None
    else:
        times, drafts = best_drafts(scenario, s, layout)
    each = scenario.cost_at_speed(layout, jnp.ones(()))
    costs, before = each * times[0], each * times[-1]
    dearer = costs[:-1] - before[1:]
    slope = (inverse[:-1] - inverse[1:]) / jnp.maximum(dearer, 1e-12 * costs[:-1])
    lines = inverse[:-1] - slope * costs[:-1], slope
    most = _most(scenario, tensor, stages)
    return Table(*degrees, inverse[..., 0], costs, *lines, 1.0 / times[0][0], most, drafts)


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
    """The largest batch in memory, whose need is affine in the batch; very low where none fits."""
    batches = (jnp.zeros(()), jnp.ones(()))
    room, less = (scenario.memory_margin(layout_of(tensor, stages, b), EXACT) for b in batches)
    return jnp.clip(room / jnp.maximum(room - less, 1e-300), 1e-20, 1e20)


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
    """What each budget gets at each degree of the table; axes: family, free degree, budget."""

    inverse: Array
    """1 over the least affordable batch."""
    cell: Array
    """The last entry that is too dear."""
    value: Array
    """1 + speed where admissible, else below 1, and the nearer to it the less a limit is missed."""


def levels(scenario: Erdil2025, limits: Limits, s: Spaces, table: Table, budgets: Array) -> Levels:
    cell, inverse = affordable(table, budgets, limits.max_batch)

    def value() -> Array:
        rate = 1e6 * scenario.accelerator.price * table.tensor * s.stages[:, None]
        speed = jnp.where(
            inverse < table.inverse[0][:, None, None],
            rate[..., None] * inverse / budgets,
            table.fastest[..., None],
        )
        share = jnp.minimum(table.most, limits.max_batch)[..., None] * inverse
        if scenario.workload.demand is not None:
            share = jnp.minimum(share, scenario.workload.demand * inverse / speed)
        return jnp.where(share >= 1.0 + FIT, 1.0 + speed, jnp.clip(share, 1e-300, 1.0))

    return Levels(inverse, cell, kept(value, limits.max_batch))


def affordable(table: Table, budgets: Array, positive: Array) -> tuple[Array, Array]:
    """(last entry that is too dear, 1 over the least affordable batch); axes: family, free degree, budget."""

    def last() -> Array:
        found = jnp.zeros((*table.tensor.shape, len(budgets)))
        for j in range(1, len(table.slope)):
            found = jnp.where(table.costs[j][..., None] > budgets, float(j), found)
        return found.astype(jnp.int32)

    def lines() -> tuple[Array, ...]:
        size = table.tensor.size
        places = jnp.arange(size, dtype=jnp.int32).reshape(*table.tensor.shape, 1) + size * cell
        families = jnp.arange(len(table.tensor), dtype=jnp.int32)[:, None, None]
        least = _at(table.inverse, families + len(table.tensor) * (cell + 1))
        return _at(table.offset, places), _at(table.slope, places), least

    # Each behind a condition of its own: searches and gathers take no vector instructions together.
    cell = kept(last, positive)
    offset, slope, least = kept(lines, positive)
    # The next entry is affordable, except beyond the last.
    least = least * jnp.where(table.costs[-1][..., None] > budgets, _FARTHEST, 1.0)
    first = table.inverse[0][:, None, None]
    return cell, jnp.maximum(jnp.minimum(offset + slope * budgets, first), least)


def _at(x: Array, places: Array) -> Array:
    """Entries of the flat array."""
    return x.ravel().at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def candidates(limits: Limits, s: Spaces, table: Table, found: Levels, count: int) -> Array:
    """The `count` best local maxima of every budget.

    Rows of `Candidates`.
    """
    new = table.box[:, 1:] != table.box[:, :-1]
    first = jnp.pad(new, ((0, 0), (1, 0)), constant_values=True)
    last = jnp.pad(new, ((0, 0), (0, 1)), constant_values=True)
    at = _peaks(found.value, first, last, count)
    family = at // table.tensor.shape[1]
    near = jnp.stack([jnp.where(_at(first, at), at, at - 1), at, jnp.where(_at(last, at), at, at + 1)])
    budgets = found.value.shape[2]
    places = near * budgets + jnp.arange(budgets, dtype=near.dtype)
    stages = s.stages[family]
    batch = jnp.clip(-jnp.log(_at(found.inverse, places)), jnp.log(stages), jnp.log(limits.max_batch))
    x = jnp.log(_at(table.tensor, near) * stages)
    gap = x[1:] - x[:-1]
    slopes = jnp.where(gap > 1e-6, (batch[1:] - batch[:-1]) / jnp.maximum(gap, 1e-6), 0.0)
    width = jnp.maximum(jnp.max(gap, axis=0), _NARROWEST)
    box = _at(table.box, at)
    low, high = table.low[family, box], table.high[family, box]
    ends = jnp.log(low * stages), jnp.log(high * stages)
    value = jnp.log(_at(found.value, places[1]))
    fields = (stages, s.partition[family], low, high, *ends, x[1], width, batch[1], *slopes, value)
    if table.drafts is not None:
        drafts = _at(table.drafts, _at(found.cell, places[1]) * table.tensor.size + at)
        fields = (*fields, drafts, 0.0 * drafts)
    return jnp.stack(fields)


def _peaks(value: Array, first: Array, last: Array, count: int) -> Array:
    """Places of the highest local maxima within boxes; axes: peak, budget."""
    rises = value[:, 1:] >= value[:, :-1]
    ends = jnp.ones_like(rises[:, :1])
    after = jnp.concatenate([ends, rises], axis=1) | first[..., None]
    before = jnp.concatenate([~rises, ends], axis=1) | last[..., None]
    # Positive numbers are ordered as their bits are, of which the last hold the place: an argmax takes no
    # vector instructions.
    size = value[..., 0].size
    mask = jnp.int64((1 << (size - 1).bit_length()) - 1)
    bits = jax.lax.bitcast_convert_type(value, jnp.int64) & ~mask
    bits = bits | jnp.arange(size).reshape(*value.shape[:2], 1)
    rank = jnp.where(after & before, bits, 0)
    highest = []
    for _ in range(count):
        highest.append(jnp.max(rank, axis=(0, 1)))
        rank = jnp.where(rank == highest[-1], 0, rank)
    return (jnp.stack(highest) & mask).astype(jnp.int32)
