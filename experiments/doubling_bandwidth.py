"""Claim: doubling the HBM bandwidth cuts the latency of a token by about 21 %.

Run: python experiments/doubling_bandwidth.py [FOLDER], or jaxecon reproduce doubling_bandwidth
Writes doubling_bandwidth.png, doubling_bandwidth.svg and doubling_bandwidth.csv.
Settings: configs/experiments/doubling_bandwidth.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "doubling_bandwidth"


def main(folder: Path) -> list[report.Finding]:
    """The cut at several models of one structure, each on its fastest layout."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    cuts, rows = {}, []
    for name in s["models"]:
        fields = specs["models"][name], specs["accelerators"][s["accelerator"]]
        scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
        family = je.power_family(scenario, {"accelerator.hbm_bandwidth": 1.0})
        found = je.scaling_exponent(family, None, np.array([1.0, 1.414, 2.0]))
        cut = 1.0 - float(found.speed[0] / found.speed[-1])
        cuts[str(scenario.model.name)] = 100.0 * cut
        rows.append({"model": name, "latency_cut": cut, "local_exponent": float(found.local[0])})
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.bars_chart(
        cuts,
        folder / NAME,
        x="percent of latency saved by twice the HBM bandwidth, no budget",
        title="What a doubling of the HBM bandwidth buys",
        source=s["source"],
        lines={"stated 21 %": 100.0 * s["stated"]},
    )
    low, high = min(cuts.values()), max(cuts.values())
    worst = max(cuts.values(), key=lambda c: abs(c / 100.0 - s["stated"]))
    return [
        report.Finding(
            "doubling HBM bandwidth cuts latency by",
            "about 21 %",
            f"{low:.0f} to {high:.0f} %",
            report.verdict(s["stated"], worst / 100.0, s["rough"]),
            "8B to 405B on H100; less than 1 - 2^(-1/3) = 21 % because launches and constant latencies are "
            "part "
            "of the step (see bandwidth_exponent), and layouts stop at full nodes",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
