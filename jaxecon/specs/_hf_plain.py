"""Families of dense decoder stacks with one or two kinds of layers."""

from typing import NamedTuple

from ._hf_fields import Fields
from ._hf_layers import attention
from ._model import DenseFeedForward, LayerGroup


class Stack(NamedTuple):
    """What a family's reader returns."""

    width: int
    groups: list[LayerGroup]
    other: int
    """Parameters outside layers and embeddings."""
    tied: bool = False
    """Class default of `tie_word_embeddings`."""
    vocabulary: int | None = None
    """Class default of `vocab_size`."""


def biased(f: Fields, kind: str) -> Stack:
    """GPT-2, BLOOM, GPT-NeoX, OPT, Phi, StarCoder2, Nemotron, Falcon: two-matrix layers."""
    d = f.first("hidden_size", "n_embed", "n_embd")
    h = f.first("num_attention_heads", "n_head")
    layers = f.first("num_hidden_layers", "n_layer")
    k, norms, other, tied = h, 4 * d, 2 * d, kind not in ("gpt_neox", "phi", "phi-msft", "nemotron")
    bias = {"starcoder2": f.flag("use_bias", True), "nemotron": f.flag("attention_bias")}
    has = bias.get(kind, f.flag("bias") if kind == "falcon" else True)
    mlp_bias = f.flag("mlp_bias") if kind == "nemotron" else has
    if kind in ("starcoder2", "nemotron", "phi"):
        k = f.whole("num_key_value_heads", h)
    elif kind == "phi-msft":
        k = f.whole("n_head_kv", h)
    elif kind == "falcon":
        grouped = f.flag("new_decoder_architecture")
        k = f.whole("num_kv_heads", h) if grouped else 1 if f.flag("multi_query", True) else h
        norms = 4 * d if grouped or not f.flag("parallel_attn", True) else 2 * d
    if kind in ("phi", "phi-msft"):
        norms, other = 2 * d, 2 * d + f.whole("vocab_size")
    elif kind == "bloom":
        other = 4 * d
    elif kind == "gpt2":
        other = 2 * d + d * f.whole("n_positions")
    elif kind == "opt":
        other = 2 * d + d * (f.whole("max_position_embeddings") + 2)
    four = kind in ("gpt2", "bloom", "falcon", "phi-msft")
    hidden = f.first(
        "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", default=4 * d if four else None
    )
    window = f.whole("sliding_window") if kind == "starcoder2" and f.has("sliding_window") else None
    mixer = attention(f, d, heads=h, kv_heads=k, qkv_bias=has, out_bias=has, window=window)
    feed = DenseFeedForward(hidden, (hidden + d) * mlp_bias, False)
    return Stack(d, [LayerGroup(layers, mixer, feed, norms)], other, tied)


def gated(f: Fields, kind: str) -> Stack:
    """Llama and its relatives: gated feed-forward, norms without bias."""
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    bias = f.flag("bias" if kind == "internlm2" else "attention_bias")
    windowed = kind in ("mistral", "phi3") or f.flag("use_sliding_window")
    window = f.whole("sliding_window") if windowed and f.has("sliding_window") else None
    full = f.whole("max_window_layers") if kind.startswith("qwen") and window else 0
    feed = _dense(f, d)
    norms = d if kind == "cohere" else 2 * d
    groups = [
        LayerGroup(
            n,
            attention(
                f,
                d,
                qkv_bias=bias or kind == "qwen2",
                out_bias=bias,
                head_norms=kind == "qwen3",
                wide_norms=kind == "olmo2" or (kind == "cohere" and f.flag("use_qk_norm")),
                window=w,
            ),
            feed,
            norms,
        )
        for n, w in ((min(full, layers), None), (layers - min(full, layers), window))
        if n
    ]
    return Stack(d, groups, d, kind in ("cohere", "gemma"))


def _dense(f: Fields, d: int) -> DenseFeedForward:
    hidden = f.whole("intermediate_size")
    return DenseFeedForward(hidden, (2 * hidden + d) * f.flag("mlp_bias"))


def gemma(f: Fields, kind: str) -> Stack:
    """Gemma 2 and 3: windows on all but every second or sixth layer; Gemma 3's class defaults."""
    third = kind != "gemma2"
    d, layers = f.whole("hidden_size"), f.whole("num_hidden_layers")
    period = f.whole("sliding_window_pattern", 6) if third else 2
    types = f.per_layer("layer_types", layers)
    full = types.count("full_attention") if types else layers // period
    heads = f.whole("num_attention_heads", 8 if third else None)
    kv = f.whole("num_key_value_heads", 4 if third else None)
    e = f.whole("head_dim", 256)
    groups = [
        LayerGroup(
            n,
            attention(f, d, heads=heads, kv_heads=kv, head_dim=e, head_norms=third, window=w),
            _dense(f, d),
            4 * d,
        )
        for n, w in ((full, None), (layers - full, f.whole("sliding_window")))
        if n
    ]
    return Stack(d, groups, d, True, 262208 if third else None)


PLAIN = dict.fromkeys(
    ("gpt2", "bloom", "gpt_neox", "opt", "phi", "phi-msft", "starcoder2", "nemotron", "falcon"),
    biased,
)
PLAIN |= dict.fromkeys(
    ("llama", "mistral", "qwen2", "qwen3", "granite", "olmo2", "gemma", "phi3", "cohere", "internlm2"),
    gated,
)
PLAIN |= dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), gemma)
