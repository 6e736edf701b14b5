"""Families with experts, latent attention or recurrent layers."""

from collections import Counter
from collections.abc import Callable

from .._errors import InputError
from ._hf_fields import Fields
from ._hf_layers import attention, delta_net, experts, latent, mamba, mamba2
from ._hf_plain import PLAIN, Stack, gated
from ._model import DenseFeedForward, FeedForward, LayerGroup, Mixer


def simple(f: Fields, kind: str) -> Stack:
    """Mixtral, Qwen3-MoE and MiniMax-M2: every layer alike, or dense where no experts are."""
    key = "num_experts" if kind == "qwen3_moe" else "num_local_experts"
    if not f.count(key):
        return gated(f, "qwen3" if kind == "qwen3_moe" else "llama")
    d, layers, mini = f.whole("hidden_size"), f.whole("num_hidden_layers"), kind == "minimax_m2"
    hidden = f.whole("moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size")
    window = f.whole("sliding_window") if kind == "mixtral" and f.has("sliding_window") else None
    bias = f.flag("attention_bias")
    mixer = attention(
        f,
        d,
        qkv_bias=bias,
        out_bias=bias,
        head_norms=kind == "qwen3_moe",
        wide_norms=mini and f.flag("use_qk_norm"),
        window=window,
    )
    _every_layer_sparse(f)
    feed = experts(f, key, hidden, router_bias=mini and f.flag("use_routing_bias"))
    return Stack(d, [LayerGroup(layers, mixer, feed, 2 * d)], d)


def _every_layer_sparse(f: Fields) -> None:
    """Refuse configs that interleave dense layers in ways these families do not count.

    Raises:
        InputError: naming the field.
    """
    for key in ("decoder_sparse_step", "moe_layer_freq"):
        if f.whole(key, 1) != 1:
            raise InputError(f"'{key}' above 1 is not supported, got {f.text[key]!r}")
    if f.text.get("mlp_only_layers"):
        raise InputError(f"'mlp_only_layers' is not supported, got {f.text['mlp_only_layers']!r:.60}")


def dbrx(f: Fields, kind: str) -> Stack:
    """DBRX: nested attention and feed-forward blocks."""
    d, ffn = f.whole("d_model"), f.sub("ffn_config")
    mixer = attention(f, d, heads=f.whole("n_heads"), kv_heads=f.sub("attn_config").whole("kv_n_heads"))
    feed = experts(ffn, "moe_num_experts", ffn.whole("ffn_hidden_size"), active=ffn.whole("moe_top_k"))
    return Stack(d, [LayerGroup(f.whole("n_layers"), mixer, feed, 2 * d)], d)


def deepseek(f: Fields, kind: str) -> Stack:
    """DeepSeek, Kimi K2, GLM 4.5 and 5: some dense layers first, then experts."""
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    bias = f.flag("attention_bias")
    mixer: Mixer
    if kind in ("deepseek", "glm4_moe"):
        mixer = attention(
            f, d, qkv_bias=bias, out_bias=bias and kind == "deepseek", head_norms=f.flag("use_qk_norm")
        )
    else:
        mixer = latent(f, indexed=kind == "glm_moe_dsa")
    _every_layer_sparse(f)
    parts: list[tuple[int, FeedForward]] = []
    dense = min(f.count("first_k_dense_replace"), layers) if f.count("n_routed_experts") else layers
    if dense:
        parts.append((dense, DenseFeedForward(f.whole("intermediate_size"))))
    if dense < layers:
        hidden = f.whole("moe_intermediate_size")
        shared = hidden * f.count("n_shared_experts")
        corrected = kind not in ("deepseek", "deepseek_v2")
        feed = experts(f, "n_routed_experts", hidden, shared=shared, router_bias=corrected)
        parts.append((layers - dense, feed))
    return Stack(d, [LayerGroup(n, mixer, half, 2 * d) for n, half in parts], d)


def qwen_next(f: Fields, kind: str) -> Stack:
    """Qwen3-Next and Qwen3.5: gated delta nets with full attention every few layers."""
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    types = f.per_layer("layer_types", layers)
    full = layers // f.whole("full_attention_interval", 4)
    full = types.count("full_attention") if types else full
    _every_layer_sparse(f)
    feed: FeedForward
    if f.count("num_experts"):
        hidden, shared = f.whole("moe_intermediate_size"), f.whole("shared_expert_intermediate_size")
        feed = experts(f, "num_experts", hidden, vectors=d, shared=shared)
    else:
        feed = DenseFeedForward(f.whole("intermediate_size"))
    mixer = attention(f, d, gate=f.flag("attn_output_gate", True), head_norms=True)
    pairs: list[tuple[int, Mixer]] = [(full, mixer), (layers - full, delta_net(f))]
    return Stack(d, [LayerGroup(n, m, feed, 2 * d) for n, m in pairs if n], d)


