"""Prompt ingestion: time to first token, its price, and where it happens."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import EXACT, Arithmetic, safe_divide
from ..cost._serving_memory import activation_bytes
from ..specs import Layout, Workload

from ._serving import Serving


_IN_FLIGHT = 8192.0
"""Tokens of prompts in one pass where nothing else is said, an engine's usual limit."""


class Prices(eqx.Module):
    """US dollars per million tokens."""

    input: Array
    """Of a prompt, whether or not its cache was left by an earlier request."""
    output: Array
    blended: Array
    """Of a request's input and output tokens together."""


class Pools(eqx.Module):
    """Prompts on one pool of replicas and decoding on another."""

    ratio: Array
    """Prefill replicas for each decode replica, so that neither waits."""
    time_to_first_token: Array
    """Seconds, with the move of the cache to the decode pool."""
    transfer: Array
    """Seconds of that move."""
    per_decode_accelerator: Array
    """Output tokens/s over the accelerators of the decode pool alone."""
    per_prefill_accelerator: Array
    """Input tokens/s over the accelerators of the prefill pool alone."""
    per_accelerator: Array
    """Output tokens/s over the accelerators of both pools."""
    prices: Prices


def pools(scenario: Serving, decode: Layout, prefill: Layout, arithmetic: Arithmetic = EXACT) -> Pools:
    """What two pools of replicas with layouts of their own give; degrees broadcast.

    A decode replica of batch b at speed s starts b s/output requests a second; a prefill replica
    finishes one every T_prefill seconds. The cache of a prompt moves from all ranks that hold a
    part of it at once, over the scale-out links.
    """
    work = scenario.workload
    speed = decode_speed(scenario, decode, arithmetic)
    seconds = scenario.prompt_time(prefill, arithmetic)
    ratio = decode.batch * speed / work.output * seconds
    both = decode.accelerators + ratio * prefill.accelerators
    holders = prefill.tensor * prefill.pipeline
    network = scenario.accelerator.network
    rate = network.scale_out_bandwidth * network.scale_out_efficiency
    transfer = scenario.model.kv_cache_bytes(work.prompt_tokens) / (holders * rate)
    return Pools(
        ratio,
        scenario.time_to_first_token(prefill, arithmetic) + transfer,
        transfer,
        decode.batch * speed / decode.accelerators,
        work.prompt_tokens / (seconds * prefill.accelerators),
        decode.batch * speed / both,
        prices(scenario, decode, prefill, arithmetic),
    )


def prices(
    scenario: Serving, decode: Layout, prefill: Layout | None = None, arithmetic: Arithmetic = EXACT
) -> Prices:
    """Input tokens at the cost of their ingestion on `prefill` (the same replica by default), output
    tokens at that of decoding alone."""
    where = decode if prefill is None else prefill
    seconds = scenario.prompt_time(where, arithmetic)
    return prices_at(scenario, decode, where, seconds, decode_speed(scenario, decode, arithmetic))


def prices_at(scenario: Serving, decode: Layout, prefill: Layout, seconds: Array, speed: Array) -> Prices:
    """`prices` at a known time of a prompt on `prefill` and speed of `decode` without prompts."""
    work, price = scenario.workload, scenario.accelerator.price
    tokens = work.prompt_tokens
    entered = 1e6 * prefill.accelerators * price * seconds / tokens
    made = scenario.cost_at_speed(decode, speed)
    blended = (tokens * entered + work.output * made) / (tokens + work.output)
    return Prices(entered, made, blended)


def prompt_margin(scenario: Serving, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
    """Free bytes per accelerator of a replica that only ingests prompts, one on every data rank.

    Whole prompts are cached; `_IN_FLIGHT` tokens at most are worked on at once.
    """
    batch = scenario.least_batch(layout) + 0.0 * layout.tensor
    layout = eqx.tree_at(lambda x: (x.batch, x.draft_tokens), layout, (batch, 0.0 * batch))
    tokens = scenario.workload.prompt_tokens
    limit = jnp.asarray(_IN_FLIGHT) if scenario.chunk_tokens is None else scenario.chunk_tokens
    chunk = arithmetic.minimum(tokens, limit)
    whole = eqx.tree_at(lambda s: (s.workload.context, s.workload.output), scenario, (tokens, jnp.ones(())))
    ledger = whole.ledger(layout, arithmetic)
    once = activation_bytes(scenario.model, jnp.ones(()), jnp.zeros(()), layout, arithmetic)
    working = activation_bytes(scenario.model, jnp.ones(()), chunk - 1.0, layout, arithmetic)
    buffers = ledger.buffers * (chunk - 1.0)
    return ledger.margin - (working - once) - buffers


def decode_speed(scenario: Serving, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
    """Tokens/s of one request while no prompts are ingested."""
    return scenario.tokens_per_step(layout) / scenario.decode_time(layout, arithmetic).total


def request_time(workload: Workload, first: Array, speed: Array) -> Array:
    """Seconds of a whole request: the first token, and output - 1 more at `speed`."""
    return first + (workload.output - 1.0) / speed


def time_per_output_token(workload: Workload, first: Array, whole: Array) -> Array:
    """(whole request - first token)/(output - 1) in seconds; 0 where there is one token only."""
    return safe_divide(whole - first, workload.output - 1.0)
