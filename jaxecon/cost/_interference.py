"""Prompts that are ingested between decode steps of the same accelerators."""

import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import Accelerator

from ._serving_network import message_times
from ._serving_step import Engine, PassWork, group_times, pass_seconds

CHUNK = 8192.0
"""Prompt tokens of one pass, at most: the token budget that engines ship with."""


def chunks(prompt: Array) -> tuple[Array, Array, Array]:
    """(passes, tokens of each, tokens before one on average) of a prompt in equal chunks."""
    passes = jnp.maximum(jnp.ceil(prompt / CHUNK), 1.0)
    tokens = prompt / passes
    return passes, tokens, 0.5 * (prompt - tokens)


def prompt_delay(
    decode: PassWork,
    chunk: PassWork,
    passes: Array,
    output: Array,
    accelerator: Accelerator,
    engine: Engine,
    step_overhead: Array,
    arithmetic: Arithmetic,
) -> Array:
    """Seconds that other requests' prompts add to each token of a request being decoded.

    In a steady closed loop of b requests on D data ranks, each of the other (b - 1)/D of a rank
    brings one prompt while a request is decoded for `output` steps. A chunk takes a pass of its own,
    or joins a decode pass and costs what that grows by; `prompt_mixing` is the share of the latter,
    `prompt_exposure` the share of prompts that falls between tokens and not before the first.
    """
    profile = engine.profile
    if profile is None:
        raise ValueError("the delay by prompts needs an engine's profile")
    others = jnp.maximum(decode.sequences - 1.0 / decode.data, 0.0)
    alone = pass_seconds(chunk, accelerator, engine, arithmetic).total + step_overhead
    joined = _growth(decode, chunk, accelerator, engine, arithmetic)
    mixed = profile.prompt_mixing * joined + (1.0 - profile.prompt_mixing) * alone
    return profile.prompt_exposure * others * passes * mixed / output


def _growth(
    decode: PassWork, chunk: PassWork, accelerator: Accelerator, engine: Engine, arithmetic: Arithmetic
) -> Array:
    """By how much a decode pass grows where a chunk joins it.

    Matrices are read once for both, so that memory times are the larger and arithmetic times the
    sum; attention, residual stream and messages add up, latencies and launches do not.
    """
    f, m = group_times(decode, accelerator)
    g, n = group_times(chunk, accelerator)
    attention = jnp.asarray([kind == "attention" for kind in decode.kinds])
    both = arithmetic.max(jnp.stack([f + g, arithmetic.maximum(m, n)], axis=-1))
    grown = both - arithmetic.max(jnp.stack([f, m], axis=-1))
    own = arithmetic.max(jnp.stack([g, n], axis=-1))
    busy = jnp.sum(decode.count * jnp.where(attention, own, grown), axis=-1)
    _, bandwidth = message_times(chunk.messages, accelerator.network, arithmetic)
    if (profile := engine.profile) is not None:
        rate = accelerator.memory_efficiency * accelerator.efficiencies.feed_forward_memory
        busy = busy + profile.residual_passes * chunk.residual / rate
    return busy + bandwidth
