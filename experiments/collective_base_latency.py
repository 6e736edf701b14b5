"""Claim: an all-reduce of one byte on a DGX H100 takes about 30 microseconds with the LL128 protocol.

Run: python experiments/collective_base_latency.py [FOLDER], or jaxecon reproduce collective_base_latency
Writes collective_base_latency.png, collective_base_latency.svg and collective_base_latency.csv.
Settings: configs/experiments/collective_base_latency.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "collective_base_latency"


def main(folder: Path) -> list[report.Finding]:
    """One byte among eight accelerators, by each protocol."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    network = je.Erdil2025.from_fields(*fields, context=0).accelerator.network
    shape = [np.asarray(float(s[k])) for k in ("ranks", "nodes", "bytes")]
    times = {
        name: float(sum(je.collective_time(network, *shape, protocol=name)))
        for name in ("LL", "LL128", "Simple")
    }
    report.save_rows([{"protocol": k, "seconds": v} for k, v in times.items()], folder / f"{NAME}.csv")
    report.bars_chart(
        {k: 1e6 * v for k, v in times.items()},
        folder / NAME,
        x="microseconds of an all-reduce of one byte, 8 accelerators on one node",
        title="The base latency of an all-reduce on a DGX H100, by NCCL protocol",
        source=s["source"],
        lines={"stated 30": 1e6 * s["stated"]},
    )
    found = times["LL128"]
    return [
        report.Finding(
            "LL128 all-reduce base latency on a DGX H100, one byte",
            "about 30 microseconds",
            f"{1e6 * found:.1f} microseconds",
            report.verdict(s["stated"], found, s["rough"]),
            f"LL takes {1e6 * times['LL']:.1f} and would be chosen; Simple takes {1e6 * times['Simple']:.0f}",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
