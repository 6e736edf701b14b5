"""What `jaxecon optimize` answers, and how one layout is printed."""

from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from .._errors import InfeasibleError
from ..calibration import predict_interval
from ..optimum import (
    RelaxedOptimum,
    Space,
    audit,
    binding_shares,
    certified_optimum,
    prepare_relaxed,
    prepare_shares,
    prepare_space,
    relaxed_optimum,
    rounded,
)
from ..scenarios import Serving, inspect_layouts, prepare_account
from ..specs import Layout, Site
from ._explain import described


def answer(
    scenario: Serving, name: str, budget: float, max_accelerators: int, site: Site | None = None
) -> dict[str, Any]:
    """The certified layout with its breakdown, ledger and launch commands, audited; the relaxed optimum
    and its best neighbour on the lattice beside it."""
    _prepare(scenario, budget, max_accelerators, site)
    with ThreadPoolExecutor(1) as other:
        relaxed = other.submit(relaxed_optimum, scenario, budget, max_accelerators=max_accelerators)
        figures = _certified(scenario, name, budget, max_accelerators, site)
        try:
            best = relaxed.result()
        except InfeasibleError:
            return figures | {"relaxed": None, "rounded": None, "shadow_price": None}
    near = rounded(Space(scenario, max_accelerators), best.layout, budget)
    certified = figures["speed_tokens_per_s"]
    figures["relaxed"] = _relaxed(scenario, best, certified)
    figures["rounded"] = None if near is None else _beside_certified(*near, certified)
    return figures | {"shadow_price": best.shadow_price}


def _prepare(scenario: Serving, budget: float, max_accelerators: int, site: Site | None) -> None:
    """Begin to compile what the answer takes: the longest first, then what the search waits for."""
    prepare_relaxed(scenario, budget, max_accelerators=max_accelerators)
    prepare_space(scenario, max_accelerators)
    inspect_layouts.prepare(scenario, Layout(1.0))
    prepare_account(scenario, site)
    prepare_shares(scenario)


def _certified(
    scenario: Serving, name: str, budget: float, max_accelerators: int, site: Site | None
) -> dict[str, Any]:
    found = certified_optimum(scenario, budget, max_accelerators=max_accelerators)
    audit(scenario, found)
    proof = {
        "examined": found.examined,
        "pruned": found.pruned,
        "space_size": found.space_size,
        "gap": found.gap,
    }
    figures = described(scenario, found.layout, name, site)
    figures["speed_tokens_per_s"] = found.speed
    figures["cost_usd_per_million_tokens"] = found.cost
    figures["certificate"] = proof
    return figures | interval(scenario, found.layout)


def interval(scenario: Serving, layout: Layout) -> dict[str, Any]:
    """What a calibrated prediction is worth; nothing but the word where no constants are fitted."""
    figures: dict[str, Any] = {"calibration": str(scenario.accelerator.calibration), "interval": None}
    if scenario.accelerator.engine is None:
        return figures
    found = predict_interval(scenario, layout)
    batch, price = float(layout.batch), float(scenario.accelerator.price)
    cost = 1e6 * float(layout.accelerators) * price / batch
    figures["interval"] = {
        "probability": 0.9,
        "new": found.new,
        "seconds_per_token": [found.low, found.high],
        "speed_tokens_per_s": [1.0 / found.high, 1.0 / found.low],
        "cost_usd_per_million_tokens": [cost * found.low, cost * found.high],
    }
    return figures


def _beside_certified(layout: Layout, speed: float, cost: float, certified: float) -> dict[str, Any]:
    degrees = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
    layout = jax.tree.map(np.asarray, layout)
    return {
        "speed_tokens_per_s": speed,
        "cost_usd_per_million_tokens": cost,
        "layout": {k: float(getattr(layout, k)) for k in degrees},
        "ahead_of_certified": speed / certified - 1.0,
    }


def _relaxed(scenario: Serving, best: RelaxedOptimum, certified: float) -> dict[str, Any]:
    figures = _beside_certified(best.layout, best.speed, best.cost, certified)
    figures |= {"residual": best.residual, "status": best.status, "multipliers": best.multipliers}
    return figures | {"binds": binding_shares(scenario, best) if best.status == "success" else None}


