"""What `jaxecon exponents` answers and prints."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .._errors import InputError
from ..report import curves_chart
from ..scenarios import Serving
from ..sensitivity import PowerFamily, ScalingExponent, power_family, scaling_exponent, size_family

# The paper's exponents without a budget (Erdil 2025), where it states any.
_STATED = {"parameters": "-1/2", "HBM bandwidth": "+1/3"}


def families(scenario: Serving, depth_exponent: float, priced: bool) -> dict[str, PowerFamily]:
    """The families of the table; the price only where a budget can bind."""
    single = {
        "HBM bandwidth": ("accelerator.hbm_bandwidth",),
        "peak FLOP/s": ("accelerator.arithmetic_efficiency",),
        "network bandwidth": (
            "accelerator.network.scale_up_bandwidth",
            "accelerator.network.scale_out_bandwidth",
        ),
        "network latency": ("accelerator.network.library_latency",),
        "launch latency": ("accelerator.kernel_launch_latency",),
        "context": ("workload.context",),
    }
    if priced:
        single["price"] = ("accelerator.price",)
    sized = size_family(scenario, depth_exponent)
    return {"parameters": sized} | {
        k: power_family(scenario, dict.fromkeys(v, 1.0)) for k, v in single.items()
    }


def answer(
    scenario: Serving,
    budget: float | None,
    depth_exponent: float,
    span: float,
    members: int,
    max_accelerators: int,
) -> dict[str, ScalingExponent]:
    """Exponents of all families over scales from 1/span to span.

    Raises:
        InputError: for a span of at most 1.
    """
    if not span > 1.0 or not np.isfinite(span):
        raise InputError(f"the span must be a number above 1, got {span:g}")
    scales = np.geomspace(1.0 / span, span, members)
    return {
        name: scaling_exponent(family, budget, scales, max_accelerators=max_accelerators)
        for name, family in families(scenario, depth_exponent, budget is not None).items()
    }


def rows_of(found: dict[str, ScalingExponent]) -> list[dict[str, Any]]:
    """One mapping per family."""
    return [
        {
            "family": name,
            "local_exponent": float(f.local[np.argmin(np.abs(np.log(f.scale)))]),
            "fitted_exponent": f.fitted,
            "interval_low": f.interval[0],
            "interval_high": f.interval[1],
            "largest_residual": float(np.max(np.abs(f.residuals))),
            "stated": _STATED.get(name),
        }
        for name, f in found.items()
    ]


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the table."""
    heads = ("speed against", "exponent here", "fitted", "95 % interval", "largest misfit", "the paper")
    table = Table(*heads, title=title)
    for row in rows:
        table.add_row(
            row["family"],
            f"{row['local_exponent'] + 0.0:+.3f}",
            f"{row['fitted_exponent'] + 0.0:+.3f}",
            f"{row['interval_low']:+.3f} to {row['interval_high']:+.3f}",
            f"{100 * row['largest_residual']:.1f} %",
            row["stated"] or "",
        )
    Console().print(table)


def picture(found: dict[str, ScalingExponent], title: str, path: Path) -> None:
    """Speeds along the families, relative to the middle of each."""
    curves = {
        f"{name} {f.fitted:+.2f}": (f.size / f.size[len(f.size) // 2], f.speed / f.speed[len(f.size) // 2])
        for name, f in found.items()
    }
    curves_chart(
        curves,
        path.with_suffix(""),
        x="factor on the quantity",
        y="speed / speed at factor 1",
        title=title,
        source="relaxed optima of jaxecon's serving model; labels: fitted exponents",
        endings=(path.suffix,),
    )
