"""Claim: going from 7B to 70B parameters, and from 70B to 700B, multiplies the latency of a token by about
3.16 each.

Run: python experiments/tenfold_parameters.py [FOLDER], or jaxecon reproduce tenfold_parameters
Writes tenfold_parameters.png, tenfold_parameters.svg and tenfold_parameters.csv.
Settings: configs/experiments/tenfold_parameters.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "tenfold_parameters"


def main(folder: Path) -> list[report.Finding]:
    """Latencies of three sizes, each on its fastest layout, and their ratios."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
    family = je.size_family(scenario, s["depth_exponent"])
    grid = np.geomspace(0.01, 100.0, 400)
    sizes = np.asarray([float(family.size(g)) for g in grid])
    scales = np.exp(np.interp(np.log(s["parameters"]), np.log(sizes), np.log(grid)))
    found = je.scaling_exponent(family, None, scales)
    latency = 1e3 / found.speed
    ratios = latency[1:] / latency[:-1]
    rows = [
        {"parameters": float(p), "latency_ms": float(t)} for p, t in zip(found.size, latency, strict=True)
    ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.bars_chart(
        {f"{p / 1e9:.0f}B parameters": float(t) for p, t in zip(found.size, latency, strict=True)},
        folder / NAME,
        x="milliseconds per token of the fastest layout",
        title=f"Ten times the parameters: latency times {ratios[0]:.2f}, then times {ratios[1]:.2f}",
        source=s["source"],
    )
    worst = max(ratios, key=lambda r: abs(r - s["stated"]))
    return [
        report.Finding(
            "7B to 70B, and 70B to 700B, multiply latency by",
            "about 3.16 each",
            f"{ratios[0]:.2f} and {ratios[1]:.2f}",
            report.verdict(s["stated"], float(worst), s["rough"]),
            "scaled from Llama 3 70B with depth going as parameters^(1/3); the first step is larger because "
            "the fastest layout of the smallest model stays inside one node (7 accelerators) and that of the "
            "next spans two, which adds the latency of crossing nodes",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
