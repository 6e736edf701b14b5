"""Step time by the paper's equations as first written (revision 2024-09).

Source: Erdil 2025 (arXiv:2506.04645), section 3.5. Structures (1-D or 2-D tensor
parallelism, pipeline degree) are array axes, so that one graph serves them all.
"""

import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic, one_minus_power, safe_sqrt
from ..specs import Accelerator
from ._collectives import collective_time
from ._erdil_model import ErdilModel
from ._step import StepTime


def memory_bytes(
    model: ErdilModel, context: Array, sequences: Array, tokens: Array, p1: Array, p2: Array
) -> Array:
    """Bytes read and written for one microbatch, over all accelerators of a stage.

    With u sequences and t tokens, split over p1 and p2 along the two matrix sides:
    kv + L (ff + qkv + proj) + w V d, where kv = (KV bytes per token) x u,
    ff = used E (m0 + m1) (w d f + p2 a d t/S + p1 a f t/S), used = 1 - (1 - 1/S)^t,
    qkv = w d e (h + k2) + p2 a d t + p1 e (h + k2) t and proj = w e h d + a (p2 d + p1 e h) t.
    """
    w, a = model.weight_bytes, model.activation_bytes
    d, f, e, h = model.d_model, model.d_ff, model.d_head, model.num_query_heads
    s, k2 = model.sparsity, model.kv_width
    used = one_minus_power(1.0 - 1.0 / s, tokens)
    ff = w * d * f + (p2 * d + p1 * f) * a * tokens / s
    ff = used * model.n_experts * sum(model.ff_matrices) * ff
    qkv = w * d * e * (h + k2) + p2 * a * d * tokens + p1 * e * (h + k2) * tokens
    proj = w * e * h * d + a * (p2 * d + p1 * e * h) * tokens
    kv = model.kv_cache_bytes(context) * sequences
    return kv + model.layers * (ff + qkv + proj) + w * model.vocab_size * d


def step_time(
    model: ErdilModel,
    accelerator: Accelerator,
    context: Array,
    queries: Array,
    accelerators: Array,
    batch: Array,
    pipeline: Array,
    two_d: Array,
    arithmetic: Arithmetic,
    nodes: Array | None = None,
) -> StepTime:
    """Seconds of one step of batch x queries tokens; every argument broadcasts.

    T = launch + network latency + network bandwidth + max(memory, arithmetic), with pipeline
    degree P = `pipeline`, tensor degree M = N/P and microbatch b/P; P microbatches in flight.
    `nodes` states ceil(M/node size) where it is known.
    """
    a, d = model.activation_bytes, model.d_model
    tensor = accelerators / pipeline
    microbatch = batch / pipeline
    tokens = microbatch * queries
    root = safe_sqrt(tensor)
    if nodes is None:
        nodes = arithmetic.ceil(tensor / accelerator.network.domain_size)
    ranks = jnp.where(two_d, root, tensor)
    ring_nodes = jnp.where(two_d, safe_sqrt(nodes), nodes)
    latency, bandwidth = _all_reduces(model, accelerator, ranks, ring_nodes, tokens, two_d, arithmetic)
    hand = collective_time(
        accelerator.network,
        jnp.full_like(tensor, 2.0),
        jnp.full_like(tensor, 2.0),
        d * tokens * a / tensor,
        arithmetic,
        all_reduce=False,
    )
    latency = latency + (pipeline - 1.0) * hand[0]
    bandwidth = bandwidth + (pipeline - 1.0) * hand[1]
    p1, p2 = jnp.where(two_d, root, tensor), jnp.where(two_d, root, 1.0)
    traffic = memory_bytes(model, context, microbatch, tokens, p1, p2)
    memory = pipeline * traffic / (accelerators * accelerator.hbm_bandwidth)
    peak = accelerator.peak.at(model.compute_bits)
    flop_time = model.flop(context, batch * queries) / (accelerators * peak)
    launch = 4.0 * model.layers * accelerator.kernel_launch_latency + 0.0 * memory
    total = launch + latency + bandwidth + arithmetic.maximum(memory, flop_time)
    return StepTime(flop_time, memory, bandwidth, latency, launch, total)


def _all_reduces(
    model: ErdilModel,
    accelerator: Accelerator,
    ranks: Array,
    nodes: Array,
    tokens: Array,
    two_d: Array,
    arithmetic: Arithmetic,
) -> tuple[Array, Array]:
    """Latency and bandwidth of all layers' all-reduces.

    Words per layer and token, 2-D: e (h + k2)/r, d/r, A m0 f/r, A m1 d/r; 1-D: d, A m1 d.
    """
    m0, m1 = model.ff_matrices
    active, d = model.n_active_experts, model.d_model
    qkv = model.d_head * (model.num_query_heads + model.kv_width)
    share = jnp.where(two_d, 1.0 / ranks, 1.0)
    moved = tokens * model.activation_bytes
    latency: Array | float = 0.0
    bandwidth: Array | float = 0.0
    always, in_two_d = (d, active * m1 * d), (qkv, active * m0 * model.d_ff)
    for words, present in [(x, True) for x in always] + [(x, two_d) for x in in_two_d]:
        one = collective_time(accelerator.network, ranks, nodes, words * share * moved, arithmetic)
        latency = latency + jnp.where(present, one[0], 0.0)
        bandwidth = bandwidth + jnp.where(present, one[1], 0.0)
    return model.layers * latency, model.layers * bandwidth
