"""Comparison: H100, A100, V100, TPU v4 and Groq LPU on one model.

Run: python experiments/compare_accelerators.py [FOLDER], or jaxecon reproduce compare_accelerators
Writes compare_accelerators.png, compare_accelerators.svg and compare_accelerators.csv.
Settings: configs/experiments/compare_accelerators.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_accelerators"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """One per machine, those of the paper's tables and those of the catalogue."""
    model = specs["models"][s["model"]]
    found = {}
    for name in s["accelerators"]:
        scenario = je.Erdil2025.from_fields(model, specs["accelerators"][name], context=s["context"])
        found[name.replace("_", " ")] = (scenario, s["most_accelerators"])
    template = je.Erdil2025.from_fields(
        model, specs["accelerators"][s["accelerators"][0]], context=s["context"]
    )
    for name, price in s["priced"].items():
        machine = je.load_accelerator(name, price_per_hour=price)
        scenario = je.Erdil2025(template.model, machine, template.workload)
        found[name] = (scenario, s["most_accelerators_of_priced"])
    return found


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost of Llama 3 70B in 8 bits by accelerator (dots, labels: most value)",
    )
    return [
        report.Finding(
            "accelerators",
            "",
            words,
            "",
            "no context; the LPU keeps all weights in on-chip memory, so that only replicas of many "
            "hundred chips hold the model; prices of V100 and LPU are assumed, as the configuration says",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
