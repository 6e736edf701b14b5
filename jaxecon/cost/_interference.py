"""Prompts that are ingested between decode steps of the same accelerators."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import Accelerator, Layout, Model, Workload

from ._serving_network import message_times
from ._serving_step import Engine, PassWork, group_times, pass_seconds, pass_work


class TokenWork(eqx.Module):
    """A decode step and a chunk of another request's prompt, as work that knows no efficiency."""

    decode: PassWork
    chunk: PassWork
    passes: Array
    """Chunks of one prompt."""
    output: Array
    """Tokens generated per request."""


def token_work(
    model: Model,
    accelerator: Accelerator,
    workload: Workload,
    layout: Layout,
    chunk_tokens: Array,
    imbalance: Array,
    arithmetic: Arithmetic,
    *,
    shared: Array | None = None,
) -> TokenWork:
    """The work behind one token: all sequences decode; one prompt at a time on every data rank, in
    equal chunks of at most `chunk_tokens` of what no earlier request has left in the cache.

    `shared` tokens are the same in all sequences and read once a step; None for none.
    """
    one = jnp.ones_like(layout.batch)
    prompt = workload.prompt_tokens
    cached = prompt * workload.hit_rate
    new = jnp.maximum(prompt - cached, 1.0) * one
    passes = jnp.maximum(arithmetic.ceil(new / chunk_tokens), 1.0)
    tokens = new / passes
    queries = layout.draft_tokens + one
    decode = pass_work(
        model, accelerator, workload.context, queries, layout, imbalance, arithmetic, shared=shared
    )
    alone = eqx.tree_at(lambda x: x.batch, layout, layout.pipeline * layout.data)
    before = cached + 0.5 * (new - tokens)
    chunk = pass_work(model, accelerator, before, tokens, alone, imbalance, arithmetic, prompt=True)
    return TokenWork(decode, chunk, passes, workload.output * one)


def prompt_delay(
    work: TokenWork, accelerator: Accelerator, engine: Engine, step_overhead: Array, arithmetic: Arithmetic
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
    decode, chunk = work.decode, work.chunk
    others = jnp.maximum(decode.sequences - 1.0 / decode.data, 0.0)
    alone = pass_seconds(chunk, accelerator, engine, arithmetic).total + step_overhead
    joined = _growth(decode, chunk, accelerator, engine, arithmetic)
    mixed = profile.prompt_mixing * joined + (1.0 - profile.prompt_mixing) * alone
    return profile.prompt_exposure * others * work.passes * mixed / work.output


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
