"""Claim: pipeline parallelism stops paying above the speed HBM bandwidth / HBM size, at which a token
takes as long as reading the whole memory (H100: 3.3 TB/s / 80 GB = 42 tokens/s, 24 ms).

Run: python experiments/pipeline_threshold.py [FOLDER], or jaxecon reproduce pipeline_threshold
Writes pipeline_threshold.png, pipeline_threshold.svg and pipeline_threshold.csv.
Settings: configs/experiments/pipeline_threshold.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "pipeline_threshold"


def main(folder: Path) -> list[report.Finding]:
    """The fastest speed at which more stages beat one stage at equal cost."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    hardware = specs["accelerators"][s["accelerator"]]
    stated = hardware["hbm_bandwidth_Bps"] / hardware["hbm_size_bytes"]
    rows, bars = [], {}
    for model in s["models"]:
        for context in s["contexts"]:
            scenario = je.Erdil2025.from_fields(specs["models"][model], hardware, context=context)
            one = je.dense_frontier(scenario, pipelines=(1.0,), points=s["points"])
            more = je.dense_frontier(scenario, pipelines=s["pipelines"], points=s["points"])
            cost = np.geomspace(more.cost.min(), more.cost.max(), 400)
            piped, plain = more.speed_at(cost), one.speed_at(cost)
            wins = piped > s["advantage"] * plain
            last = float(piped[wins].max()) if wins.any() else 0.0
            bars[f"{scenario.model.name}, context {context:,}"] = last
            rows.append({"model": model, "context": context, "speed_tokens_per_s": last})
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.bars_chart(
        bars,
        folder / NAME,
        x="fastest speed at which several stages beat one at equal cost\n(tokens/s of one request)",
        title="Up to which speed pipeline parallelism pays, on H100",
        source=s["source"],
        lines={f"HBM bandwidth / size = {stated:.0f}": stated},
    )
    above = [k for k, v in bars.items() if v > stated * (1 + s["rough"])]
    return [
        report.Finding(
            "pipeline parallelism stops paying above the speed HBM bandwidth / HBM size",
            "about 42 tokens/s (24 ms)",
            f"it pays up to {min(bars.values()):.0f} to {max(bars.values()):.0f} tokens/s, by model and "
            "context",
            "fails" if above else "holds",
            f"as an upper limit ({100 * (s['advantage'] - 1):.0f} % more speed at equal cost counts as "
            "paying); "
            "weights or cache must fill the memory, and then reading it takes the step"
            + (f"; exceeded for {', '.join(above)}" if above else ""),
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
