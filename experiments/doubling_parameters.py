"""Claim: doubling the parameters of a dense transformer adds about 41 % to the latency of a token.

Run: python experiments/doubling_parameters.py [FOLDER], or jaxecon reproduce doubling_parameters
Writes doubling_parameters.png, doubling_parameters.svg and doubling_parameters.csv.
Settings: configs/experiments/doubling_parameters.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "doubling_parameters"


def main(folder: Path) -> list[report.Finding]:
    """The ratio of latencies of models of doubling size, each on its fastest layout."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
    family = je.size_family(scenario, s["depth_exponent"])
    scales = np.geomspace(*s["parameters"], s["members"]) / float(scenario.model.total_parameters)
    found = je.scaling_exponent(family, None, scales)
    growth = np.diff(-np.log(found.speed)) / np.diff(np.log(found.size))
    factors = 2.0**growth
    middles = np.sqrt(found.size[1:] * found.size[:-1])
    rows = [
        {"parameters": float(p), "latency_factor_of_a_doubling": float(f)}
        for p, f in zip(middles, factors, strict=True)
    ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        {"full equations": (middles, factors), "stated": (middles, [s["stated"]] * len(middles))},
        folder / NAME,
        x="parameters",
        y="latency of twice the parameters / latency",
        title="What a doubling of the parameters does to the latency of a token",
        source=s["source"],
        log="x",
    )
    typical = float(np.exp(np.log(factors).mean()))
    low, high = factors.min(), factors.max()
    return [
        report.Finding(
            "doubling parameters adds to latency",
            "about 41 %",
            f"{100 * (typical - 1):.0f} % on average ({100 * (low - 1):.0f} to {100 * (high - 1):.0f} %)",
            report.verdict(s["stated"], typical, s["rough"]),
            f"over 4e9 to 1e12 parameters; most near {middles[np.argmax(factors)]:.0e}, where the fastest "
            f"layout stays within one full node, least near {middles[np.argmin(factors)]:.0e}",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
