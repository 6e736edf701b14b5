"""What `jaxecon optimize` answers and prints."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from ..optimum import audit, certified_optimum
from ..report._launch import launch_commands
from ..scenarios import Serving


def answer(scenario: Serving, name: str, budget: float, max_accelerators: int) -> dict[str, Any]:
    """The certified layout with its breakdown, ledger and launch commands; audited."""
    found = certified_optimum(scenario, budget, max_accelerators=max_accelerators)
    audit(scenario, found)
    layout = found.layout
    time, ledger = scenario.step_time(layout), scenario.ledger(layout)
    degrees = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
    numbers = {k: int(getattr(layout, k)) for k in degrees}
    parts = ("arithmetic", "memory", "network_bandwidth", "network_latency", "launch", "total")
    uses = ("weights", "kv_cache", "draft", "activations", "reserve", "capacity")
    longest = math.ceil(float(scenario.workload.full_context))
    return {
        "speed_tokens_per_s": found.speed,
        "cost_usd_per_million_tokens": found.cost,
        "layout": numbers,
        "step_time_s": {k: float(getattr(time, k)) for k in parts},
        "memory_bytes": {k: float(getattr(ledger, k)) for k in uses},
        "certificate": {
            "examined": found.examined,
            "space_size": found.space_size,
            "gap": found.gap,
        },
        "launch": launch_commands(name, numbers["tensor"], numbers["pipeline"], numbers["batch"], longest),
    }


def _repository(scenario: Serving, name: str) -> str:
    """The name under which engines find the model."""
    words = scenario.model.source.split()
    prefix = "https://huggingface.co/"
    return words[0].removeprefix(prefix) if words and words[0].startswith(prefix) else name


def show(result: dict[str, Any], model: str, accelerator: str) -> None:
    """Print an answer as tables."""
    console = Console()
    layout, proof = result["layout"], result["certificate"]
    console.print(
        f"[bold]{model}[/] on {layout['accelerators']} x {accelerator}: "
        f"[bold]{result['speed_tokens_per_s']:.1f} tokens/s[/] per request at "
        f"[bold]${result['cost_usd_per_million_tokens']:.3f}[/] per million output tokens"
    )
    console.print(
        f"tensor {layout['tensor']}, pipeline {layout['pipeline']}, batch {layout['batch']}; the best of "
        f"{proof['space_size']:,} legal layouts ({proof['examined']:,} examined, gap {proof['gap']:g})"
    )
    table = Table("part of a step", "ms", "memory of one accelerator", "GB")
    times = [(k.replace("_", " "), f"{1e3 * v:.3f}") for k, v in result["step_time_s"].items()]
    uses = [(k.replace("_", " "), f"{v / 1e9:.2f}") for k, v in result["memory_bytes"].items()]
    for left, right in zip(times, uses, strict=True):
        table.add_row(*left, *right)
    console.print(table)
    for engine, command in result["launch"].items():
        console.print(f"[dim]{engine}:[/] {command}", soft_wrap=True)
