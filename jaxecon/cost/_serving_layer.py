"""FLOP and bytes of one layer of a served model on one accelerator of a pipeline stage.

Attention and dense matrices are divided over `tensor` ranks and repeated `data` times, each copy
with sequences of its own; matrices are split as in Shoeybi et al. 2019 (arXiv:1909.08053): first
along columns, then along rows. Routed experts are divided over all tensor x data ranks, in `expert`
groups, and see the tokens of all of them.
"""

import functools
from typing import NamedTuple

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


def _one() -> Array:
    return jnp.ones(())


class Work(eqx.Module):
    """FLOP and bytes of one operation group on one accelerator."""

    flop: Array
    bytes: Array


class Halves(NamedTuple):
    """A feed-forward half: what every rank does, and the routed experts."""

    common: Work
    experts: Work | None


class Share(eqx.Module):
    """The part of a step that one accelerator sees.

    What follows from its fields is worked out once, since every operation group asks for it.
    """

    tensor: Array
    """Ranks over which attention is divided."""
    sequences: Array
    """Sequences of the microbatch on one of the data ranks."""
    queries: Array
    """New tokens of each sequence."""
    context: Array
    """Tokens in the cache before the pass."""
    data: Array = eqx.field(default_factory=_one)
    """Copies of attention, each with as many sequences."""
    expert: Array = eqx.field(default_factory=_one)
    """Groups over which whole experts are dealt out."""
    imbalance: Array = eqx.field(default_factory=_one)
    """Tokens on the busiest expert group over the mean, where there are many groups."""
    prompt: bool = eqx.field(static=True, default=False)
    """Whether the new tokens are a prompt, each of which also attends to those before it."""
    shared: Array | None = None
    """Tokens at the start of the context that all sequences have in common; None for none."""

    @functools.cached_property
    def tokens(self) -> Array:
        """New tokens of the microbatch on one data rank."""
        return self.sequences * self.queries

    @functools.cached_property
    def stage_tokens(self) -> Array:
        """New tokens of the microbatch on all data ranks."""
        return self.tokens * self.data

    @functools.cached_property
    def stage(self) -> Array:
        """Accelerators of the stage."""
        return self.tensor * self.data

    @functools.cached_property
    def busiest(self) -> Array:
        """Load of the busiest expert group over the mean: 1 + (imbalance - 1)(1 - 1/groups)."""
        return 1.0 + (self.imbalance - 1.0) * (1.0 - 1.0 / self.expert)


def attention_core(model: Model, group: LayerGroup, share: Share, arithmetic: Arithmetic) -> Work:
    """Reading the cache, scores and weighted values of one layer.

    Each key-value head is read once per sequence, whatever the number of query heads; heads
    are replicated where the tensor degree exceeds them, latents on every rank. FLOP per token:
    2 h (e + e_v) x; latent attention absorbed, 2 h (2 c_kv + rope) x, in decoding and expanded,
    2 h (nope + rope + value) x, in prompts; recurrences 6 per state element. What sequences share is
    read from memory once on every data rank and from on-chip caches thereafter: neighbouring blocks of
    an attention kernel want the same keys at the same time.
    """
    mixer, precision = group.mixer, model.precision
    if mixer is None:
        zero = jnp.zeros_like(share.tokens)
        return Work(zero, zero)
    heads = cache_share(group, share.tensor, arithmetic)
    end = share.context + share.queries if share.prompt else share.context
    elements = mixer.cache_elements(end, arithmetic.minimum)
    read = elements * share.sequences
    if share.shared is not None:
        own = mixer.cache_elements(end - share.shared, arithmetic.minimum)
        read = own * share.sequences + (elements - own)
    cache = read * precision.kv * heads
    if isinstance(mixer, RecurrentMixer):
        flop = 6.0 * mixer.recurrent_elements * share.tokens / share.tensor
        traffic = 2.0 * mixer.state_elements() * precision.state * share.sequences / share.tensor
        return Work(flop, cache + traffic)
    if isinstance(mixer, GroupedQueryAttention):
        width = mixer.head_dim + mixer.value_head_dim
    elif isinstance(mixer, LatentAttention):
        absorbed = 2.0 * mixer.kv_rank + mixer.rope_dim
        width = mixer.nope_dim + mixer.rope_dim + mixer.value_dim if share.prompt else absorbed
    else:
        raise TypeError(f"no cost is known for {type(mixer).__name__}")
    flop = 2.0 * mixer.heads * width * _reach(mixer, share, arithmetic) * share.tokens / share.tensor
    return Work(flop, cache)


