"""The least batch that a budget affords at given accelerators, with the best draft length near a guess.

At given degrees a step takes max(arithmetic, memory) and what roofs have no share in; with b sequences of q
tokens each, every one of these parts is alpha + beta b + mu b q between the kinks of the paper's equations.
Three evaluations give the coefficients of the target, two those of the draft; then the batch at which cost
meets the budget is a quotient for every draft length, and only beyond a kink need one look again.

Cost per token over the budget is r u T/E, with u = 1/b, E tokens per step and r = 1e6 N price/budget, so that
it is affine in u as well.
"""

import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..scenarios import Erdil2025
from ._envelope_types import layout_of

Line = tuple[Array, Array]
"""(alpha, beta) of alpha + beta b."""

_STEP = 1e-5
_REACH = 2
"""Draft lengths tried below and above the guess."""


class Place(eqx.Module):
    """Degrees, all of one shape."""

    tensor: Array
    stages: Array
    two_d: Array
    structure: Array | None
    """`Erdil2025.draft_structure`; None without a draft."""


class Look(eqx.Module):
    """A guess, and the parts of the step's time about it: beyond the roofs, arithmetic, memory."""

    inverse: Array
    """1/b."""
    drafts: Array | None
    other: Array | None
    """A draft length beside it."""
    target: tuple[Array, ...]
    """Seconds here, at a larger batch and, with a draft, at the other length (a further first axis)."""
    draft: tuple[Array, ...]
    """Seconds of a drafted token here and at a larger batch."""


def looked(scenario: Erdil2025, at: Place, inverse: Array, drafts: Array | None, other: Array | None) -> Look:
    """The parts about a guess; with a draft also at another draft length."""
    batches = jnp.stack([inverse, inverse * (1.0 - _STEP)])
    if drafts is None or other is None:
        target = _parts(scenario, at, 1.0 / batches, None, None)
        return Look(inverse, None, None, target, ())
    three = jnp.stack([inverse, inverse * (1.0 - _STEP), inverse])
    lengths = jnp.stack([drafts, drafts, other])
    target = _parts(scenario, at, 1.0 / three, lengths, None)
    return Look(inverse, drafts, other, target, _parts(scenario, at, 1.0 / batches, None, at.structure))


def _parts(
    scenario: Erdil2025, at: Place, batch: Array, drafts: Array | None, structure: Array | None
) -> tuple[Array, ...]:
    layout = layout_of(at.tensor, at.stages, batch, 0.0 if drafts is None else drafts)
    if structure is None:
        time = scenario.target_time(layout, at.two_d)
    else:
        time = scenario.draft_time(layout, structure)
    parts = (time.beside_roofs, time.arithmetic, time.memory)
    return tuple(jnp.broadcast_to(x, batch.shape) for x in parts)


def best(
    scenario: Erdil2025, look: Look, rate: Array, least: Array, most: Array
) -> tuple[Array, Array | None, Array]:
    """(1/b between its bounds, drafted tokens, cost over the budget) by the parts' lines."""
    target = [_line(x, look.inverse) for x in look.target]
    if look.drafts is None:
        sums = _roofs(target)
        root = jnp.clip(_root(sums, 1.0 / rate), least, most)
        return root, None, rate * _time(sums, root)
    draft = [_line(x, look.inverse) for x in look.draft]
    queries = scenario.verified_tokens(look.drafts)
    more = scenario.verified_tokens(look.other) - queries
    each = look.inverse / jnp.where(more == 0.0, 1.0, more)
    per_query = [(x[2] - x[0]) * each for x in look.target]

    def sums_at(drafts: Array) -> list[Line]:
        extra = scenario.verified_tokens(drafts) - queries
        verify = [(a, b + mu * extra) for (a, b), mu in zip(target, per_query, strict=True)]
        drawn = [(drafts * a, drafts * b) for a, b in draft]
        return [(x[0] + y[0], x[1] + y[1]) for x in _roofs(verify) for y in _roofs(drawn)]

    lengths = scenario.draft_lengths
    every = scenario.tokens_gained(jnp.asarray(lengths, jnp.float64))

    def gained(drafts: Array) -> Array:
        places = (drafts - lengths[0]).astype(jnp.int32)
        return every.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)

    tried = [
        jnp.clip(jnp.round(look.drafts) + step, lengths[0], lengths[-1])
        for step in range(-_REACH, _REACH + 1)
    ]
    each = 1.0 / rate
    roots = [jnp.clip(_root(sums_at(x), gained(x) * each), least, most) for x in tried]
    root = functools.reduce(jnp.maximum, roots)
    drafts = tried[0]
    for other, value in zip(tried[1:], roots[1:], strict=True):
        drafts = jnp.where(value == root, other, drafts)
    return root, drafts, rate * _time(sums_at(drafts), root) / gained(drafts)


def _roofs(parts: list[Line]) -> list[Line]:
    """The whole time where arithmetic binds, and where memory does."""
    (a, b), *rooflines = parts
    return [(a + x, b + y) for x, y in rooflines]


def _line(part: Array, inverse: Array) -> Line:
    """A part of the time along the batch."""
    rise = (part[1] - part[0]) * (1.0 / _STEP - 1.0)
    return part[0] - rise, rise * inverse


def _root(sums: list[Line], bound: Array) -> Array:
    """The greatest u at which u T = A u + B is within a bound for every choice of roofs."""
    quotients = [(bound - offset, jnp.maximum(slope, 1e-300)) for slope, offset in sums]
    above, below = functools.reduce(_lesser, quotients)
    return above / below


def _lesser(x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
    """Of two quotients with positive divisors, without dividing."""
    first = x[0] * y[1] <= y[0] * x[1]
    return jnp.where(first, x[0], y[0]), jnp.where(first, x[1], y[1])


def _time(sums: list[Line], inverse: Array) -> Array:
    """u T."""
    return functools.reduce(jnp.maximum, [slope * inverse + offset for slope, offset in sums])
