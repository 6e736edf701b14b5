"""Halves of layers as Hugging Face configs spell them."""

from .._errors import InputError
from ._hf_fields import Fields
from ._model import (
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    RecurrentMixer,
)


def attention(
    f: Fields,
    width: int,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    head_norms: bool = False,
    wide_norms: bool = False,
    sinks: bool = False,
    gate: bool = False,
    window: int | None = None,
    chunked: bool = False,
) -> GroupedQueryAttention:
    """Grouped-query attention; widths in elements, the window in tokens.

    Raises:
        InputError: for head counts or widths that do not divide.
    """
    h = heads or f.whole("num_attention_heads")
    k = kv_heads or f.whole("num_key_value_heads", h)
    if h % k:
        raise InputError(f"'num_key_value_heads' {k} does not divide {h} attention heads")
    e = head_dim
    if e is None:
        if f.text.get("head_dim") is None and width % h:
            raise InputError(f"'hidden_size' {width} is no multiple of {h} heads; give 'head_dim'")
        e = f.whole("head_dim", width // h if width >= h else None)
    vectors = (h + 2 * k) * e * qkv_bias + width * out_bias
    vectors += 2 * e * head_norms + (h + k) * e * wide_norms + h * sinks
    return GroupedQueryAttention(h, k, e, e, vectors, window, gate, chunked)


def latent(f: Fields, indexed: bool = False) -> LatentAttention:
    """Multi-head latent attention of the DeepSeek family."""
    query = f.whole("q_lora_rank") if f.text.get("q_lora_rank") is not None else None
    rank = f.whole("kv_lora_rank")
    index = f.whole("index_head_dim") if indexed else None
    return LatentAttention(
        f.whole("num_attention_heads"),
        rank,
        f.whole("qk_nope_head_dim"),
        f.whole("qk_rope_head_dim"),
        f.whole("v_head_dim"),
        query,
        rank + (query or 0) + 2 * (index or 0),
        f.whole("index_n_heads") if indexed else None,
        index,
        f.whole("index_topk") if indexed else None,
    )


def experts(
    f: Fields,
    key: str,
    hidden: int,
    *,
    active: int | None = None,
    shared: int = 0,
    vectors: int = 0,
    expert_vectors: int = 0,
    router_bias: bool = False,
    gated: bool = True,
    latent_width: int | None = None,
) -> MixtureOfExperts:
    """Routed and shared experts of one layer.

    Raises:
        InputError: where more experts are active than there are.
    """
    total = f.whole(key)
    chosen = active or f.whole("num_experts_per_tok")
    if chosen > total:
        raise InputError(f"'num_experts_per_tok' {chosen} exceeds the {total} experts of '{key}'")
    vectors += total * router_bias
    return MixtureOfExperts(total, chosen, hidden, shared, expert_vectors, vectors, latent_width, gated)


def delta_net(f: Fields) -> RecurrentMixer:
    """Gated delta net of Qwen3-Next."""
    heads, wide = f.whole("linear_num_value_heads"), f.whole("linear_value_head_dim")
    narrow = f.whole("linear_key_head_dim")
    keys, values = f.whole("linear_num_key_heads") * narrow, heads * wide
    kernel = f.whole("linear_conv_kernel_dim")
    mixed = 2 * keys + values
    return RecurrentMixer(
        mixed + values + 2 * heads,
        values,
        0,
        mixed * kernel + 2 * heads + wide,
        heads * narrow * wide,
        mixed * (kernel - 1),
    )


def mamba(
    f: Fields, width: int, inner: int, state: int, rank: int, kernel: int, norms: bool, bias: bool
) -> RecurrentMixer:
    """Mamba (Gu and Dao 2023); `norms` adds Jamba's norms of the step and of B and C.

    `A_log` counts among the vectors: it is multiplied elementwise.
    """
    vectors = inner * (kernel + bias) + inner + inner * state + inner
    vectors += (rank + 2 * state) * norms
    mats = inner * (rank + 2 * state) + rank * inner
    return RecurrentMixer(2 * inner, inner, mats, vectors, inner * state, inner * (kernel - 1))


def mamba2(f: Fields) -> RecurrentMixer:
    """Mamba-2 as in Nemotron-H."""
    heads, state = f.whole("mamba_num_heads"), f.whole("ssm_state_size")
    inner = heads * f.whole("mamba_head_dim")
    mixed = inner + 2 * f.whole("n_groups") * state
    kernel = f.whole("conv_kernel")
    vectors = mixed * (kernel + f.flag("use_conv_bias", True)) + 3 * heads + inner
    return RecurrentMixer(inner + mixed + heads, inner, 0, vectors, inner * state, mixed * (kernel - 1))
