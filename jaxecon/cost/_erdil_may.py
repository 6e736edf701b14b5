"""Step time by the paper's equations as revised in May 2025 (revision 2025-05).

Feed-forward and attention have tensor degrees of their own, matrix products move bytes by
the better split, expert layers pay two all-to-all, and peaks are capped by utilisation.
"""

import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic, one_minus_power, safe_divide, safe_sqrt
from ..specs import Accelerator
from ._collectives import collective_time
from ._erdil_model import ErdilModel
from ._step import StepTime


def _product_bytes(model: ErdilModel, m: Array, k: Array, n: Array, p: Array) -> Array:
    """R(m, k, n; p) = m k w + p1 k n a + (p/p1) m n a, p1 = min(max(sqrt(m p/k), 1), p).

    Bytes moved by an (m, k) weight times n columns, split over p accelerators.
    """
    w, a = model.weight_bytes, model.activation_bytes
    p1 = jnp.minimum(jnp.maximum(safe_sqrt(m * p / k), 1.0), p)
    return m * k * w + p1 * k * n * a + (p / p1) * m * n * a


def _layer_bytes(model: ErdilModel, tokens: Array, p_ff: Array, p_at: Array) -> tuple[Array, Array]:
    """(feed-forward, attention) bytes of one layer for one microbatch of `tokens` tokens."""
    d, f, e, h = model.d_model, model.d_ff, model.d_head, model.num_query_heads
    s = model.sparsity
    used = one_minus_power(1.0 - 1.0 / s, tokens)
    feed = used * model.n_experts * sum(model.ff_matrices)
    feed = feed * _product_bytes(model, d, f, tokens / s, p_ff)
    qkv = e * (h + model.kv_width)
    if model.kv_rank is None or model.query_rank is None:
        attention = _product_bytes(model, qkv, d, tokens, p_at)
    else:
        rank = model.kv_rank + model.query_rank
        attention = _product_bytes(model, rank, d, tokens, p_at)
        attention = attention + _product_bytes(model, qkv, rank, tokens, p_at)
    return feed, attention + _product_bytes(model, d, e * h, tokens, p_at)


def step_time(
    model: ErdilModel,
    accelerator: Accelerator,
    context: Array,
    queries: Array,
    accelerators: Array,
    batch: Array,
    pipeline: Array,
    two_d: Array,
    scale_down: Array,
    arithmetic: Arithmetic,
    nodes: Array | None = None,
) -> StepTime:
    """Seconds of one step of batch x queries tokens; every argument broadcasts.

    With M = N/P and u = b/P: expert degree X = min(M, E), but 1 where u < 2 S; feed-forward
    degree max(1, M/X); attention degree M/s for a scale-down s >= 1. `nodes` states
    ceil(M/node size) where it is known.
    """
    tensor, microbatch = accelerators / pipeline, batch / pipeline
    tokens = microbatch * queries
    expert = jnp.where(microbatch < 2.0 * model.sparsity, 1.0, jnp.minimum(tensor, model.n_experts))
    p_ff = jnp.maximum(1.0, tensor / expert)
    p_at = tensor / scale_down
    feed, attention = _layer_bytes(model, tokens, p_ff, p_at)
    traffic = model.layers * (feed + scale_down * attention)
    traffic = traffic + model.kv_cache_bytes(context) * microbatch
    traffic = traffic + model.weight_bytes * model.vocab_size * model.d_model
    rate = accelerator.hbm_bandwidth * accelerator.memory_efficiency
    memory = pipeline * traffic / (accelerators * rate)
    flop_time = _flop_time(model, accelerator, context, batch * queries, accelerators, scale_down)
    latency, bandwidth = _communication(
        model, accelerator, tensor, tokens, pipeline, expert, p_ff, p_at, two_d, arithmetic, nodes
    )
    launch = 4.0 * model.layers * accelerator.kernel_launch_latency + 0.0 * memory
    total = launch + latency + bandwidth + arithmetic.maximum(memory, flop_time)
    return StepTime(flop_time, memory, bandwidth, latency, launch, total)


def _flop_time(
    model: ErdilModel,
    accelerator: Accelerator,
    context: Array,
    tokens: Array,
    accelerators: Array,
    scale_down: Array,
) -> Array:
    """[F_ff + F_kv + s (F - F_ff - F_kv)] / (N peak), seconds."""
    total = model.flop(context, tokens)
    feed = 2.0 * tokens * model.layers * model.feed_forward_parameters / model.sparsity
    cache = model.attention_flop(context, tokens)
    peak = accelerator.peak.at(model.compute_bits) * accelerator.arithmetic_efficiency
    return (feed + cache + scale_down * (total - feed - cache)) / (accelerators * peak)


def _communication(
    model: ErdilModel,
    accelerator: Accelerator,
    tensor: Array,
    tokens: Array,
    pipeline: Array,
    expert: Array,
    p_ff: Array,
    p_at: Array,
    two_d: Array,
    arithmetic: Arithmetic,
    known: Array | None,
) -> tuple[Array, Array]:
    """(latency, bandwidth) seconds of all-reduces, expert all-to-all and pipeline hand-over."""
    network, layers = accelerator.network, model.layers
    a, d, f = model.activation_bytes, model.d_model, model.d_ff
    m0, m1 = model.ff_matrices
    active = model.n_active_experts
    degree = jnp.stack(jnp.broadcast_arrays(p_at, p_at, p_ff, p_ff), axis=-1)
    flat = two_d[..., None]
    root = safe_sqrt(degree)
    ranks = jnp.where(flat, root, degree)
    nodes = arithmetic.ceil(degree / network.domain_size)
    if known is not None:
        nodes = jnp.where(degree == tensor[..., None], known[..., None], nodes)
    nodes = jnp.where(flat, safe_sqrt(nodes), nodes)
    qkv = model.d_head * (model.num_query_heads + model.kv_width)
    # Ring "parallel" factor: the square root of the degree in 2-D, 1 in 1-D.
    attention_words = jnp.stack([d, qkv]) / jnp.where(flat, ranks[..., :2], 1.0)
    share = safe_divide(ranks[..., 2:], tensor[..., None])
    feed_words = jnp.stack([active * m1 * d, active * m0 * f]) * share
    words = jnp.concatenate([attention_words, feed_words], axis=-1)
    present = jnp.where(flat, jnp.ones(4), jnp.asarray([1.0, 0.0, 1.0, 0.0]))
    sizes = words * (tokens * a)[..., None]
    part = collective_time(network, ranks, nodes, sizes, arithmetic, overlap_links=True)
    latency = layers * jnp.sum(part[0] * present, axis=-1)
    bandwidth = layers * jnp.sum(part[1] * present, axis=-1)
    group = jnp.minimum(active, expert)
    exchange = collective_time(
        network,
        group,
        arithmetic.ceil(group / network.domain_size),
        d * tokens * group * a / tensor,
        arithmetic,
        all_reduce=False,
        overlap_links=True,
    )
    routed = jnp.where(model.n_experts > 1.0, 2.0 * layers, 0.0)
    hand = collective_time(
        network,
        jnp.full_like(tensor, 2.0),
        jnp.full_like(tensor, 2.0),
        d * tokens * a / tensor,
        arithmetic,
        all_reduce=False,
        overlap_links=True,
    )
    latency = latency + routed * exchange[0] + (pipeline - 1.0) * hand[0]
    return latency, bandwidth + routed * exchange[1] + (pipeline - 1.0) * hand[1]
