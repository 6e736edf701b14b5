"""Bytes per number from a config's quantization block and the caller's choices."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._errors import InputError, nearest
from ._model import Precision

_KEYS = (
    "weight_bits kv_bits activation_bits expert_bits embedding_bits communication_bits dispatch_bits "
    "compute_bits attention_bits"
).split()


class _Stored(NamedTuple):
    """What a checkpoint stores, in bits per weight."""

    weight: float = 16.0
    expert: float = 16.0
    compute: int = 16
    block: int | None = None


def precision(quantization: Any, chosen: Mapping[str, float | None], state_bits: float = 16.0) -> Precision:
    """The checkpoint's precision, unless a keyword says otherwise.

    Embeddings and head stay at 16 bits. 8-bit weights are multiplied at the 8-bit peak;
    narrower ones are widened to 16 bits first. A quantization block of the checkpoint holds only
    for its own number of bits.

    Raises:
        InputError: for an unknown method or a number of bits out of range.
    """
    bits = {k: _checked(k, v) for k, v in chosen.items() if v is not None}
    stored = _stored(quantization)
    weight = bits.get("weight_bits", stored.weight)
    expert = bits.get("expert_bits", bits.get("weight_bits", stored.expert))
    default = stored.compute
    if "weight_bits" in bits:
        default = 8 if weight == 8 else 16
    activation = bits.get("activation_bits", 16.0)
    communication = bits.get("communication_bits", activation)
    return Precision(
        weight=weight / 8,
        expert=expert / 8,
        embedding=bits.get("embedding_bits", 16.0) / 8,
        activation=activation / 8,
        communication=communication / 8,
        dispatch=bits.get("dispatch_bits", communication) / 8,
        kv=bits.get("kv_bits", 16.0) / 8,
        compute_bits=int(bits.get("compute_bits", default)),
        attention_bits=int(bits.get("attention_bits", 16)),
        state=state_bits / 8,
        block=stored.block if weight == stored.weight else None,
    )


def _checked(key: str, value: Any) -> float:
    if key not in _KEYS:
        raise InputError(f"unknown precision '{key}'; {nearest(key, _KEYS)}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{key} must be a number, got {value!r}")
    if key in ("compute_bits", "attention_bits") and value not in (16, 8, 4):
        raise InputError(f"{key} must be 16, 8 or 4, got {value}")
    if not 0 < value <= 32:
        raise InputError(f"{key} must be above 0 and at most 32, got {value}")
    return float(value)


def _stored(block: Any) -> _Stored:
    if block is None:
        return _Stored()
    if not isinstance(block, Mapping):
        raise InputError(f"'quantization_config' must be an object, got {block!r}")
    method = block.get("quant_method")
    if method == "fp8":
        size = block.get("weight_block_size")
        if size is None:
            return _Stored(8.0, 8.0, 8)
        if not isinstance(size, list) or not size:
            raise InputError(f"'weight_block_size' must be a list, got {size!r}")
        return _Stored(8.0, 8.0, 8, int(_positive("weight_block_size", size[0])))
    if method == "mxfp4":
        return _Stored(16.0, 4.25)
    if method == "modelopt":
        return _modelopt(block)
    if method in ("awq", "gptq"):
        width = _scaled(block.get("bits"), block.get("group_size"), "bits")
        return _Stored(width, width)
    if method == "compressed-tensors":
        return _compressed(block)
    known = ("fp8", "mxfp4", "awq", "gptq", "compressed-tensors", "modelopt")
    raise InputError(f"'quant_method' {method!r} is not supported; {nearest(str(method), known)}")


def _modelopt(block: Mapping[str, Any]) -> _Stored:
    """FP8, or NVFP4 with one 8-bit scale per 16 weights, multiplied at the 4-bit peak."""
    algorithm = str(block.get("quant_algo")).upper()
    if algorithm == "FP8":
        return _Stored(8.0, 8.0, 8)
    if algorithm == "NVFP4":
        return _Stored(4.5, 4.5, 4)
    raise InputError(f"'quant_algo' {block.get('quant_algo')!r} is not supported; valid: FP8, NVFP4")


def _positive(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise InputError(f"'{key}' must be a positive number, got {value!r}")
    return float(value)


def _scaled(bits: Any, group: Any, key: str) -> float:
    """Stored bits per weight, with one 16-bit scale per group."""
    width = _positive(key, bits)
    return width if group in (None, -1) else width + 16 / _positive("group_size", group)


def _compressed(block: Mapping[str, Any]) -> _Stored:
    groups = block.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise InputError("'config_groups' of the compressed-tensors block must be an object")
    group = next(iter(groups.values()))
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise InputError("'config_groups' of the compressed-tensors block name no 'weights'")
    width = _scaled(weights.get("num_bits"), weights.get("group_size"), "num_bits")
    ignored = block.get("ignore") or []
    others = 16.0 if any("self_attn" in str(entry) for entry in ignored) else width
    inputs = group.get("input_activations")
    return _Stored(others, width, 8 if width == 8 and inputs else 16)
