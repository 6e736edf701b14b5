"""Claim: pipeline parallelism stops paying above the speed HBM bandwidth / HBM size, at which a token
takes as long as reading the whole memory (H100: 3.3 TB/s / 80 GB = 42 tokens/s, 24 ms).

How much more speed at equal cost counts as paying is a choice; the answer is given for several, from any
gain at all upwards. Speeds are interpolated along the batch at each N, full domains among them: the
frontier of points of a grid is off by several thousandths, which would decide the smaller ones.

Run: python experiments/pipeline_threshold.py [FOLDER], or jaxecon reproduce pipeline_threshold
Writes pipeline_threshold.png, pipeline_threshold.svg and pipeline_threshold.csv.
Settings: configs/experiments/pipeline_threshold.toml.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report
from jaxecon.scenarios import evaluate_layouts

NAME = "pipeline_threshold"


def _fastest(
    scenario: je.Erdil2025, cost: np.ndarray, stages: Sequence[float], points: int, batches: int
) -> np.ndarray:
    """The best speed at no more than each cost, with any of those pipeline degrees; 0 where none is."""
    domain = float(scenario.accelerator.network.domain_size)
    n = np.union1d(np.geomspace(1.0, 1024.0, points), domain * np.arange(1, 1024 // domain + 1))
    n, batch = (x.ravel() for x in np.meshgrid(n, np.geomspace(1.0, 65536.0, batches), indexing="ij"))
    best = np.zeros_like(cost)
    for p in stages:
        for partition in ("1d", "2d"):
            full, none = np.full_like(n, p), np.zeros_like(n)
            layouts = je.Layout(n / p, full, batch=batch, draft_tokens=none, partition=partition)
            speed, price, _, free = (np.asarray(x) for x in evaluate_layouts(scenario, layouts))
            legal = (free >= 0.0) & (p <= np.minimum(n, batch))
            for row in np.split(np.arange(len(n)), len(n) // batches):
                row = row[legal[row]][::-1]
                if len(row):
                    at = np.interp(np.log(cost), np.log(price[row]), speed[row], left=0.0)
                    best = np.maximum(best, at)
    return best


def main(folder: Path) -> list[report.Finding]:
    """The fastest speed at which more stages beat one stage at equal cost, by how much counts."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    hardware = specs["accelerators"][s["accelerator"]]
    stated = hardware["hbm_bandwidth_Bps"] / hardware["hbm_size_bytes"]
    size = s["points"], s["batches"]
    rows, bars = [], {}
    for model in s["models"]:
        for context in s["contexts"]:
            scenario = je.Erdil2025.from_fields(specs["models"][model], hardware, context=context)
            ends = je.dense_frontier(scenario, pipelines=s["pipelines"], points=100).cost
            cost = np.geomspace(ends.min(), ends.max(), s["costs"])
            piped = _fastest(scenario, cost, s["pipelines"], *size)
            plain = _fastest(scenario, cost, (1.0,), *size)
            for gain in s["gains"]:
                wins = piped > (1.0 + gain) * plain
                last = float(piped[wins].max()) if wins.any() else 0.0
                rows.append({"model": model, "context": context, "gain": gain, "speed_tokens_per_s": last})
            at = f"{scenario.model.name}, context {context:,}"
            bars[at] = max(r["speed_tokens_per_s"] for r in rows[-len(s["gains"]) :])
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
    by_gain = {g: [r["speed_tokens_per_s"] for r in rows if r["gain"] == g] for g in s["gains"]}
    ranges = "; ".join(
        f"{'any gain' if g == 0 else f'{100 * g:g} %'}: {min(v):.1f} to {max(v):.1f}"
        for g, v in by_gain.items()
    )
    return [
        report.Finding(
            "pipeline parallelism stops paying above the speed HBM bandwidth / HBM size",
            "about 42 tokens/s (24 ms)",
            f"it pays up to {min(bars.values()):.0f} to {max(bars.values()):.0f} tokens/s, by model and "
            "context",
            "fails" if above else "holds",
            f"as an upper limit, whatever gain in speed at equal cost counts as paying ({ranges}); "
            "weights or cache must fill the memory, and then reading it takes the step"
            + (f"; exceeded for {', '.join(above)}" if above else ""),
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
