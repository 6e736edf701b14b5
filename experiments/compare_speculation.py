"""Comparison: speculative decoding on and off, for 70B and 405B.

Run: python experiments/compare_speculation.py [FOLDER], or jaxecon reproduce compare_speculation
Writes compare_speculation.png, compare_speculation.svg and compare_speculation.csv.
Settings: configs/experiments/compare_speculation.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_speculation"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """Each model with and without a draft."""
    models, hardware = specs["models"], specs["accelerators"][s["accelerator"]]
    draft = {"draft": models[s["draft"]], "acceptance": s["acceptance"], "gamma_max": s["gamma_max"]}
    found = {}
    for model in s["models"]:
        for label, options in (("", {}), (" with a draft", draft)):
            scenario = je.Erdil2025.from_fields(models[model], hardware, context=s["context"], **options)
            found[f"{scenario.model.name}{label}"] = (scenario, s["most_accelerators"])
    return found


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    curves = {
        name: je.dense_frontier(scenario, most_accelerators=most, points=s["points"])
        for name, (scenario, most) in scenarios(s, report.paper_specs()).items()
    }
    best = {name: je.best_value(f.speed, f.cost, s["value_exponent"]) for name, f in curves.items()}
    report.save_frontiers(
        curves,
        {name: (b.cost, b.speed) for name, b in best.items()},
        folder / NAME,
        title="Speed against cost with and without speculative decoding on H100 (dots, labels: most value)",
        source=s["source"],
    )
    words = "; ".join(
        f"{name} up to {curves[name].speed[0]:.0f} tokens/s, most value at {b.speed:.0f} and ${b.cost:.2f}"
        for name, b in best.items()
    )
    return [
        report.Finding(
            "speculative decoding", "", words, "", "8B draft, acceptance 0.8, up to 20 drafted tokens"
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
