"""Claim: without any latency, doubling the cost per token multiplies the speed by 4 (Steinhardt 2022).

Kernel launches and the latency of collectives are set to zero; the frontier of the paper's equations is
compared with the one with latency.

Run: python experiments/speed_without_latency.py [FOLDER], or jaxecon reproduce speed_without_latency
Writes speed_without_latency.png, speed_without_latency.svg and speed_without_latency.csv.
Settings: configs/experiments/speed_without_latency.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "speed_without_latency"


def main(folder: Path) -> list[report.Finding]:
    """The slope of ln speed against ln cost on the frontier of a latency-free machine."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
    changes = {"accelerator.kernel_launch_latency": 0.0, "accelerator.network.library_latency": 0.0}
    free = je.dense_frontier(je.with_parameters(scenario, changes), most_accelerators=s["most_accelerators"])
    real = je.dense_frontier(scenario)
    inside = (free.cost >= s["cost_range"][0]) & (free.cost <= s["cost_range"][1])
    x, y = np.log(free.cost[inside]), np.log(free.speed[inside])
    slope = float(np.polyfit(x, y, 1)[0])
    edges = np.array_split(np.argsort(x), 6)
    slopes = [float(np.polyfit(x[e], y[e], 1)[0]) for e in edges]
    rows = [
        {"machine": label, "cost_usd_per_million": float(c), "speed_tokens_per_s": float(v)}
        for label, f in (("latency-free", free), ("with latency", real))
        for c, v in zip(f.cost, f.speed, strict=True)
    ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        {"without latency": (free.cost, free.speed), "with latency": (real.cost, real.speed)},
        folder / NAME,
        x="US dollars per million tokens",
        y="tokens/s of one request",
        title=f"{scenario.model.name}: without latency, twice the cost gives {2**slope:.2f}x the speed",
        source=s["source"],
    )
    low, high = s["cost_range"]
    batch = free.batch[inside]
    return [
        report.Finding(
            "without latency, doubling cost per token multiplies speed by",
            "4",
            f"{2**slope:.2f} ({2 ** min(slopes):.2f} to {2 ** max(slopes):.2f} in parts of the range)",
            report.verdict(s["stated"], 2**slope, s["rough"]),
            f"from ${low:g} to ${high:g} per million tokens, batches {batch.max():.0f} down to "
            f"{batch.min():.0f}; "
            "at lower cost arithmetic binds and speed is dearer; the law ends at batch 1",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