def _reach(mixer: GroupedQueryAttention | LatentAttention, share: Share, arithmetic: Arithmetic) -> Array:
    """Tokens that a new token attends to, averaged over the new ones of a sequence.

    In a prompt of q tokens after c cached ones, (F(c + q) - F(c))/q, where F(x) is the integral of
    min(x, window): m^2/2 + window (x - m), m = min(x, window).
    """
    if not share.prompt:
        return mixer.attended(share.context, arithmetic.minimum)

    def area(x: Array) -> Array:
        m = mixer.attended(x, arithmetic.minimum)
        return m * (x - 0.5 * m)

    return (area(share.context + share.queries) - area(share.context)) / share.queries


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


def feed_forward(model: Model, group: LayerGroup, share: Share) -> Halves:
    """Dense matrices, or routed experts beside shared ones, router and latent projections."""
    feed, precision = group.feed_forward, model.precision
    if feed is None:
        zero = jnp.zeros_like(share.tokens)
        return Halves(Work(zero, zero), None)
    if isinstance(feed, DenseFeedForward):
        weights = feed.matrix_parameters(model.width) / share.tensor
        moved = (2.0 * model.width + feed.matrices * feed.hidden / share.tensor) * share.tokens
        traffic = weights * precision.weight + moved * precision.activation
        return Halves(Work(2.0 * weights * share.tokens, traffic), None)
    if not isinstance(feed, MixtureOfExperts):
        raise TypeError(f"no cost is known for {type(feed).__name__}")
    weights = feed.common_matrix_parameters(model.width) / share.tensor
    moved = feed.matrices * feed.shared_hidden / share.tensor * share.tokens
    traffic = weights * precision.weight + moved * precision.activation
    return Halves(Work(2.0 * weights * share.tokens, traffic), _experts(model, feed, share))


def _experts(model: Model, feed: MixtureOfExperts, share: Share) -> Work:
    """Routed experts on the busiest rank.

    Of E experts with A active, the t tokens of the stage touch E (1 - (1 - A/E)^t) on average, of
    which every group holds as many; each token comes to `groups_reached` of them, is read there
    once and written once.
    """
    precision, tokens = model.precision, share.stage_tokens
    expert = feed.expert_matrix_parameters(model.width) / share.stage
    touched = feed.experts * one_minus_power(1.0 - feed.active / feed.experts, tokens)
    flop = 2.0 * feed.active * expert * tokens * share.busiest
    arrive = tokens * groups_reached(feed.active, share.expert) / share.expert
    inner = feed.matrices * feed.active * feed.hidden / share.stage * tokens
    moved = (2.0 * model.width * arrive + inner) * share.busiest
    return Work(flop, touched * expert * precision.expert + moved * precision.activation)


def groups_reached(active: Array, groups: Array) -> Array:
    """Expected distinct ones of X groups among A uniform choices: X (1 - (1 - 1/X)^A)."""
    return groups * one_minus_power(1.0 - 1.0 / groups, active)


def head(model: Model, share: Share, tokens: Array) -> Work:
    """The output head for `tokens`: d V weights, split over the ranks; looking up costs no FLOP."""
    weights = model.width * model.vocabulary / share.tensor
    moved = (model.width + model.vocabulary / share.tensor) * tokens
    traffic = weights * model.precision.embedding + moved * model.precision.activation
    return Work(2.0 * weights * tokens, traffic)
