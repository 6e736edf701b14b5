"""Which catalogue entry a measured row means, and which precision."""

import re
from typing import NamedTuple

from .._errors import InputError, nearest
from ..specs import Model, list_accelerators, list_models, load_model

_ACCELERATORS = {
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "h800": "h800-sxm",
    "a100": "a100-sxm-80gb",
    "mi250": "mi250x",
    "v100": "v100-sxm2-32gb",
}
_ENGINES = (
    ("tensorrt", "tensorrt-llm"),
    ("trtllm", "tensorrt-llm"),
    ("trt-llm", "tensorrt-llm"),
    ("fastertransformer", "tensorrt-llm"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("gpt-fast", "gpt-fast"),
    ("neuron", "neuron"),
)
# Endings that name a variant of the same shapes, cut off one after the other.
_ENDINGS = re.compile(
    r"-(hf|instruct|chat|base|it|bf16|fp16|fp8|nvfp4|fp4|int8|int4|awq|gptq|fp8-kv|v\d(\.\d|_\d)?|\d{4})$"
)
_SAME_SHAPES = {
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-v3/r1": "deepseek-r1",
    "mistral-7b": "mistral-7b-v0.1",
}


class Precisions(NamedTuple):
    """Bits per weight (scales included), per expert weight and per cached element; operand width."""

    weight: float
    expert: float
    kv: float
    compute: int


def model_of(name: str, repository: str, precisions: Precisions) -> Model:
    """The catalogue's model behind a row's spelling, in a row's precision.

    Raises:
        InputError: where neither spelling is recognised.
    """
    known = set(list_models())
    for spelling in (name, repository):
        found = _known(spelling, known)
        if found is not None:
            return load_model(
                found,
                weight_bits=precisions.weight,
                expert_bits=precisions.expert,
                kv_bits=precisions.kv,
                compute_bits=precisions.compute,
            )
    raise InputError(f"unknown model '{name}'; {nearest(name.lower(), sorted(known))}")


def _known(spelling: str, known: set[str]) -> str | None:
    whole = spelling.lower().removeprefix("meta-")
    last = whole.rsplit("/", 1)[-1].removeprefix("meta-").removeprefix("nvidia-")
    for text in (whole, last.replace("llama-3_", "llama-3.")):
        while text:
            if text in known:
                return text
            if text in _SAME_SHAPES:
                return _SAME_SHAPES[text]
            shorter = _ENDINGS.sub("", text)
            text = "" if shorter == text else shorter
    return None


def accelerator_name(spelling: str) -> str:
    """The catalogue's name of an accelerator.

    Raises:
        InputError: for an unknown one, with the nearest name.
    """
    text, names = spelling.lower(), list_accelerators()
    text = re.sub(r"[\s_]+", "-", text)
    for name in (text, re.sub(r"-\d+gb$", "", text), _ACCELERATORS.get(text.split("-")[0], "")):
        if name in names:
            return name
    raise InputError(f"unknown accelerator '{spelling}'; {nearest(text, names)}")


def engine_name(spelling: str) -> str:
    """The engine's short name; "other" where no constants can be told for it."""
    text = spelling.lower()
    return next((name for part, name in _ENGINES if part in text), "other")


def precisions_of(weights: str, cache: str) -> Precisions:
    """Bits behind the usual names. NVFP4 has an 8-bit scale per 16 weights, int4 a 16-bit one per 32;
    a cache that is not stated has 8 bits beside quantized operands of at most 8 bits, else 16.

    Raises:
        InputError: for a name that says no precision.
    """
    text = weights.lower()
    if "moe" in text and "attention" in text:
        return Precisions(16.0, 4.5, _cache_bits(cache, 16), 16)
    for name, stored, compute in (
        ("fp4", 4.5, 4),
        ("native", 8.0, 8),
        ("fp8", 8.0, 8),
        ("int4", 4.5, 16),
        ("int8", 8.0, 16),
        ("bf16", 16.0, 16),
        ("fp16", 16.0, 16),
    ):
        if name in text:
            expert = 4.25 if name == "native" else stored
            return Precisions(stored, expert, _cache_bits(cache, compute), compute)
    if text:
        raise InputError(f"'weight_prec' is {weights!r}; expected bf16, fp16, fp8, int8, int4 or nvfp4")
    return Precisions(16.0, 16.0, _cache_bits(cache, 16), 16)


def _cache_bits(text: str, compute: int) -> float:
    text = text.lower()
    if "usually fp8" in text or not text:
        return 8.0 if compute < 16 else 16.0
    return 8.0 if "fp8" in text or "int8" in text else 16.0
