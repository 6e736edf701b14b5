"""Claim: at width 10,000 and 16-bit activations, network bandwidth dominates an all-reduce only above a batch
of about 500 per GPU.

Run: python experiments/collective_batch.py [FOLDER], or jaxecon reproduce collective_batch
Writes collective_batch.png, collective_batch.svg and collective_batch.csv.
Settings: configs/experiments/collective_batch.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "collective_batch"


def main(folder: Path) -> list[report.Finding]:
    """The batch at which an all-reduce of one residual stream is half bandwidth."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    network = je.Erdil2025.from_fields(*fields, context=0).accelerator.network
    batch = np.geomspace(*s["batches"], s["points"])
    sizes = batch * s["width"] * s["activation_bytes"]
    rows, bars = [], {}
    for ranks, nodes in s["groups"]:
        shape = (np.full(len(sizes), float(ranks)), np.full(len(sizes), float(nodes)), sizes)
        latency, bandwidth = (np.asarray(x) for x in je.collective_time(network, *shape, protocol="LL128"))
        at = float(batch[np.flatnonzero(bandwidth > latency)[0]])
        bars[f"{ranks} accelerators, {nodes} node(s)"] = at
        rows.append({"ranks": ranks, "nodes": nodes, "batch": at, "bytes": at * s["width"] * 2})
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.bars_chart(
        bars,
        folder / NAME,
        x="batch at which bandwidth time equals latency\n(LL128, width 10,000, 16-bit activations)",
        title="From which batch on the bandwidth of the network matters",
        source=s["source"],
        lines={"stated 500": s["stated"]},
    )
    worst = max(bars.values(), key=lambda b: abs(np.log(b / s["stated"])))
    return [
        report.Finding(
            "... which at width 10,000 and 16-bit activations is a per-GPU batch of",
            "about 500",
            f"{min(bars.values()):.0f} to {max(bars.values()):.0f}",
            report.verdict(s["stated"], worst, s["rough"]),
            "8 to 128 accelerators by LL128; the least is that of one node",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
