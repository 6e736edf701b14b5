"""Comparison: weights of 16, 8 and 4 bits.

Run: python experiments/compare_precisions.py [FOLDER], or jaxecon reproduce compare_precisions
Writes compare_precisions.png, compare_precisions.svg and compare_precisions.csv.
Settings: configs/experiments/compare_precisions.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_precisions"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """One per width of the weights."""
    hardware = specs["accelerators"][s["accelerator"]]
    return {
        f"{8 * specs['models'][model]['weight_precision_bytes']:g} bits": (
            je.Erdil2025.from_fields(specs["models"][model], hardware, context=s["context"]),
            s["most_accelerators"],
        )
        for model in s["models"]
    }


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost of Llama 3 70B on H100 by width of the weights (dots, labels: most value)",
    )
    return [
        report.Finding(
            "precisions",
            "",
            words,
            "",
            "halving the bits gains less than 2x at the fast end, where latency is part of every step",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
