"""What `jaxecon frontier` prints."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ..optimum import Frontier

_SHOWN = 24


def rows_of(found: Frontier, model: str, accelerator: str) -> list[dict[str, Any]]:
    """One mapping per vertex, fastest first."""
    layout = found.layout
    degrees = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
    columns = {k: np.asarray(getattr(layout, k)).astype(int).tolist() for k in degrees}
    return [
        {
            "model": model,
            "accelerator": accelerator,
            "speed_tokens_per_s": float(found.speed[i]),
            "cost_usd_per_million_tokens": float(found.cost[i]),
            **{k: v[i] for k, v in columns.items()},
        }
        for i in range(len(found.speed))
    ]


def show_frontier(rows: list[dict[str, Any]], space_size: int) -> None:
    """Print a thinned table; all vertices are in --json and --csv."""
    names = ("model", "accelerator", "tokens/s")
    table = Table(*names, "$ per million", "accelerators", "tensor", "data", "expert", "pipeline", "batch")
    picks = np.unique(np.linspace(0, len(rows) - 1, min(_SHOWN, len(rows))).astype(int))
    for row in (rows[i] for i in picks):
        speed, cost = row["speed_tokens_per_s"], row["cost_usd_per_million_tokens"]
        what = (row["model"], row["accelerator"])
        rest = [str(row[k]) for k in ("accelerators", "tensor", "data", "expert", "pipeline", "batch")]
        table.add_row(*what, f"{speed:.1f}", f"{cost:.3f}", *rest)
    console = Console()
    console.print(table)
    console.print(f"{len(picks)} of {len(rows)} vertices, the best of {space_size:,} legal layouts")
