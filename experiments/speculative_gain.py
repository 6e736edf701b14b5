"""Claim: at a fixed cost, speculative decoding multiplies speed by up to about 2.

Run: python experiments/speculative_gain.py [FOLDER], or jaxecon reproduce speculative_gain
Writes speculative_gain.png, speculative_gain.svg and speculative_gain.csv.
Settings: configs/experiments/speculative_gain.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "speculative_gain"


def main(folder: Path) -> list[report.Finding]:
    """The ratio of speeds at equal cost along the frontiers with and without a draft."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    models, hardware = specs["models"], specs["accelerators"][s["accelerator"]]
    rows, curves = [], {}
    for name in s["models"]:
        plain = je.Erdil2025.from_fields(models[name], hardware, context=s["context"])
        drafted = je.Erdil2025.from_fields(
            models[name],
            hardware,
            context=s["context"],
            draft=models[s["draft"]],
            acceptance=s["acceptance"],
            gamma_max=s["gamma_max"],
        )
        without, with_ = (je.dense_frontier(x, points=s["points"]) for x in (plain, drafted))
        cost = np.geomspace(without.cost.min(), without.cost.max(), 120)
        gain = with_.speed_at(cost) / without.speed_at(cost)
        curves[str(plain.model.name)] = (cost, gain)
        rows += [
            {"model": name, "cost_usd_per_million": float(c), "speed_ratio": float(g)}
            for c, g in zip(cost, gain, strict=True)
        ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        curves,
        folder / NAME,
        x="US dollars per million tokens",
        y="speed with a draft / without, at equal cost",
        title="What speculative decoding buys (8B draft, acceptance 0.8)",
        source=s["source"],
        log="x",
    )
    largest = {name: float(np.max(g)) for name, (_, g) in curves.items()}
    fast = {name: float(g[-1]) for name, (_, g) in curves.items()}
    words = ", ".join(f"{v:.2f} for {k}" for k, v in largest.items())
    ends = ", ".join(f"{v:.2f} for {k}" for k, v in fast.items())
    worst = max(largest.values(), key=lambda v: abs(np.log(v / s["stated"])))
    return [
        report.Finding(
            "speculative decoding at fixed cost multiplies speed by up to",
            "about 2",
            f"{words}; at the fastest end {ends}",
            report.verdict(s["stated"], worst, s["rough"]),
            "8B draft, acceptance 0.8; the larger the target against the draft, the larger the gain; none at "
            "the cheapest end, where arithmetic binds",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
