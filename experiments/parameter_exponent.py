"""Claim: the speed of dense transformers goes as the parameter count to the power -1/2, roughly.

The model is scaled in depth and width; at each size the fastest layout without a budget is found in the
paper's full equations, and in the toy model with the paper's constants.

Run: python experiments/parameter_exponent.py [FOLDER], or jaxecon reproduce parameter_exponent
Writes parameter_exponent.png, parameter_exponent.svg and parameter_exponent.csv.
Settings: configs/experiments/parameter_exponent.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "parameter_exponent"


def main(folder: Path) -> list[report.Finding]:
    """Fit the exponent over the sizes, for two ways of growing, in both cost models."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    models = {
        "full": je.Erdil2025.from_fields(*fields, context=s["context"]),
        "toy": je.Toy.from_fields(*fields),
    }
    now = float(models["full"].model.total_parameters)
    scales = np.geomspace(*s["parameters"], s["members"]) / now
    rows, curves, fits = [], {}, {}
    for kind, scenario in models.items():
        for depth in s["depth_exponents"]:
            found = je.scaling_exponent(je.size_family(scenario, depth), None, scales)
            label = f"{kind}, depth exponent {depth:.2f}: {found.fitted:+.3f}"
            curves[label] = (found.size, found.speed)
            fits[kind, depth] = found
            rows += [
                {
                    "equations": kind,
                    "depth_exponent": depth,
                    "parameters": float(size),
                    "speed_tokens_per_s": float(speed),
                    "local_exponent": float(local),
                }
                for size, speed, local in zip(found.size, found.speed, found.local, strict=True)
            ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        curves,
        folder / NAME,
        x="parameters",
        y="tokens/s of one request, no budget",
        title="The fastest speed against the size of a dense model (label: fitted exponent)",
        source=s["source"],
    )
    full = [fits["full", depth] for depth in s["depth_exponents"]]
    toy = [fits["toy", depth].fitted for depth in s["depth_exponents"]]
    low, high = min(f.interval[0] for f in full), max(f.interval[1] for f in full)
    worst = max((f.fitted for f in full), key=lambda x: abs(x - s["stated"]))
    steep, flat = min(f.local.min() for f in full), max(f.local.max() for f in full)
    return [
        report.Finding(
            "speed against parameter count, dense transformers",
            "exponent -1/2, rough",
            f"{full[0].fitted:.3f} and {full[1].fitted:.3f} at depth exponents 1/4 and 1/3 "
            f"(95 % intervals within {low:.3f} to {high:.3f})",
            report.verdict(s["stated"], worst, s["rough"]),
            f"local exponents run from {steep:.2f} to {flat:.2f} over 1e9 to 1e12 parameters; the toy model "
            f"gives {toy[0]:.3f} and {toy[1]:.3f}, -1/2 and -5/9 but for its constant latency per layer",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
