"""What a layout gives beside speed and cost: prompts, prices by kind of token, energy."""

from typing import Any

from .._programs import program
from ..specs import Layout, Site

from ._energy import energy
from ._prompts import prices, request_time
from ._serving import Serving


@program
def _figures(scenario: Serving, layout: Layout, site: Site, powered: bool) -> tuple[Any, ...]:
    first = scenario.time_to_first_token(layout)
    whole = request_time(scenario.workload, first, scenario.speed(layout))
    used = energy(scenario, layout, site) if powered else None
    return first, whole, prices(scenario, layout), used


def prepare_account(scenario: Serving, site: Site | None = None) -> None:
    """In a command's process begin to compile what `account` runs."""
    _figures.prepare(scenario, Layout(1.0), Site() if site is None else site, _powered(scenario))


def _powered(scenario: Serving) -> bool:
    return float(scenario.accelerator.power) > 0.0


def account(scenario: Serving, layout: Layout, site: Site | None = None) -> dict[str, Any]:
    """Seconds to the first token and of a request, US dollars per million tokens, and energy.

    Energy is None where the accelerator's rated power is not known.
    """
    powered = _powered(scenario)
    first, whole, price, used = _figures(scenario, layout, Site() if site is None else site, powered)
    result: dict[str, Any] = {
        "time_to_first_token_s": float(first),
        "request_time_s": float(whole),
        "prices_usd_per_million_tokens": {
            "input": float(price.input),
            "output": float(price.output),
            "blended": float(price.blended),
        },
        "energy": None,
    }
    if used is not None:
        result["energy"] = {
            "load": float(used.load),
            "watts_per_accelerator": float(used.watts),
            "joules_per_output_token": float(used.joules_per_token),
            "grams_co2_per_output_token": float(used.grams_co2_per_token),
        }
    return result
