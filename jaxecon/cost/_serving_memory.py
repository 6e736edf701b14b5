"""Memory ledger of a served model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import (
    DenseFeedForward,
    GroupedQueryAttention,
    Layout,
    MixtureOfExperts,
    Model,
)

from ._serving_layer import cache_share, groups_reached


class Ledger(eqx.Module):
    """Bytes on the fullest accelerator, by use."""

    weights: Array
    kv_cache: Array
    draft: Array
    activations: Array
    buffers: Array
    """Tokens sorted for routed experts, and their results."""
    reserve: Array
    capacity: Array

    @property
    def used(self) -> Array:
        """Bytes of all uses together."""
        working = self.activations + self.buffers
        return self.weights + self.kv_cache + self.draft + working + self.reserve

    @property
    def margin(self) -> Array:
        """capacity - used; negative where it does not fit."""
        return self.capacity - self.used


def weight_bytes(model: Model, layout: Layout, arithmetic: Arithmetic) -> Array:
    """Bytes of weights on the fullest accelerator.

    Matrices divide by tensor x pipeline, routed experts by tensor x data x pipeline (= expert x
    expert tensor x pipeline); norms and biases are whole on every rank. With one stage it holds both
    embedding and head, else the fullest stage holds one of them.
    """
    precision, ranks = model.precision, layout.tensor
    layers = jnp.zeros_like(ranks)
    for group in model.groups:
        matrices = jnp.zeros_like(model.width)
        if group.mixer is not None:
            matrices = matrices + group.mixer.matrix_parameters(model.width) * precision.weight
        feed = group.feed_forward
        if isinstance(feed, MixtureOfExperts):
            experts = feed.experts * feed.expert_matrix_parameters(model.width)
            common = feed.common_matrix_parameters(model.width)
            matrices = matrices + common * precision.weight + experts * precision.expert / layout.data
        elif isinstance(feed, DenseFeedForward):
            matrices = matrices + feed.matrix_parameters(model.width) * precision.weight
        vectors = group.vector_parameters
        if isinstance(feed, MixtureOfExperts):  # experts' biases are where the experts are
            elsewhere = 1.0 - 1.0 / layout.expert
            vectors = vectors - feed.experts * feed.expert_vector_parameters * elsewhere
        layers = layers + group.count * (matrices / ranks + vectors * precision.embedding)
    one_table = model.vocabulary * model.width * precision.embedding / ranks
    tables = 1.0 if model.tied else arithmetic.maximum(1.0 + 0.0 * ranks, 3.0 - layout.pipeline)
    tables = 0.0 if model.borrowed else tables
    return layers / layout.pipeline + tables * one_table + model.other_parameters * precision.embedding


def cache_bytes(model: Model, context: Array, layout: Layout, arithmetic: Arithmetic) -> Array:
    """Bytes of KV cache and recurrent state on one accelerator, for the whole batch.

    Each data rank keeps whole sequences, batch/data of them.
    """
    total = jnp.zeros_like(layout.batch)
    for group in model.groups:
        if group.mixer is None:
            continue
        part = group.mixer.cache_elements(context, arithmetic.minimum) * model.precision.kv
        part = part * cache_share(group, layout.tensor, arithmetic)
        state = group.mixer.state_elements() * model.precision.state / layout.tensor
        total = total + group.count * (part + state)
    return total * layout.batch / (layout.pipeline * layout.data)


def activation_bytes(
    model: Model, queries: Array, chunk: Array, layout: Layout, arithmetic: Arithmetic
) -> Array:
    """Bytes of live activations on one accelerator; grows with the tokens in flight.

    Two copies of the residual stream, the widest hidden layer in its shards, and float32
    logits of the vocabulary's shard, for the tokens of a step; no logits for the `chunk` tokens of a
    prompt on every data rank.
    """
    tokens = layout.batch / (layout.pipeline * layout.data) * queries
    wide = [jnp.zeros_like(model.width)]
    for group in model.groups:
        feed, mixer = group.feed_forward, group.mixer
        if isinstance(feed, DenseFeedForward):
            wide.append(2.0 * feed.hidden)
        elif isinstance(feed, MixtureOfExperts):
            # Tokens of all data ranks over all ranks of the stage: as many as here over `tensor`.
            wide.append(2.0 * (feed.active * feed.hidden + feed.shared_hidden))
        if isinstance(mixer, GroupedQueryAttention):
            wide.append((mixer.heads + 2.0 * mixer.kv_heads) * mixer.head_dim)
    widest = arithmetic.max(jnp.stack(wide)) / layout.tensor
    words = (2.0 * model.width + widest) * model.precision.activation
    return (tokens + chunk) * words + tokens * 4.0 * model.vocabulary / layout.tensor


def buffer_bytes(
    model: Model, queries: Array, layout: Layout, imbalance: Array, arithmetic: Arithmetic
) -> Array:
    """Bytes of tokens on their way to and from routed experts on the busiest rank.

    Sorted by expert, each token that a group needs is held there once, in the dispatched precision,
    and its result in that of communication; never more than all tokens of the stage.
    """
    kinds = [g.feed_forward for g in model.groups if isinstance(g.feed_forward, MixtureOfExperts)]
    zero = jnp.zeros_like(layout.batch)
    if not kinds:
        return zero
    tokens = layout.batch / layout.pipeline * queries
    busiest = 1.0 + (imbalance - 1.0) * (1.0 - 1.0 / layout.expert)
    size = model.precision.dispatch + model.precision.communication
    words = []
    for feed in kinds:
        width = model.width if feed.latent is None else feed.latent
        share = busiest * groups_reached(feed.active, layout.expert) / layout.expert
        words.append(width * arithmetic.minimum(share, 1.0 + zero))
    return arithmetic.max(jnp.stack(words, axis=-1)) * tokens * size
