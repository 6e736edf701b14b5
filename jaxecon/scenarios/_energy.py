"""Energy and carbon of generated tokens."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic, is_concrete
from ..cost._step import StepTime
from ..specs import Layout, Site

from ._serving import Serving


class Energy(eqx.Module):
    """What one output token takes, prompts included where the replica ingests them."""

    load: Array
    """Share of the time in which the accelerators compute or read memory."""
    watts: Array
    """Power of the site for one accelerator."""
    joules_per_token: Array
    grams_co2_per_token: Array


def energy(
    scenario: Serving, layout: Layout, site: Site | None = None, arithmetic: Arithmetic = EXACT
) -> Energy:
    """Energy of a token: accelerators x power x step time/(batch x tokens per step).

    The load is the larger of arithmetic and memory time, and the ingestion of prompts, over the step
    time. Power rises linearly with the load from idle to rated.

    Raises:
        InputError: if the accelerator's rated power is not known.
    """
    rated, site = scenario.accelerator.power, Site() if site is None else site
    if is_concrete(rated) and bool(jnp.any(rated <= 0.0)):
        raise InputError(
            f"'{scenario.accelerator.name}' has no rated power on record; set its power, in watts"
        )
    return energy_at(scenario, layout, site, scenario.step_time(layout, arithmetic), arithmetic)


def energy_at(
    scenario: Serving, layout: Layout, site: Site, time: StepTime, arithmetic: Arithmetic = EXACT
) -> Energy:
    """`energy` at a known step time."""
    rated = scenario.accelerator.power
    load = (arithmetic.maximum(time.arithmetic, time.memory) + time.prompts) / time.total
    watts = site.power(rated, load)
    tokens = layout.batch * scenario.tokens_per_step(layout)
    joules = layout.accelerators * watts * time.total / tokens
    return Energy(load, watts, joules, site.grams(joules))
