"""Step time and memory ledger of a served model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import (
    Accelerator,
    DenseFeedForward,
    GroupedQueryAttention,
    LayerGroup,
    Layout,
    MixtureOfExperts,
    Model,
)

from ._collectives import collective_time
from ._serving_layer import (
    Share,
    Work,
    attention_core,
    cache_share,
    feed_forward,
    head,
    projections,
)
from ._step import StepTime


class Ledger(eqx.Module):
    """Bytes on the fullest accelerator, by use."""

    weights: Array
    kv_cache: Array
    draft: Array
    activations: Array
    reserve: Array
    capacity: Array

    @property
    def used(self) -> Array:
        """Bytes of all uses together."""
        return self.weights + self.kv_cache + self.draft + self.activations + self.reserve

    @property
    def margin(self) -> Array:
        """capacity - used; negative where it does not fit."""
        return self.capacity - self.used


def pass_time(
    model: Model,
    accelerator: Accelerator,
    context: Array,
    queries: Array,
    layout: Layout,
    kernels: Array,
    arithmetic: Arithmetic,
) -> StepTime:
    """Seconds of one forward pass of `queries` tokens of each of `layout.batch` sequences.

    Each pipeline stage works on its own microbatch of batch/P sequences, and a token passes all
    stages: the time is that of all L layers on `tensor` accelerators with one microbatch, plus
    P - 1 hand-overs. Every operation group takes the larger of its memory and arithmetic time.
    """
    share = Share(layout.tensor, layout.batch / layout.pipeline, queries, context)
    works, counts = [head(model, share)], [jnp.ones_like(share.tokens)]
    for group in model.groups:
        parts = (
            attention_core(model, group, share, arithmetic),
            projections(model, group, share),
            feed_forward(model, group, share),
        )
        works += parts
        counts += [group.count + 0.0 * share.tokens] * len(parts)
    count = jnp.stack(jnp.broadcast_arrays(*counts), axis=-1)
    flop_times, memory_times = _times(works, model, accelerator)
    groups = jnp.stack([flop_times, memory_times], axis=-1)
    busy = jnp.sum(count * arithmetic.max(groups), axis=-1)
    latency, bandwidth = _communication(model, accelerator, share, layout, arithmetic)
    launch = kernels * model.layers * accelerator.kernel_launch_latency + 0.0 * share.tokens
    return StepTime(
        jnp.sum(count * flop_times, axis=-1),
        jnp.sum(count * memory_times, axis=-1),
        bandwidth,
        latency,
        launch,
        launch + latency + bandwidth + busy,
    )


def _times(works: list[Work], model: Model, accelerator: Accelerator) -> tuple[Array, Array]:
    peak = accelerator.peak.at(model.precision.compute_bits) * accelerator.arithmetic_efficiency
    rate = accelerator.hbm_bandwidth * accelerator.memory_efficiency
    flop = jnp.stack(jnp.broadcast_arrays(*(w.flop for w in works)), axis=-1)
    traffic = jnp.stack(jnp.broadcast_arrays(*(w.bytes for w in works)), axis=-1)
    return flop / peak, traffic / rate


def _communication(
    model: Model, accelerator: Accelerator, share: Share, layout: Layout, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """(latency, bandwidth): an all-reduce of d words a token after each half of each layer,
    and P - 1 hand-overs of the residual stream, each rank sending its part."""
    network, a = accelerator.network, model.precision.activation
    size = model.width * share.tokens * a
    nodes = layout.domains(network.domain_size, arithmetic.ceil)
    latency, bandwidth = collective_time(network, layout.tensor, nodes, size, arithmetic)
    halves = sum(
        (g.count * ((g.mixer is not None) + (g.feed_forward is not None)) for g in model.groups),
        start=jnp.zeros_like(model.width),
    )
    pair = jnp.full_like(layout.tensor, 2.0)
    across = collective_time(network, pair, pair, size / layout.tensor, arithmetic, all_reduce=False)
    hops = layout.pipeline - 1.0
    return halves * latency + hops * across[0], halves * bandwidth + hops * across[1]


def weight_bytes(model: Model, layout: Layout, arithmetic: Arithmetic) -> Array:
    """Bytes of weights on the fullest accelerator.

    Matrices divide by tensor x pipeline; norms and biases are whole on every rank. With one
    stage it holds both embedding and head, else the fullest stage holds one of them.
    """
    precision, ranks = model.precision, layout.tensor
    layers = jnp.zeros_like(ranks)
    for group in model.groups:
        matrices = vectors = jnp.zeros_like(ranks)
        if group.mixer is not None:
            matrices = matrices + group.mixer.matrix_parameters(model.width) * precision.weight
        feed = group.feed_forward
        if isinstance(feed, MixtureOfExperts):
            experts = feed.experts * feed.expert_matrix_parameters(model.width)
            common = feed.common_matrix_parameters(model.width)
            matrices = matrices + experts * precision.expert + common * precision.weight
        elif isinstance(feed, DenseFeedForward):
            matrices = matrices + feed.matrix_parameters(model.width) * precision.weight
        total = group.total_parameters(model.width) / group.count
        plain = _matrix_count(model, group)
        vectors = (total - plain) * precision.embedding
        layers = layers + group.count * (matrices / ranks + vectors)
    one_table = model.vocabulary * model.width * precision.embedding / ranks
    tables = 1.0 if model.tied else arithmetic.maximum(1.0 + 0.0 * ranks, 3.0 - layout.pipeline)
    return layers / layout.pipeline + tables * one_table + model.other_parameters * precision.embedding


def _matrix_count(model: Model, group: LayerGroup) -> Array:
    total = jnp.zeros_like(model.width)
    for half in (group.mixer, group.feed_forward):
        if half is not None:
            total = total + half.matrix_parameters(model.width)
    return total


def cache_bytes(model: Model, context: Array, layout: Layout, arithmetic: Arithmetic) -> Array:
    """Bytes of KV cache and recurrent state on one accelerator, for the whole batch."""
    total = jnp.zeros_like(layout.batch)
    for group in model.groups:
        if group.mixer is None:
            continue
        part = group.mixer.cache_elements(context) * model.precision.kv
        part = part * cache_share(group, layout.tensor, arithmetic)
        state = group.mixer.state_elements() * model.precision.state / layout.tensor
        total = total + group.count * (part + state)
    return total * layout.batch / layout.pipeline


def activation_bytes(model: Model, queries: Array, layout: Layout) -> Array:
    """Bytes of live activations on one accelerator; grows with the tokens in flight.

    Two copies of the residual stream, the widest hidden layer in its shards, and float32
    logits of the vocabulary's shard.
    """
    tokens = layout.batch / layout.pipeline * queries
    widest = jnp.zeros_like(model.width)
    for group in model.groups:
        feed, mixer = group.feed_forward, group.mixer
        if isinstance(feed, DenseFeedForward):
            widest = jnp.maximum(widest, 2.0 * feed.hidden)
        elif isinstance(feed, MixtureOfExperts):
            widest = jnp.maximum(widest, 2.0 * (feed.active * feed.hidden + feed.shared_hidden))
        if isinstance(mixer, GroupedQueryAttention):
            heads = mixer.heads + 2.0 * mixer.kv_heads
            widest = jnp.maximum(widest, heads * mixer.head_dim)
    words = (2.0 * model.width + widest / layout.tensor) * model.precision.activation
    return tokens * (words + 4.0 * model.vocabulary / layout.tensor)
