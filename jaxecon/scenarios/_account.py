"""What a layout gives beside speed and cost: prompts, prices by kind of token, energy."""

from typing import Any

from .._programs import program
from ..specs import Layout, Site

from ._energy import energy_at
from ._prompts import prices_at, request_time
from ._serving import Serving


@program
def _figures(scenario: Serving, layout: Layout, site: Site, powered: bool) -> tuple[Any, ...]:
    # Each pass is traced once, which a cold start waits for.
    decode, ingest = scenario.decode_time(layout), scenario.prompt_pass(layout)
    time = scenario.with_prompts(layout, decode, ingest=ingest)
    first = scenario.first_token(ingest, decode)
    whole = request_time(scenario.workload, first, scenario.speed_at_time(layout, time))
    seconds = ingest / (layout.pipeline * layout.data)
    price = prices_at(scenario, layout, layout, seconds, scenario.speed_at_time(layout, decode))
    used = energy_at(scenario, layout, site, time) if powered else None
    return first, whole, price, used


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
