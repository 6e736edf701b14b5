"""The paper's own description of a model, and its counts (Erdil 2025, arXiv:2506.04645)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Scalar, optional_scalar, scalar
from ..specs._label import Label


class ErdilModel(eqx.Module):
    """A homogeneous transformer in the symbols of the paper."""

    d_model: Scalar = eqx.field(converter=scalar)
    d_ff: Scalar = eqx.field(converter=scalar)
    layers: Scalar = eqx.field(converter=scalar)
    num_query_heads: Scalar = eqx.field(converter=scalar)
    group_size: Scalar = eqx.field(converter=scalar)
    """Query heads per key-value head."""
    d_head: Scalar = eqx.field(converter=scalar)
    vocab_size: Scalar = eqx.field(converter=scalar)
    n_experts: Scalar = eqx.field(converter=scalar, default=1.0)
    n_active_experts: Scalar = eqx.field(converter=scalar, default=1.0)
    weight_bytes: Scalar = eqx.field(converter=scalar, default=2.0)
    activation_bytes: Scalar = eqx.field(converter=scalar, default=2.0)
    kv_rank: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Latent width of keys and values (c_kv); None for ordinary attention."""
    query_rank: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Latent width of queries (c_q)."""
    ff_matrices: tuple[int, int] = eqx.field(static=True, default=(2, 1))
    """Feed-forward matrices with input d, and with output d."""
    compute_bits: int = eqx.field(static=True, default=16)
    parallel_attention: bool = eqx.field(static=True, default=False)
    name: str = eqx.field(static=True, converter=Label, default="model")

    @property
    def kv_width(self) -> Array:
        """k2 = 2 h/group: key and value heads counted together."""
        return 2.0 * self.num_query_heads / self.group_size

    @property
    def sparsity(self) -> Array:
        """S = E // A."""
        return jnp.floor(self.n_experts / self.n_active_experts)

    @property
    def attention_parameters(self) -> Array:
        """Per layer: d e (h + k2) + d e h, or the latent form of May 2025."""
        d, e, h = self.d_model, self.d_head, self.num_query_heads
        if self.kv_rank is None or self.query_rank is None:
            return d * e * (h + self.kv_width) + d * e * h
        latent = 2.0 * self.kv_rank * d + self.query_rank * d
        return latent + self.kv_width * e * self.kv_rank + h * e * self.query_rank + e * h * d

    @property
    def feed_forward_parameters(self) -> Array:
        """Per layer: E (m0 + m1) d f."""
        return self.n_experts * sum(self.ff_matrices) * self.d_model * self.d_ff

    @property
    def embedding_parameters(self) -> Array:
        """2 V d."""
        return 2.0 * self.vocab_size * self.d_model

    @property
    def total_parameters(self) -> Array:
        """L (attention + feed-forward) + embeddings."""
        layer = self.attention_parameters + self.feed_forward_parameters
        return self.layers * layer + self.embedding_parameters

    @property
    def active_parameters(self) -> Array:
        """The feed-forward part divided by S; the embeddings kept."""
        layer = self.attention_parameters + self.feed_forward_parameters / self.sparsity
        return self.layers * layer + self.embedding_parameters

    def kv_cache_bytes(self, context: Array) -> Array:
        """k2 e L a per token, or c_kv L a with latent attention; bytes for one sequence."""
        width = self.kv_width * self.d_head if self.kv_rank is None else self.kv_rank
        return width * self.layers * self.activation_bytes * context

    def attention_flop(self, context: Array, tokens: Array) -> Array:
        """4 e h L x t, or 4 c_kv h L x t with latent attention."""
        width = self.d_head if self.kv_rank is None else self.kv_rank
        return 4.0 * width * self.num_query_heads * self.layers * context * tokens

    def flop(self, context: Array, tokens: Array) -> Array:
        """2 active t + attention, FLOP of one step of `tokens` tokens."""
        return 2.0 * self.active_parameters * tokens + self.attention_flop(context, tokens)
