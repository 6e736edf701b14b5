"""Comparison: models of different size on H100.

Run: python experiments/compare_models.py [FOLDER], or jaxecon reproduce compare_models
Writes compare_models.png, compare_models.svg and compare_models.csv.
Settings: configs/experiments/compare_models.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_models"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """One per model: a scenario, and the most accelerators of its grid."""
    hardware = specs["accelerators"][s["accelerator"]]
    found = {}
    for model in s["models"]:
        scenario = je.Erdil2025.from_fields(specs["models"][model], hardware, context=s["context"])
        found[str(scenario.model.name)] = (scenario, s["most_accelerators"])
    return found


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost of dense and sparse models on H100 (dots, labels: most value)",
    )
    return [
        report.Finding(
            "models on H100",
            "",
            words,
            "",
            "16-bit weights, no context; sparse models are read in part only, and pay for latency of many "
            "layers all the same",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