def llama4(f: Fields, kind: str) -> Stack:
    """Llama 4: chunked attention on three layers of four, a shared expert."""
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    hidden, step = f.whole("intermediate_size"), f.whole("interleave_moe_layer_step", 1)
    moe = experts(f, "num_local_experts", hidden, shared=hidden)
    chunk = f.whole("attention_chunk_size", 8192)
    shapes = Counter(((i + 1) % 4 == 0, (i + 1) % step == 0) for i in range(layers))
    groups = []
    for (whole, sparse), n in shapes.items():
        feed: FeedForward = moe if sparse else DenseFeedForward(f.whole("intermediate_size_mlp"))
        mixer = attention(f, d, window=None if whole else chunk, chunked=not whole)
        groups.append(LayerGroup(n, mixer, feed, 2 * d))
    return Stack(d, groups, d)


def gpt_oss(f: Fields, kind: str) -> Stack:
    """gpt-oss: sinks, biases everywhere, alternating windows."""
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    types = f.per_layer("layer_types", layers)
    full = types.count("full_attention") if types else layers // 2
    hidden, bias = f.whole("intermediate_size"), f.flag("attention_bias", True)
    feed = experts(f, "num_local_experts", hidden, router_bias=True, expert_vectors=2 * hidden + d)
    groups = [
        LayerGroup(n, attention(f, d, qkv_bias=bias, out_bias=bias, sinks=True, window=w), feed, 2 * d)
        for n, w in ((full, None), (layers - full, f.whole("sliding_window")))
        if n
    ]
    return Stack(d, groups, d)


def pure_mamba(f: Fields, kind: str) -> Stack:
    """Mamba: no feed-forward half."""
    d = f.whole("hidden_size")
    inner = f.whole("intermediate_size", d * f.whole("expand", 2))
    mixer = mamba(
        f,
        d,
        inner,
        f.whole("state_size"),
        f.whole("time_step_rank"),
        f.whole("conv_kernel"),
        False,
        f.flag("use_conv_bias", True),
    )
    return Stack(d, [LayerGroup(f.whole("num_hidden_layers"), mixer, None, d)], d, True)


def jamba(f: Fields, kind: str) -> Stack:
    """Jamba: Mamba with an attention layer per period, experts on every second layer."""
    d, hidden = f.whole("hidden_size"), f.whole("intermediate_size")
    recurrent = mamba(
        f,
        d,
        d * f.whole("mamba_expand"),
        f.whole("mamba_d_state"),
        f.whole("mamba_dt_rank"),
        f.whole("mamba_d_conv"),
        True,
        f.flag("mamba_conv_bias", True),
    )
    moe, softmax = experts(f, "num_experts", hidden), attention(f, d)
    period, every = f.whole("attn_layer_period"), f.whole("expert_layer_period")
    shapes = Counter(
        (i % period == f.count("attn_layer_offset"), i % every == f.count("expert_layer_offset"))
        for i in range(f.whole("num_hidden_layers"))
    )
    groups = [
        LayerGroup(n, softmax if a else recurrent, moe if e else DenseFeedForward(hidden), 2 * d)
        for (a, e), n in shapes.items()
    ]
    return Stack(d, groups, d)


def nemotron_h(f: Fields, kind: str) -> Stack:
    """Nemotron-H: one half per layer, in the order of a pattern of M, E, * and -.

    Its router correction is a buffer, not a parameter.
    """
    d, layers, pattern = (
        f.whole("hidden_size"),
        f.whole("num_hidden_layers"),
        f.text.get("hybrid_override_pattern"),
    )
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set("ME*-"):
        raise InputError(f"'hybrid_override_pattern' must be {layers} of M, E, * and -, got {pattern!r}")
    groups = []
    for letter, n in Counter(pattern).items():
        mixer = mamba2(f) if letter == "M" else attention(f, d) if letter == "*" else None
        feed: FeedForward | None = None
        if letter == "E":
            shared = f.count("n_shared_experts") and f.whole("moe_shared_expert_intermediate_size")
            feed = experts(
                f,
                "n_routed_experts",
                f.whole("moe_intermediate_size"),
                shared=shared,
                gated=False,
                latent_width=f.count("moe_latent_size") or None,
            )
        elif letter == "-":
            feed = DenseFeedForward(f.whole("intermediate_size"), 0, False)
        groups.append(LayerGroup(n, mixer, feed, d))
    return Stack(d, groups, d)


FAMILIES: dict[str, Callable[[Fields, str], Stack]] = dict(PLAIN)
FAMILIES |= dict.fromkeys(("mixtral", "qwen3_moe", "minimax_m2"), simple)
FAMILIES |= dict.fromkeys(
    ("deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", "glm_moe_dsa"), deepseek
)
FAMILIES |= dict.fromkeys(("qwen3_next", "qwen3_5_moe_text"), qwen_next)
FAMILIES |= {"dbrx": dbrx, "llama4_text": llama4, "gpt_oss": gpt_oss, "mamba": pure_mamba}
FAMILIES |= {"jamba": jamba, "nemotron_h": nemotron_h}