def show(result: dict[str, Any], model: str, accelerator: str) -> None:
    """Print an answer as tables."""
    console = Console()
    layout = result["layout"]
    console.print(
        f"[bold]{model}[/] on {layout['accelerators']} x {accelerator}: "
        f"[bold]{result['speed_tokens_per_s']:.1f} tokens/s[/] per request at "
        f"[bold]${result['cost_usd_per_million_tokens']:.3f}[/] per million output tokens",
        soft_wrap=True,
    )
    line = across(layout, "d") + f", pipeline {layout['pipeline']}, batch {layout['batch']}"
    if layout["draft_tokens"]:
        line += f", {layout['draft_tokens']} drafted tokens"
    if "certificate" in result:
        proof = result["certificate"]
        line += f"; the best of {proof['space_size']:,} legal layouts, proven by examining "
        line += f"{proof['examined']:,}; gap {100 * proof['gap']:.2g} %"
    console.print(line, soft_wrap=True)
    if result.get("interval"):
        low, high = result["interval"]["speed_tokens_per_s"]
        console.print(f"90 % of measurements: {low:.1f} to {high:.1f} tokens/s", soft_wrap=True)
    if "calibration" in result:
        advice = "" if result["interval"] else "; --engine uses constants fitted to measurements"
        console.print(f"[dim]{result['calibration']}{advice}[/]", soft_wrap=True)
    if result.get("relaxed"):
        console.print(_three_layouts(result))
        console.print(_binding_line(result["relaxed"]), soft_wrap=True)
    table = Table("part of a step", "ms", "memory of one accelerator", "GB")
    times = [(k.replace("_", " "), f"{1e3 * v:.3f}") for k, v in result["step_time_s"].items()]
    uses = [(k.replace("_", " "), f"{v / 1e9:.2f}") for k, v in result["memory_bytes"].items()]
    for left, right in zip_longest(times, uses, fillvalue=("", "")):
        table.add_row(*left, *right)
    console.print(table)
    if result["collectives"]:
        words = ", ".join(f"{k.replace('_', '-')} {v}" for k, v in result["collectives"].items())
        console.print(f"collectives of a step: {words}", soft_wrap=True)
    console.print(_beside(result), soft_wrap=True)
    for engine, command in result["launch"].items():
        console.print(f"[dim]{engine}:[/] {command}", soft_wrap=True, highlight=False)


def across(layout: dict[str, Any], form: str) -> str:
    """Degrees across a stage, those of experts only where they are used."""
    names = ["tensor", *(k for k in ("data", "expert") if layout[k] > 1)]
    return ", ".join(f"{k} {layout[k]:{form}}" for k in names)


def _beside(result: dict[str, Any]) -> str:
    """Prompts, prices by kind of token, and energy in one line."""
    price, used = result["prices_usd_per_million_tokens"], result["energy"]
    line = f"first token after {result['time_to_first_token_s']:.3g} s, a request after "
    line += f"{result['request_time_s']:.3g} s; per million tokens ${price['input']:.3g} in, "
    line += f"${price['output']:.3g} out, ${price['blended']:.3g} blended"
    if used is not None:
        line += f"; {used['joules_per_output_token']:.3g} J and "
        line += f"{1e3 * used['grams_co2_per_output_token']:.3g} mg CO2 per output token"
    return line


def _three_layouts(result: dict[str, Any]) -> Table:
    """Relaxed, rounded and certified side by side."""
    table = Table()
    table.add_column("layout", no_wrap=True)
    table.add_column("tokens/s", no_wrap=True)
    table.add_column("$/M tokens")
    table.add_column("degrees", no_wrap=True)
    table.add_column("batch")
    table.add_column("speed", no_wrap=True)
    for name in ("relaxed", "rounded", "certified"):
        one = result if name == "certified" else result.get(name)
        if one is None:
            continue
        layout, form = one["layout"], ".2f" if name == "relaxed" else ".0f"
        ahead = "" if name == "certified" else f"{100 * one['ahead_of_certified']:+.2f} %"
        degrees = across(layout, form) + f", pipeline {layout['pipeline']:{form}}"
        if layout["draft_tokens"] > 0:
            degrees += f", {layout['draft_tokens']:{form}} drafted"
        figures = (f"{one['speed_tokens_per_s']:.2f}", f"{one['cost_usd_per_million_tokens']:.3f}")
        table.add_row(name, *figures, degrees, f"{layout['batch']:{form}}", ahead)
    return table


def _binding_line(relaxed: dict[str, Any]) -> str:
    if relaxed["binds"] is None:
        return f"no sensitivities at the relaxed optimum: {relaxed['status']}"
    ordered = sorted(relaxed["binds"].items(), key=lambda x: -abs(x[1]))
    words = ", ".join(f"{k} {v:.3f}" for k, v in ordered if abs(v) > 1e-3)
    return f"one percent more of each buys, in percent of speed: {words}"


def flat(result: dict[str, Any]) -> dict[str, Any]:
    """One row of an answer, for CSV."""
    row = {k: v for k, v in result.items() if not isinstance(v, dict)}
    parts = ("layout", "step_time_s", "collectives", "memory_bytes", "prices_usd_per_million_tokens")
    for key in (*parts, "energy", "certificate", "relaxed", "rounded"):
        part = result.get(key) or {}
        row |= {f"{key}.{k}": v for k, v in part.items() if not isinstance(v, dict)}
    return row
