"""Constants into an accelerator: the one place where a fitted number meets the cost model."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..specs import Accelerator, Efficiencies, EngineProfile
from ._constants import CONSTANTS, ENGINES, FAMILY_OF, NAMES, SHARE, algorithms

LAUNCH = 2.5e-6
"""Seconds of one launch; constants in seconds are given to the cost model as multiples of it."""
_SHARED = {c.name: i for i, c in enumerate(CONSTANTS) if "." not in c.name}
_LEVELS = (
    "family.memory",
    "family.arithmetic",
    "family.launch",
    "family.expert_memory",
    "family.step",
    "family.collective",
    "machine.rate",
    "engine.launch",
    "engine.step",
    "engine.collective",
    "engine.hopper_cache",
    "engine.exposure",
    "engine.mixing",
)
Vector = Float[Array, " constants"]
Places = dict[str, Array]
"""Where in the vector, with a 0 appended, each level's constant of one accelerator and engine is."""


def places(machine: str, engine: str) -> dict[str, int]:
    """Positions of the constants that apply to a machine and engine; the appended 0 for the rest.

    An engine without constants of its own shares prompts and decoding as vLLM does.
    """
    family, found = FAMILY_OF.get(machine, ""), {}
    for level in _LEVELS:
        group, what = level.split(".")
        owner = {"family": family, "machine": machine, "engine": engine}[group]
        if what in ("exposure", "mixing") and owner not in ENGINES:
            owner = "vllm"
        name = f"{owner}.{what}"
        applies = name in NAMES and not (what == "hopper_cache" and family != "hopper")
        found[level] = NAMES.index(name) if applies else len(NAMES)
    return found


def calibrated(
    vector: Vector, accelerator: Accelerator, engine: str, where: Mapping[str, Array], note: str = "fitted"
) -> Accelerator:
    """The accelerator with efficiencies, latencies and engine profile of unconstrained constants.

    Args:
        vector: the constants, unconstrained, in the order of `CONSTANTS`.
        accelerator: its full rates and links, with the engine's collectives (`choosing`); efficiencies
            and latencies are replaced.
        engine: the engine's short name.
        where: `places` of the accelerator and engine.
        note: what `.calibration` says.
    """
    value = {
        name: jax.nn.sigmoid(vector[i]) if CONSTANTS[i].kind == SHARE else jnp.exp(vector[i])
        for name, i in _SHARED.items()
    }
    level = jnp.concatenate([vector, jnp.zeros(1, dtype=vector.dtype)])
    factor = {name: jnp.exp(level[where[name]]) for name in _LEVELS}
    rate = factor["machine.rate"]
    memory, arithmetic = value["memory_16bit"], value["arithmetic_16bit"]
    expert = value["expert_memory_16bit"]
    efficiencies = Efficiencies(
        attention_arithmetic=value["attention_arithmetic"] / arithmetic,
        attention_memory=value["attention_memory"] / memory * factor["engine.hopper_cache"],
        expert_arithmetic=value["expert_arithmetic"],
        expert_memory=expert / memory * factor["family.expert_memory"],
        arithmetic_8bit=value["arithmetic_8bit"] / arithmetic,
        arithmetic_4bit=value["arithmetic_4bit"] / arithmetic,
        memory_8bit=value["memory_8bit"] / memory,
        memory_4bit=value["memory_4bit"] / memory,
        expert_memory_8bit=value["expert_memory_8bit"] / expert,
        expert_memory_4bit=value["expert_memory_4bit"] / expert,
    )
    profile = EngineProfile(
        kernels_per_layer=value["layer_launch_s"] / LAUNCH,
        expert_kernels=value["expert_launch_s"] / LAUNCH,
        latent_kernels=value["latent_launch_s"] / LAUNCH,
        narrow_kernels=value["narrow_launch_s"] / LAUNCH,
        residual_passes=value["residual_passes"],
        step_overhead=value["step_overhead_s"] * factor["engine.step"] * factor["family.step"],
        sequence_overhead=value["sequence_overhead_s"],
        prompt_exposure=jax.nn.sigmoid(level[where["engine.exposure"]]),
        prompt_mixing=jax.nn.sigmoid(level[where["engine.mixing"]]),
        name=engine,
    )
    network = accelerator.network
    network = eqx.tree_at(
        lambda n: [
            n.direct_latency,
            n.scale_up_hop,
            n.scale_up_efficiency,
            n.scale_out_efficiency,
            n.exchange_latency,
        ],
        network,
        [
            jnp.zeros_like(vector[0]),
            value["collective_hop_s"] * factor["family.collective"] * factor["engine.collective"],
            value["link_efficiency"],
            value["link_efficiency"],
            value["exchange_latency_s"],
        ],
    )
    return Accelerator(
        **_fields(accelerator)
        | {
            "arithmetic_efficiency": arithmetic * factor["family.arithmetic"] * rate,
            "memory_efficiency": memory * factor["family.memory"] * rate,
            "kernel_launch_latency": LAUNCH * factor["family.launch"] * factor["engine.launch"],
            "efficiencies": efficiencies,
            "network": network,
            "engine": profile,
            "calibration": note,
        }
    )


def profile_of(accelerator: Accelerator) -> EngineProfile:
    """The engine's profile of an accelerator that has constants."""
    if accelerator.engine is None:
        raise ValueError("the accelerator has no engine profile")
    return accelerator.engine


def choosing(accelerator: Accelerator, engine: str | None) -> Accelerator:
    """The accelerator with the collectives that an engine chooses from; None for the library's alone."""
    links = accelerator.network.engine_algorithms
    return with_collectives(accelerator, ("library",) if engine is None else algorithms(engine, links))


def with_collectives(accelerator: Accelerator, names: tuple[str, ...]) -> Accelerator:
    """The accelerator with these collectives to choose from."""
    network = accelerator.network
    network = type(network)(**_fields(network) | {"algorithms": names})
    return eqx.tree_at(lambda a: a.network, accelerator, network)


def _fields(module: eqx.Module) -> dict:
    return {name: getattr(module, name) for name in type(module).__dataclass_fields__}


def stacked_places(pairs: list[tuple[str, str]]) -> Places:
    """`places` of many (machine, engine) pairs, each as an array."""
    found = [places(*pair) for pair in pairs]
    return {level: jnp.asarray(np.asarray([f[level] for f in found])) for level in _LEVELS}
