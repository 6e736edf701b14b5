"""The fitted constants: names, meanings, and what physics says about them beforehand."""

import math
from typing import NamedTuple

import numpy as np

SHARE, POSITIVE, FACTOR = "share", "positive", "factor"


class Constant(NamedTuple):
    """One constant. Fitted as a logit (share) or logarithm (positive, factor), with a normal prior."""

    name: str
    kind: str
    prior: float
    """Prior median, in the constant's own units."""
    spread: float
    """Prior standard deviation of the logit or logarithm."""
    meaning: str

    def inner(self, value: float) -> float:
        """The unconstrained number behind a value."""
        return math.log(value / (1.0 - value)) if self.kind == SHARE else math.log(value)

    def value(self, inner: float) -> float:
        """The value behind an unconstrained number."""
        return 1.0 / (1.0 + math.exp(-inner)) if self.kind == SHARE else math.exp(inner)


_STREAM = "HBM streams reach 0.83 to 0.89 of the rated bandwidth, matrix-vector products less"
_GEMM = "large products reach 0.68 to 0.8 of the rated FLOP/s, wider operands more"


def _shared() -> list[Constant]:
    rows = [
        ("memory_16bit", SHARE, 0.85, 0.2, f"share of memory bandwidth reading 16-bit matrices; {_STREAM}"),
        ("memory_8bit", SHARE, 0.85, 0.2, "likewise, 8-bit matrices"),
        ("memory_4bit", SHARE, 0.7, 0.2, "likewise, 4-bit matrices, whose scales are read apart"),
        ("expert_memory_16bit", SHARE, 0.75, 0.25, "likewise, 16-bit routed experts, in grouped products"),
        ("expert_memory_8bit", SHARE, 0.75, 0.25, "likewise, 8-bit routed experts"),
        ("expert_memory_4bit", SHARE, 0.65, 0.25, "likewise, 4-bit routed experts"),
        ("attention_memory", SHARE, 0.8, 0.2, "likewise, the cache"),
        ("arithmetic_16bit", SHARE, 0.7, 0.25, f"share of peak FLOP/s of 16-bit products; {_GEMM}"),
        ("arithmetic_8bit", SHARE, 0.6, 0.25, "likewise, 8-bit"),
        ("arithmetic_4bit", SHARE, 0.5, 0.25, "likewise, 4-bit"),
        ("attention_arithmetic", SHARE, 0.45, 0.4, "likewise, scores and weighted values"),
        ("expert_arithmetic", SHARE, 0.5, 0.4, "routed experts' share relative to a dense product's"),
        ("layer_launch_s", POSITIVE, 4e-6, 0.4, "seconds per layer that its launches leave visible"),
        ("expert_launch_s", POSITIVE, 2.2e-5, 0.4, "further seconds per layer with routed experts"),
        ("latent_launch_s", POSITIVE, 4e-5, 0.4, "further seconds per layer with latent attention or state"),
        ("narrow_launch_s", POSITIVE, 6e-6, 0.4, "further seconds per layer to quantize to 4 bits"),
        ("step_overhead_s", POSITIVE, 2e-3, 0.5, "seconds per step on the host"),
        ("sequence_overhead_s", POSITIVE, 1e-5, 0.7, "seconds per step and sequence of a data rank"),
        ("residual_passes", POSITIVE, 12.0, 0.5, "times a layer moves the residual stream beside products"),
        ("collective_hop_s", POSITIVE, 5e-6, 0.3, "seconds per hop of an engine's own collectives"),
        ("link_efficiency", SHARE, 0.75, 0.2, "share of the link rate in a large collective"),
        ("exchange_latency_s", POSITIVE, 1.5e-5, 0.3, "seconds that each dispatch or combine adds"),
    ]
    return [Constant(*row) for row in rows]


