"""What a language model is: layer groups, widths and precisions. Data and exact counts only.

Counts are float64 arrays: integers below 2**53 are exact, and a gradient with respect to a
width or a depth has the shape of the model itself.
"""

import abc
import functools
import operator

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Scalar, optional_scalar, scalar
from ._label import Label

Minimum = Callable[[Array, Array], Array]


class Mixer(eqx.Module):
    """What lets tokens of one sequence see each other: attention or a recurrence."""

    vector_parameters: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def matrix_parameters(self, width: Scalar) -> Array:
        """Entries of the weight matrices of one layer; these shard and are multiplied."""

    @abc.abstractmethod
    def cache_elements(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        """Cached keys, values or latents of one sequence and layer, in elements."""

    @abc.abstractmethod
    def state_elements(self) -> Array:
        """Recurrent state of one sequence and layer, in elements; does not grow with context."""


class GroupedQueryAttention(Mixer):
    """Softmax attention with `heads` query heads and `kv_heads` key-value heads.

    `kv_heads = heads` is multi-head, `kv_heads = 1` multi-query attention (Ainslie et al.
    2023). A `window` caps the tokens that are cached and read; None means global attention.
    With `chunked` the window starts afresh every `window` tokens.
    """

    heads: Scalar = eqx.field(converter=scalar)
    """Query heads."""
    kv_heads: Scalar = eqx.field(converter=scalar)
    """Key-value heads."""
    head_dim: Scalar = eqx.field(converter=scalar)
    """Width of a query and key head; need not be width/heads."""
    value_head_dim: Scalar = eqx.field(converter=scalar)
    """Width of a value head."""
    vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Biases, query and key norms, sinks of one layer, in parameters."""
    window: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Tokens in the window; None for global attention."""
    output_gate: bool = eqx.field(static=True, default=False)
    """Whether the query projection is doubled to gate the output."""
    chunked: bool = eqx.field(static=True, default=False)

    def matrix_parameters(self, width: Scalar) -> Array:
        """d h e (twice with a gate) + d k (e + e_v) + h e_v d."""
        query = width * self.heads * self.head_dim * (2 if self.output_gate else 1)
        key_value = width * self.kv_heads * (self.head_dim + self.value_head_dim)
        return query + key_value + self.heads * self.value_head_dim * width

    def attended(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        """Tokens read and kept per sequence: context, capped at the window."""
        return context if self.window is None else minimum(context, self.window)

    def cache_elements(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        """k (e + e_v) per token in reach."""
        return self.kv_heads * (self.head_dim + self.value_head_dim) * self.attended(context, minimum)

    def state_elements(self) -> Array:
        return jnp.zeros_like(self.heads)


class LatentAttention(Mixer):
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1).

    The cache holds one latent of `kv_rank` and one rotary key of `rope_dim` per token, shared
    by all heads. An optional indexer (DeepSeek-V3.2, GLM-5) selects `index_top_k` tokens and
    caches one key of `index_dim` per token.
    """

    heads: Scalar = eqx.field(converter=scalar)
    kv_rank: Scalar = eqx.field(converter=scalar)
    """Latent width of keys and values."""
    nope_dim: Scalar = eqx.field(converter=scalar)
    """Width of the part of a query head without rotary embedding."""
    rope_dim: Scalar = eqx.field(converter=scalar)
    """Width of the rotary part, shared by all heads on the key side."""
    value_dim: Scalar = eqx.field(converter=scalar)
    """Width of a value head."""
    query_rank: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Latent width of queries; None where queries are projected directly."""
    vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Norms and biases of one layer, in parameters."""
    index_heads: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    index_dim: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    index_top_k: Scalar | None = eqx.field(converter=optional_scalar, default=None)

    def matrix_parameters(self, width: Scalar) -> Array:
        """Query path, d (c_kv + rope), c_kv h (nope + value), h value d, and the indexer's."""
        query_width = self.heads * (self.nope_dim + self.rope_dim)
        rank = width if self.query_rank is None else self.query_rank
        query = rank * query_width + (0.0 if self.query_rank is None else width * rank)
        down = width * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        total = query + down + up + self.heads * self.value_dim * width
        if self.index_heads is not None and self.index_dim is not None:
            indexer = rank * self.index_heads * self.index_dim
            total = total + indexer + width * (self.index_dim + self.index_heads)
        return total

    def attended(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        """Tokens that enter the softmax: context, capped by the indexer where there is one."""
        return context if self.index_top_k is None else minimum(context, self.index_top_k)

    def cache_elements(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        """(c_kv + rope) per token, and the indexer's key; every token stays cached."""
        index = 0.0 if self.index_dim is None else self.index_dim
        return (self.kv_rank + self.rope_dim + index) * context

    def state_elements(self) -> Array:
        return jnp.zeros_like(self.heads)


class RecurrentMixer(Mixer):
    """Linear attention or a state-space layer: constant state, no growing cache.

    Covers Mamba (Gu and Dao 2023), Mamba-2 and gated delta nets by their matrix shapes.
    """

    input_columns: Scalar = eqx.field(converter=scalar)
    """Columns of all projections that read the residual stream."""
    output_rows: Scalar = eqx.field(converter=scalar)
    """Rows of the projection back to the residual stream."""
    inner_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Entries of matrices that touch the residual stream on neither side."""
    vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Convolution kernels, decay rates, norms and biases, in parameters."""
    recurrent_elements: Scalar = eqx.field(converter=scalar, default=0.0)
    """State updated at every token, in elements per sequence."""
    convolution_elements: Scalar = eqx.field(converter=scalar, default=0.0)
    """Past inputs kept by short convolutions, in elements per sequence."""

    def matrix_parameters(self, width: Scalar) -> Array:
        return width * (self.input_columns + self.output_rows) + self.inner_parameters

    def cache_elements(self, context: Scalar, minimum: Minimum = jnp.minimum) -> Array:
        return jnp.zeros_like(context)

    def state_elements(self) -> Array:
        return self.recurrent_elements + self.convolution_elements


class FeedForward(eqx.Module):
    """The position-wise half of a layer."""

    vector_parameters: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def matrix_parameters(self, width: Scalar) -> Array:
        """Entries of every stored weight matrix of one layer, router included."""

    @abc.abstractmethod
    def active_matrix_parameters(self, width: Scalar) -> Array:
        """Entries of the weight matrices that one token is multiplied with."""


class DenseFeedForward(FeedForward):
    """Two matrices, or three where gated (Shazeer 2020, arXiv:2002.05202)."""

    hidden: Scalar = eqx.field(converter=scalar)
    """Hidden width."""
    vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Biases of one layer, in parameters."""
    gated: bool = eqx.field(static=True, default=True)

    @property
    def matrices(self) -> int:
        """3 where gated, else 2."""
        return 3 if self.gated else 2

    def matrix_parameters(self, width: Scalar) -> Array:
        """(m0 + m1) d f."""
        return self.matrices * width * self.hidden

    def active_matrix_parameters(self, width: Scalar) -> Array:
        return self.matrix_parameters(width)


class MixtureOfExperts(FeedForward):
    """Routed experts, `active` of `experts` per token, and optionally shared ones.

    With `latent` the routed experts work on a projection of the residual stream to that width.
    """

    experts: Scalar = eqx.field(converter=scalar)
    """Routed experts in a layer."""
    active: Scalar = eqx.field(converter=scalar)
    """Routed experts per token."""
    hidden: Scalar = eqx.field(converter=scalar)
    """Hidden width of one routed expert."""
    shared_hidden: Scalar = eqx.field(converter=scalar, default=0.0)
    """Hidden width of all shared experts together; 0 for none."""
    expert_vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Biases of one routed expert, in parameters."""
    vector_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Router biases, shared-expert gates and the like of one layer, in parameters."""
    latent: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Width on which routed experts work; None where it is the model's width."""
    gated: bool = eqx.field(static=True, default=True)

    @property
    def matrices(self) -> int:
        """Matrices of one expert: 3 where gated, else 2."""
        return 3 if self.gated else 2

    def expert_matrix_parameters(self, width: Scalar) -> Array:
        """Entries of the matrices of one routed expert."""
        inner = width if self.latent is None else self.latent
        return self.matrices * inner * self.hidden

    def common_matrix_parameters(self, width: Scalar) -> Array:
        """Router d E, shared experts, and the projections to and from a latent width."""
        shared = self.matrices * width * self.shared_hidden
        latent = 0.0 if self.latent is None else 2.0 * width * self.latent
        return width * self.experts + shared + latent

    def matrix_parameters(self, width: Scalar) -> Array:
        return self.experts * self.expert_matrix_parameters(width) + self.common_matrix_parameters(width)

    def active_matrix_parameters(self, width: Scalar) -> Array:
        return self.active * self.expert_matrix_parameters(width) + self.common_matrix_parameters(width)


class LayerGroup(eqx.Module):
    """`count` identical layers; either half may be absent."""

    count: Scalar = eqx.field(converter=scalar)
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    norm_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Parameters of the layer's norms (not of query and key norms)."""
    parallel: bool = eqx.field(static=True, default=False)
    """Whether both halves read the same input, so that one all-reduce serves both."""

    def total_parameters(self, width: Scalar) -> Array:
        """Stored parameters of all `count` layers."""
        return self.count * self._one(width, active=False)

    def active_parameters(self, width: Scalar) -> Array:
        """Parameters that take part in one token, of all `count` layers."""
        return self.count * self._one(width, active=True)

    def _one(self, width: Scalar, active: bool) -> Array:
        total = self._vectors(active)
        if self.mixer is not None:
            total = total + self.mixer.matrix_parameters(width)
        if (feed := self.feed_forward) is not None:
            matrices = feed.active_matrix_parameters if active else feed.matrix_parameters
            total = total + matrices(width)
        return total

    @property
    def vector_parameters(self) -> Array:
        """Parameters of one layer that are in no matrix: norms, biases and the like."""
        return self._vectors(active=False)

    def _vectors(self, active: bool) -> Array:
        total = self.norm_parameters
        for half in (self.mixer, self.feed_forward):
            if half is not None:
                total = total + half.vector_parameters
        if isinstance(feed := self.feed_forward, MixtureOfExperts):
            total = total + (feed.active if active else feed.experts) * feed.expert_vector_parameters
        return total


class Precision(eqx.Module):
    """Bytes per stored or moved number, and the precision of matrix products.

    Quantized weights include their scales: 4.25/8 bytes for MXFP4 with 32-entry blocks.
    """

    weight: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per weight outside routed experts and embeddings."""
    expert: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per weight of routed experts."""
    embedding: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per weight of the input embedding and the output head."""
    activation: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per activation in memory."""
    kv: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per element of the KV cache."""
    state: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per element of recurrent state."""
    communication: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per activation on the network."""
    dispatch: Scalar = eqx.field(converter=scalar, default=2.0)
    """Bytes per activation sent to routed experts; what comes back has `communication`."""
    compute_bits: int = eqx.field(static=True, default=16)
    """Precision whose peak rate bounds matrix products: 16, 8 or 4."""
    attention_bits: int = eqx.field(static=True, default=16)
    """Likewise for scores and weighted values."""
    block: int | None = eqx.field(static=True, default=None)
    """Quantization block along a weight's sharded side; None for per-tensor or per-channel."""


class Model(eqx.Module):
    """A decoder-only language model.

    Counts are those of the language model: no vision tower, no multi-token-prediction layers,
    a tied head once.
    """

    width: Scalar = eqx.field(converter=scalar)
    """Width of the residual stream."""
    vocabulary: Scalar = eqx.field(converter=scalar)
    """Rows of the embedding matrix."""
    groups: tuple[LayerGroup, ...]
    precision: Precision = eqx.field(default_factory=Precision)
    other_parameters: Scalar = eqx.field(converter=scalar, default=0.0)
    """Final norm, learned positions, head bias and the like, in parameters."""
    tied: bool = eqx.field(static=True, default=False)
    """Whether input embedding and output head are one matrix."""
    borrowed: bool = eqx.field(static=True, default=False)
    """Whether embedding and head are another model's, and stored there (prediction heads)."""
    name: str = eqx.field(static=True, converter=Label, default="model")
    max_context: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Tokens the model is made for; None where unknown."""
    source: str = eqx.field(static=True, converter=Label, default="")

    @property
    def layers(self) -> Array:
        """Layers in all groups."""
        return functools.reduce(operator.add, (g.count for g in self.groups))

    @property
    def embedding_parameters(self) -> Array:
        """V d, twice where the head is a matrix of its own."""
        return self.vocabulary * self.width * (1 if self.tied else 2)

    @property
    def total_parameters(self) -> Array:
        """Every stored parameter; exact."""
        return self._with_embeddings([g.total_parameters(self.width) for g in self.groups])

    @property
    def active_parameters(self) -> Array:
        """Parameters that take part in one token, input embedding included; exact."""
        return self._with_embeddings([g.active_parameters(self.width) for g in self.groups])

    def _with_embeddings(self, parts: list[Array]) -> Array:
        return sum(parts, start=self.embedding_parameters + self.other_parameters)

    def kv_cache_bytes(self, context: Scalar | float) -> Array:
        """Bytes that one sequence of `context` tokens keeps, recurrent state included.

        Each layer group counts its own reach: windows and latents are respected, so the
        marginal bytes of one more token are not constant.
        """
        tokens = scalar(context)
        total = jnp.zeros_like(tokens)
        for group in self.groups:
            if group.mixer is not None:
                cache = group.mixer.cache_elements(tokens) * self.precision.kv
                state = group.mixer.state_elements() * self.precision.state
                total = total + group.count * (cache + state)
        return total
