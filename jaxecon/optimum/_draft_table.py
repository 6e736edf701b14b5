"""The best draft length at every entry of the frontier's table."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..scenarios import Erdil2025
from ..specs import Layout
from ._envelope_types import PARTITIONS, Spaces, kept, layout_of

_GROWTH = 0.25
"""Distance of the lengths tried, over the length, where that is more than one token."""
_FAR = 6
"""The draft length, over the least, of the second evaluation."""
_PLACES = 10
"""Bits of a number that hold a place."""


def best_drafts(scenario: Erdil2025, s: Spaces, layout: Layout) -> tuple[tuple[Array, Array], Array]:
    """((seconds per token at the best draft length, and at that of the entry before), drafted tokens).

    The parts of the target's time are affine in the draft length between kinks, so that two evaluations tell
    them at all lengths.
    """
    lengths = jnp.asarray(_tried(scenario.draft_lengths), jnp.float64)
    # Products take a fraction of the time of quotients.
    share = 1.0 / scenario.tokens_gained(lengths)
    # A number of the question, since the compiler removes conditions on constants.
    positive = scenario.accelerator.hbm_bandwidth
    two_d, shape = s.partition[:, None] > 0.0, (len(layout.batch), *layout.tensor.shape)

    def parts(drafts: Array) -> tuple[Array, ...]:
        time = scenario.target_time(eqx.tree_at(lambda y: y.draft_tokens, layout, drafts), two_d)
        return tuple(jnp.broadcast_to(x, shape) for x in (time.beside_roofs, time.arithmetic, time.memory))

    low, high = lengths[0], lengths[min(_FAR, len(lengths) - 1)]
    first = kept(lambda: parts(low), positive)
    span = jnp.maximum(high - low, 1.0)
    slopes = kept(lambda: tuple((y - x) / span for x, y in zip(first, parts(high), strict=True)), positive)
    draft = kept(lambda: _draft_time(scenario, layout), positive)

    def time_at(drafts: Array, share: Array) -> Array:
        rest, arithmetic, memory = (x + (drafts - low) * y for x, y in zip(first, slopes, strict=True))
        return (rest + jnp.maximum(arithmetic, memory) + drafts * draft) * share

    # Positive numbers are ordered as their bits are, of which the last hold the place: an argmin takes no
    # vector instructions.
    last = jnp.int64(2**_PLACES - 1)

    def bits(k: int) -> Array:
        return (jax.lax.bitcast_convert_type(time_at(lengths[k], share[k]), jnp.int64) & ~last) | k

    best = kept(lambda: functools.reduce(jnp.minimum, map(bits, range(len(lengths)))), positive)
    place = (best & last).astype(jnp.int32)
    before = jnp.concatenate([place[:1], place[:-1]])
    time = jax.lax.bitcast_convert_type(best & ~last, jnp.float64)
    return (time, time_at(lengths[before], share[before])), lengths[place]


def _tried(lengths: tuple[int, ...]) -> list[int]:
    """Ever fewer lengths as they grow."""
    few = [0]
    while few[-1] < len(lengths) - 1:
        few.append(min(few[-1] + max(1, round(_GROWTH * few[-1])), len(lengths) - 1))
    return [lengths[i] for i in few]


def _draft_time(scenario: Erdil2025, layout: Layout) -> Array:
    """Seconds of a drafted token, which do not depend on the partition of the target: see `spaces`."""
    half = layout.tensor.shape[0] // len(PARTITIONS)
    one = layout_of(layout.tensor[:half], layout.pipeline[:half], layout.batch[:, :half])
    time = jnp.broadcast_to(scenario.draft_time(one).total, (len(layout.batch), *one.tensor.shape))
    return jnp.concatenate([time] * len(PARTITIONS), axis=1)
