"""FLOP and bytes of one layer of a served model on one pipeline stage.

All figures are per accelerator of a tensor-parallel group of `tensor` ranks, for one
microbatch of `sequences` sequences with `queries` new tokens each. Matrices are split as in
Shoeybi et al. 2019 (arXiv:1909.08053): first along columns, then along rows.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic, one_minus_power
from ..specs import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    Model,
    RecurrentMixer,
)


class Work(eqx.Module):
    """FLOP and bytes of one operation group on one accelerator."""

    flop: Array
    bytes: Array


class Share(eqx.Module):
    """The part of a step that one accelerator sees."""

    tensor: Array
    sequences: Array
    queries: Array
    context: Array

    @property
    def tokens(self) -> Array:
        """New tokens of the microbatch."""
        return self.sequences * self.queries


def attention_core(model: Model, group: LayerGroup, share: Share, arithmetic: Arithmetic) -> Work:
    """Reading the cache, scores and weighted values of one layer.

    Each key-value head is read once per sequence, whatever the number of query heads; heads
    are replicated where the tensor degree exceeds them, latents on every rank. FLOP per token:
    2 h (e + e_v) x, absorbed 2 h (2 c_kv + rope) x; recurrences 6 per state element.
    """
    mixer, precision = group.mixer, model.precision
    if mixer is None:
        zero = jnp.zeros_like(share.tokens)
        return Work(zero, zero)
    heads = cache_share(group, share.tensor, arithmetic)
    cache = mixer.cache_elements(share.context) * precision.kv * heads * share.sequences
    if isinstance(mixer, RecurrentMixer):
        flop = 6.0 * mixer.recurrent_elements * share.tokens / share.tensor
        traffic = 2.0 * mixer.state_elements() * precision.state * share.sequences / share.tensor
        return Work(flop, cache + traffic)
    if isinstance(mixer, GroupedQueryAttention):
        width = mixer.head_dim + mixer.value_head_dim
    elif isinstance(mixer, LatentAttention):
        width = 2.0 * mixer.kv_rank + mixer.rope_dim
    else:
        raise TypeError(f"no cost is known for {type(mixer).__name__}")
    reach = mixer.attended(share.context)
    return Work(2.0 * mixer.heads * width * reach * share.tokens / share.tensor, cache)


def cache_share(group: LayerGroup, tensor: Array, arithmetic: Arithmetic) -> Array:
    """The share of a sequence's cache on one of `tensor` ranks: 1/tensor, at least one head's."""
    mixer = group.mixer
    if isinstance(mixer, GroupedQueryAttention):
        return arithmetic.maximum(1.0 / tensor, 1.0 / mixer.kv_heads)
    return jnp.ones_like(tensor)


def projections(model: Model, group: LayerGroup, share: Share) -> Work:
    """Matrix products of the mixer: 2 FLOP per weight and token; weights and activations move.

    Activations: the residual stream is read and written whole by each rank, the inner width
    divided.
    """
    mixer = group.mixer
    zero = jnp.zeros_like(share.tokens)
    if mixer is None:
        return Work(zero, zero)
    weights = mixer.matrix_parameters(model.width) / share.tensor
    if isinstance(mixer, GroupedQueryAttention):
        inner = mixer.heads * (mixer.head_dim + mixer.value_head_dim)
        inner = inner + mixer.kv_heads * (mixer.head_dim + mixer.value_head_dim)
    elif isinstance(mixer, LatentAttention):
        inner = mixer.heads * (2.0 * mixer.kv_rank + mixer.nope_dim + mixer.value_dim)
    elif isinstance(mixer, RecurrentMixer):
        inner = mixer.input_columns + mixer.output_rows
    else:
        raise TypeError(f"no cost is known for {type(mixer).__name__}")
    moved = (2.0 * model.width + inner / share.tensor) * share.tokens
    traffic = weights * model.precision.weight + moved * model.precision.activation
    return Work(2.0 * weights * share.tokens, traffic)


def feed_forward(model: Model, group: LayerGroup, share: Share) -> Work:
    """Dense matrices, or routed and shared experts.

    Of E experts with A active, a microbatch of t tokens touches E (1 - (1 - A/E)^t) on average.
    """
    feed, precision = group.feed_forward, model.precision
    zero = jnp.zeros_like(share.tokens)
    if feed is None:
        return Work(zero, zero)
    weights = feed.active_matrix_parameters(model.width) / share.tensor
    if isinstance(feed, MixtureOfExperts):
        expert = feed.expert_matrix_parameters(model.width) / share.tensor
        untouched = 1.0 - feed.active / feed.experts
        touched = feed.experts * one_minus_power(untouched, share.tokens)
        common = feed.common_matrix_parameters(model.width) / share.tensor
        stored = touched * expert * precision.expert + common * precision.weight
        hidden = feed.active * feed.hidden + feed.shared_hidden
    elif isinstance(feed, DenseFeedForward):
        stored = weights * precision.weight
        hidden = feed.hidden
    else:
        raise TypeError(f"no cost is known for {type(feed).__name__}")
    moved = (2.0 * model.width + feed.matrices * hidden / share.tensor) * share.tokens
    return Work(2.0 * weights * share.tokens, stored + moved * precision.activation)


def head(model: Model, share: Share) -> Work:
    """The output head: d V weights, split over the ranks; the input look-up costs no FLOP."""
    weights = model.width * model.vocabulary / share.tensor
    moved = (model.width + model.vocabulary / share.tensor) * share.tokens
    traffic = weights * model.precision.embedding + moved * model.precision.activation
    return Work(2.0 * weights * share.tokens, traffic)
