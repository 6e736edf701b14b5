"""Comparison: an H100 without any latency, without kernel launches only, and as it is.

Run: python experiments/compare_latency_free.py [FOLDER], or jaxecon reproduce compare_latency_free
Writes compare_latency_free.png, compare_latency_free.svg and compare_latency_free.csv.
Settings: configs/experiments/compare_latency_free.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_latency_free"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """The machine with less and less latency."""
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    real = je.Erdil2025.from_fields(*fields, context=s["context"])
    changes: dict[str, float] = {}
    found = {"as it is": (real, s["most_accelerators"])}
    for label, name in s["without"].items():
        changes[name] = 0.0
        found[label] = (je.with_parameters(real, changes), s["most_accelerators"])
    return found


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost of Llama 3 70B on H100 as latencies vanish (dots, labels: most value)",
    )
    return [
        report.Finding(
            "a latency-free machine",
            "",
            words,
            "",
            "without any latency speed is bought without end, as cost^2 while the batch exceeds 1",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
