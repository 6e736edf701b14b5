"""Accelerators with fitted constants, and intervals around what is predicted with them."""

import os
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError, nearest
from .._programs import program
from ..scenarios import Serving
from ..specs import Accelerator, Layout
from ..specs import load_accelerator as load_plain
from ._apply import Places, calibrated, choosing, places, profile_of, with_collectives
from ._constants import FAMILIES, FAMILY_OF
from ._names import engine_name
from ._shipped import Shipped, shipped


_COLLECTIVES = ("library", "best")


class Interval(NamedTuple):
    """A predicted time with the interval that holds 90 % of measurements of its kind; seconds."""

    seconds: float
    low: float
    high: float
    new: str
    """What the constants are taken not to have seen: "model", or "accelerator" where no point of it
    was measured; decides how wide the interval is."""


def load_accelerator(
    name_or_path: str | os.PathLike[str],
    *,
    price_per_hour: float | None = None,
    engine: str | None = None,
    constants: str | os.PathLike[str] | None = None,
    collectives: str | None = None,
) -> Accelerator:
    """An accelerator of the catalogue (name in any case) or of a TOML file.

    With `engine`, its efficiencies and latencies are those fitted to measurements of that serving
    engine, prompts and decoding share it as that engine does, and of its collectives those are chosen
    from that the links allow (`Network.engine_algorithms`). An accelerator without measured points
    borrows from its family and from the constants that all share; `.calibration` says which. Without
    `engine` the efficiencies are those of the file, the collectives the library's alone, and
    `.calibration` is "not calibrated".

    Args:
        name_or_path: a catalogue name or the path of a TOML file.
        price_per_hour: US dollars per accelerator and hour, in place of the recorded rental price.
        engine: "vllm", "tensorrt-llm", "sglang", "gpt-fast" or "neuron".
        constants: a file that `jaxecon calibrate --out` has written, in place of the shipped one.
        collectives: "library" for the library's alone, whatever the engine; "best" for all that engines
            have on these links, without an engine at the latencies that the file states. By default an
            engine's own where one is named, else those of the file.

    Raises:
        InputError: if `collectives` is neither, the name or file is unknown or malformed, no price is
            known, no constants are fitted for the engine, or the accelerator's links are a torus, which
            no data cover.
    """
    plain = load_plain(name_or_path, price_per_hour=price_per_hour)
    if collectives not in (None, *_COLLECTIVES):
        raise InputError(f"no collectives {collectives!r}; {nearest(str(collectives), _COLLECTIVES)}")
    network = plain.network
    best = tuple(dict.fromkeys((*network.algorithms, *network.engine_algorithms)))
    names = {"library": ("library",), "best": best}.get(collectives or "")
    chosen = None if names is None else with_collectives(plain, names)
    if engine is None:
        return plain if chosen is None else chosen
    fitted = shipped(None if constants is None else Path(constants))
    name = engine_name(engine)
    valid = sorted(set(fitted.engines) - {"other"})
    if name not in valid:
        raise InputError(f"no fitted constants for engine {engine!r}; {nearest(engine, valid)}")
    if plain.network.kind == "torus":
        raise InputError(f"{plain.name} has a torus of links, for which nothing is fitted; leave engine out")
    where = _places(str(plain.name), name)
    note = _provenance(fitted, str(plain.name))
    return calibrated(jnp.asarray(fitted.vector), chosen or choosing(plain, name), name, where, note)


def _places(machine: str, engine: str) -> Places:
    return {k: jnp.asarray(v) for k, v in places(machine, engine).items()}


def _provenance(fitted: Shipped, machine: str) -> str:
    rows, family = fitted.accelerators.get(machine, 0), FAMILY_OF.get(machine, "")
    text = f"constants of {fitted.date}, fitted to {sum(fitted.accelerators.values())} rows"
    if rows:
        return f"{text}, {rows} of them of {machine}"
    shared = f"its family's ({family})" if family in FAMILIES or family == "blackwell" else "what all share"
    return f"{text}, none of them of {machine}, which borrows {shared}"


def predict_interval(
    scenario: Serving,
    layout: Layout,
    *,
    constants: str | os.PathLike[str] | None = None,
) -> Interval:
    """Seconds per output token with the interval that holds 90 % of measurements.

    The constants' covariance goes through the gradient of ln time; beside it stands the spread that
    the fit leaves, and a factor learnt from rows that fits without their model, accelerator or engine
    have predicted.

    Args:
        scenario: a question whose accelerator was loaded with `engine`.
        layout: one layout.
        constants: the file that the accelerator was loaded with, if not the shipped one.

    Raises:
        InputError: where the accelerator was loaded without an engine.
    """
    profile = scenario.accelerator.engine
    if profile is None:
        raise InputError("an interval needs fitted constants; load the accelerator with engine=")
    fitted = shipped(None if constants is None else Path(constants))
    engine, machine = str(profile.name), str(scenario.accelerator.name)
    vector = jnp.asarray(fitted.vector)
    where = _places(machine, engine)
    value, gradient = _log_time(vector, scenario, layout, where, engine)
    new = "model" if machine in fitted.accelerators else "accelerator"
    half = float(fitted.spread.half_width(np.asarray(gradient), new)[0])
    half = max(half, float(fitted.spread.half_width(np.asarray(gradient), "model")[0]))
    seconds = float(jnp.exp(value))
    return Interval(seconds, seconds * float(np.exp(-half)), seconds * float(np.exp(half)), new)


@program
def _log_time(
    vector: Array, scenario: Serving, layout: Layout, where: Places, engine: str
) -> tuple[Array, Array]:
    def log_time(x: Array) -> Array:
        hardware = calibrated(x, scenario.accelerator, engine, where)
        changed = eqx.tree_at(
            lambda s: [s.accelerator, s.kernels_per_layer, s.engine_overhead],
            scenario,
            [hardware, profile_of(hardware).kernels_per_layer, profile_of(hardware).step_overhead],
        )
        return jnp.log(changed.step_time(layout).total / changed.tokens_per_step(layout))

    return jax.value_and_grad(log_time)(vector)
