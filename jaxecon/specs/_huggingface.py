"""Models from the fields of a Hugging Face `config.json`, for plain decoder stacks.

Each supported `model_type` states which biases, norms and defaults its layers have. Anything
else is refused by name: nothing is guessed.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._errors import InputError, nearest
from ._model import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LayerGroup,
    MixtureOfExperts,
    Model,
    Precision,
)


class _Family(NamedTuple):
    """What a `model_type` fixes without saying it in the config."""

    qkv_bias: bool | None = None
    """None: as `attention_bias` says, on all four projections."""
    head_norms: bool = False
    """Query and key norms over one head."""
    wide_norms: bool = False
    """Query and key norms over all heads."""
    layer_norms: int = 2
    tied: bool = False
    """Class default of `tie_word_embeddings`."""
    experts: str | None = None
    """Key that counts routed experts."""
    expert_hidden: str = "moe_intermediate_size"
    window: bool = False
    """Whether `sliding_window` is used by every layer."""


_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(window=True),
    "mixtral": _Family(experts="num_local_experts", expert_hidden="intermediate_size"),
    "qwen2": _Family(qkv_bias=True),
    "qwen3": _Family(head_norms=True),
    "qwen3_moe": _Family(head_norms=True, experts="num_experts"),
    "granite": _Family(tied=False),
    "olmo2": _Family(wide_norms=True),
    "gemma": _Family(tied=True),
    "phi3": _Family(window=True),
}


def model_from_config(config: Mapping[str, Any], name: str, source: str, **precisions: float | None) -> Model:
    """A `Model` from the fields of a config as found.

    Raises:
        InputError: for an unsupported `model_type`, or a missing or absurd field.
    """
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise InputError(f"'text_config' must be an object, got {text!r}")
    kind = text.get("model_type")
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise InputError(
            f"model_type {kind!r} is not supported; {nearest(str(kind), _FAMILIES)} "
            "A model may also be built by hand from jaxecon.Model and its layer groups"
        )
    family = _FAMILIES[kind]
    width = _whole(text, "hidden_size")
    attention = _attention(text, family, width)
    groups = (
        LayerGroup(
            _whole(text, "num_hidden_layers"),
            attention,
            _feed_forward(text, family, width),
            family.layer_norms * width,
        ),
    )
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family.tied))
    longest = text.get("max_position_embeddings")
    return Model(
        width=width,
        vocabulary=_whole(text, "vocab_size"),
        groups=groups,
        precision=_precision(text.get("quantization_config", config.get("quantization_config")), precisions),
        other_parameters=width,
        tied=bool(tied),
        name=name,
        max_context=None if longest is None else _whole(text, "max_position_embeddings"),
        source=source,
    )


def _whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if value is None and default is not None:
        value = default
    if value is None:
        raise InputError(f"the config has no '{key}'")
    bad = isinstance(value, bool) or not isinstance(value, (int, float))
    if bad or not math.isfinite(value) or value != int(value) or not 0 < value < 1e9:
        raise InputError(f"'{key}' must be a positive whole number, got {value!r}")
    return int(value)


def _attention(text: Mapping[str, Any], family: _Family, width: int) -> GroupedQueryAttention:
    heads = _whole(text, "num_attention_heads")
    shared = _whole(text, "num_key_value_heads", heads)
    if heads % shared:
        raise InputError(f"'num_key_value_heads' {shared} does not divide {heads} attention heads")
    if text.get("head_dim") is None and width % heads:
        raise InputError(f"'hidden_size' {width} is no multiple of {heads} heads; give 'head_dim'")
    head_dim = _whole(text, "head_dim", width // heads)
    vectors = 0
    if family.qkv_bias:
        vectors += (heads + 2 * shared) * head_dim
    elif family.qkv_bias is None and text.get("attention_bias"):
        vectors += (heads + 2 * shared) * head_dim + width
    if family.head_norms:
        vectors += 2 * head_dim
    if family.wide_norms:
        vectors += (heads + shared) * head_dim
    window = _whole(text, "sliding_window") if family.window and text.get("sliding_window") else None
    return GroupedQueryAttention(heads, shared, head_dim, head_dim, vectors, window)


def _feed_forward(text: Mapping[str, Any], family: _Family, width: int) -> FeedForward:
    if family.experts is not None and text.get(family.experts):
        experts = _whole(text, family.experts)
        active = _whole(text, "num_experts_per_tok")
        if active > experts:
            raise InputError(f"'num_experts_per_tok' {active} exceeds the {experts} experts")
        return MixtureOfExperts(experts, active, _whole(text, family.expert_hidden))
    hidden = _whole(text, "intermediate_size")
    bias = 2 * hidden + width if text.get("mlp_bias") else 0
    return DenseFeedForward(hidden, bias)


def _precision(quantization: Any, chosen: Mapping[str, float | None]) -> Precision:
    """Bytes per number: the checkpoint's, unless a keyword says otherwise.

    Embeddings and head stay at 16 bits, as quantized checkpoints keep them. 8-bit weights are
    multiplied at the 8-bit peak; narrower ones are widened to 16 bits first.
    """
    allowed = ("weight_bits", "kv_bits", "activation_bits", "embedding_bits", "compute_bits")
    for key, value in chosen.items():
        if key not in allowed:
            raise InputError(f"unknown precision '{key}'; {nearest(key, allowed)}")
        if value is not None and not 0 < value <= 32:
            raise InputError(f"{key} must be above 0 and at most 32, got {value}")
    stored, block = 16.0, None
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method")
        if method != "fp8":
            raise InputError(f"quantization method {method!r} is not supported; supported: 'fp8'")
        stored = 8.0
        if quantization.get("weight_block_size"):
            block = int(quantization["weight_block_size"][0])
    bits = {k: v for k, v in chosen.items() if v is not None}
    weight = bits.get("weight_bits", stored)
    compute = bits.get("compute_bits", 8 if weight == 8 else 16)
    if compute not in (16, 8, 4):
        raise InputError(f"compute_bits must be 16, 8 or 4, got {compute}")
    return Precision(
        weight=weight / 8,
        expert=weight / 8,
        embedding=bits.get("embedding_bits", 16) / 8,
        activation=bits.get("activation_bits", 16) / 8,
        kv=bits.get("kv_bits", 16) / 8,
        compute_bits=int(compute),
        block=block,
    )
