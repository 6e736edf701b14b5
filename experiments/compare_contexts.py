"""Comparison: contexts of 0, 1,000 and 10,000 tokens.

Run: python experiments/compare_contexts.py [FOLDER], or jaxecon reproduce compare_contexts
Writes compare_contexts.png, compare_contexts.svg and compare_contexts.csv.
Settings: configs/experiments/compare_contexts.toml.
"""

import sys
from pathlib import Path
from typing import Any

import jaxecon as je
from jaxecon import report

NAME = "compare_contexts"


def scenarios(s: dict[str, Any], specs: dict[str, Any]) -> dict[str, tuple[je.Erdil2025, float]]:
    """One per context length."""
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    return {
        f"{context:,} tokens": (je.Erdil2025.from_fields(*fields, context=context), s["most_accelerators"])
        for context in s["contexts"]
    }


def main(folder: Path) -> list[report.Finding]:
    """Frontiers on the paper's grid, and the point of each that maximises speed^4/price."""
    s = report.settings(NAME)
    words = report.compared(
        scenarios(s, report.paper_specs()),
        s,
        folder / NAME,
        title="Speed against cost of Llama 3 70B in 8 bits on H100 by context (dots, labels: most value)",
    )
    return [
        report.Finding(
            "contexts",
            "",
            words,
            "",
            "long contexts cost at the cheap end, where the cache fills the memory; the fastest speed "
            "hardly changes",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