FAMILIES = {
    "hopper": {"memory": 0.1, "arithmetic": 0.2, "launch": 0.4, "expert_memory": 0.1, "collective": 0.15},
    "ampere": {"memory": 0.1},
    "cdna": {"memory": 0.15, "arithmetic": 0.3, "launch": 0.4, "step": 0.3},
    "neuron": {"memory": 0.5, "step": 0.5},
}
"""Factors of a family of accelerators beside the others' (Blackwell's), with the spread of their
logarithms: what the family's rates and launches are to the shared constants."""
_MEDIANS = {"hopper.collective": 0.85}
"""Prior medians of such factors other than 1: a one-shot kernel alone takes 4.3 us on an H100 and 5.0 us
on a B200, as their catalogue files say."""
_TITLES = {"hopper": "Hopper", "ampere": "Ampere", "cdna": "AMD Instinct", "neuron": "AWS Neuron"}
MACHINES = {"b300-sxm": 0.02, "gb200-nvl72": 0.02, "h200-sxm": 0.02}
"""Factors on all rates of one machine beside its family's, likewise."""
_ENGINE = {"launch": 0.1, "step": 0.15, "collective": 0.1, "hopper_cache": 0.2}
_EXPOSURE = {"vllm": (0.9, 0.2), "tensorrt-llm": (0.9, 0.2), "sglang": (0.5, 0.2)}
_MIXING = {"vllm": (0.7, 1.0), "tensorrt-llm": (0.7, 1.0), "sglang": (0.2, 1.0)}
ENGINES = tuple(_EXPOSURE)
"""Engines with constants of their own for sharing accelerators between prompts and decoding."""
FAMILY_OF = {
    "b200-sxm": "blackwell",
    "b300-sxm": "blackwell",
    "gb200-nvl72": "blackwell",
    "gb300-nvl72": "blackwell",
    "rtx-pro-6000": "blackwell",
    "h100-sxm": "hopper",
    "h100-pcie": "hopper",
    "h100-nvl": "hopper",
    "h200-sxm": "hopper",
    "h20": "hopper",
    "h800-sxm": "hopper",
    "gh200": "hopper",
    "a100-sxm-40gb": "ampere",
    "a100-sxm-80gb": "ampere",
    "a100-pcie-80gb": "ampere",
    "mi250x": "cdna",
    "mi300x": "cdna",
    "mi325x": "cdna",
    "mi355x": "cdna",
    "inferentia2": "neuron",
    "trainium2": "neuron",
}
"""Families whose machines share constants; a machine not listed has the shared constants alone."""
_KERNELS = ("one_shot", "two_shot", "pairwise")
KERNELS = {
    "tensorrt-llm": ("one_shot", "pairwise"),
    "vllm": ("one_shot", "two_shot", "in_switch", "pairwise"),
    "sglang": _KERNELS,
    "gpt-fast": (),
    "neuron": (),
}
"""Collectives of an engine's own, where the links allow them. TensorRT-LLM keeps to one-shot
reductions; gpt-fast, whose reductions are PyTorch's, is taken to use the library's."""


def algorithms(engine: str, links: tuple[str, ...]) -> tuple[str, ...]:
    """What an engine chooses from on links that allow `links` (`Network.engine_algorithms`)."""
    own = KERNELS.get(engine, _KERNELS)
    return ("library", *(name for name in links if name in own))


def _levels() -> list[Constant]:
    rows = []
    for family, factors in FAMILIES.items():
        for what, spread in factors.items():
            text = f"{what.replace('_', ' ')} of {_TITLES[family]} accelerators beside the shared constant"
            name = f"{family}.{what}"
            rows.append(Constant(name, FACTOR, _MEDIANS.get(name, 1.0), spread, text))
    for machine, spread in MACHINES.items():
        rows.append(
            Constant(f"{machine}.rate", FACTOR, 1.0, spread, f"all rates of {machine} beside its family's")
        )
    for engine in ENGINES:
        for what, spread in _ENGINE.items():
            text = f"{what.replace('_', ' ')} of {engine} beside the shared constant"
            rows.append(Constant(f"{engine}.{what}", FACTOR, 1.0, spread, text))
        share, spread = _EXPOSURE[engine]
        text = f"share of other prompts that delays decoding in {engine}, 0.5 where requests move in step"
        rows.append(Constant(f"{engine}.exposure", SHARE, share, spread, text))
        share, spread = _MIXING[engine]
        rows.append(
            Constant(f"{engine}.mixing", SHARE, share, spread, f"prompt chunks in decode passes of {engine}")
        )
    for what in ("launch", "step"):
        rows.append(
            Constant(f"gpt-fast.{what}", FACTOR, 1.0, 0.7, f"{what} of gpt-fast beside the shared constant")
        )
    return rows


CONSTANTS = tuple(_shared() + _levels())
"""All fitted constants, in the order of every vector and covariance here."""
NAMES = tuple(c.name for c in CONSTANTS)
PRIOR_MEAN = np.asarray([c.inner(c.prior) for c in CONSTANTS])
PRIOR_SPREAD = np.asarray([c.spread for c in CONSTANTS])
