"""Models from the fields of a Hugging Face `config.json`.

Each supported `model_type` states which biases, norms and defaults its layers have. Anything
else is refused by name: nothing is guessed.
"""

from collections.abc import Mapping
from typing import Any

from .._errors import InputError, nearest
from ._hf_fields import Fields
from ._hf_mixed import FAMILIES
from ._hf_precision import precision
from ._model import Model


def model_from_config(config: Mapping[str, Any], name: str, source: str, **precisions: float | None) -> Model:
    """A `Model` from the fields of a config as found.

    Args:
        config: the parsed config.json; a nested `text_config` is read where there is one.
        name: the model's name.
        source: where the config comes from.
        **precisions: weight_bits, kv_bits, activation_bits, expert_bits, embedding_bits and
            compute_bits; each overrides the checkpoint's own.

    Raises:
        InputError: for an unsupported `model_type`, or a missing or absurd field.
    """
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise InputError(f"'text_config' must be an object, got {text!r}")
    kind = text.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise InputError(
            f"model_type {kind!r} is not supported; {nearest(str(kind), FAMILIES)} Supported: "
            f"{', '.join(sorted(FAMILIES))}. Any other model can be described by hand as a TOML "
            "table with [[layers]] (see README.md)"
        )
    fields = Fields(text, config)
    stack = FAMILIES[kind](fields, kind)
    quantization = text.get("quantization_config", config.get("quantization_config"))
    return Model(
        width=stack.width,
        vocabulary=fields.whole("vocab_size", stack.vocabulary),
        groups=tuple(stack.groups),
        precision=precision(quantization, precisions, _state_bits(text)),
        other_parameters=stack.other,
        tied=fields.flag("tie_word_embeddings", stack.tied),
        name=name,
        max_context=_longest(fields),
        source=source,
    )


def _state_bits(text: Mapping[str, Any]) -> float:
    """Bits per element of recurrent state: 32 where the config says so, else 16."""
    kinds = (text.get("mamba_ssm_cache_dtype"), text.get("mamba_ssm_dtype"))
    return 32.0 if "float32" in kinds else 16.0


def _longest(fields: Fields) -> int | None:
    keys = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
    return next((fields.whole(k) for k in keys if fields.text.get(k) is not None), None)
