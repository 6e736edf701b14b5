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
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost with and without speculative decoding on H100 (dots, labels: most value)",
    )
    return [
        report.Finding(
            "speculative decoding", "", words, "", "8B draft, acceptance 0.8, up to 20 drafted tokens"
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
