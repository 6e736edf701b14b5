"""Claim: network bandwidth dominates a collective only above about 10 MB.

Latency and bandwidth time of an all-reduce by the LL128 protocol, and by the fastest of the three.

Run: python experiments/collective_size.py [FOLDER], or jaxecon reproduce collective_size
Writes collective_size.png, collective_size.svg and collective_size.csv.
Settings: configs/experiments/collective_size.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "collective_size"


def _crossing(sizes: np.ndarray, latency: np.ndarray, bandwidth: np.ndarray) -> float:
    """Bytes at which the bandwidth part first exceeds the latency part."""
    above = np.flatnonzero(bandwidth > latency)
    return float(sizes[above[0]])


def main(folder: Path) -> list[report.Finding]:
    """Where the two parts of an all-reduce are equal, on one to sixteen nodes."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    network = je.Erdil2025.from_fields(*fields, context=0).accelerator.network
    sizes = np.geomspace(*s["bytes"], s["points"])
    rows, curves, crossings, best = [], {}, [], []
    for ranks, nodes in s["groups"]:
        shape = (np.full(len(sizes), float(ranks)), np.full(len(sizes), float(nodes)), sizes)
        latency, bandwidth = (np.asarray(x) for x in je.collective_time(network, *shape, protocol="LL128"))
        crossings.append(_crossing(sizes, latency, bandwidth))
        best.append(_crossing(sizes, *(np.asarray(x) for x in je.collective_time(network, *shape))))
        curves[f"{ranks} accelerators, {nodes} node(s)"] = (sizes, bandwidth / (latency + bandwidth))
        rows += [
            {
                "ranks": ranks,
                "nodes": nodes,
                "bytes": float(z),
                "latency_s": float(t),
                "bandwidth_s": float(w),
            }
            for z, t, w in zip(sizes, latency, bandwidth, strict=True)
        ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        curves,
        folder / NAME,
        x="bytes of the all-reduce",
        y="share of network bandwidth in its time",
        title="An all-reduce by LL128 on DGX H100: latency below, bandwidth above about 10 MB",
        source=s["source"],
        log="x",
        lines={"10 MB": s["stated_bytes"]},
    )
    low, high = min(crossings), max(crossings)
    worst = max(crossings, key=lambda c: abs(np.log(c / s["stated_bytes"])))
    return [
        report.Finding(
            "network bandwidth dominates a collective only above",
            "about 10 MB",
            f"{low / 1e6:.1f} to {high / 1e6:.1f} MB",
            report.verdict(s["stated_bytes"], worst, s["rough"]),
            "all-reduces of 8 to 128 accelerators by LL128, more on more nodes; with the fastest of the "
            "three "
            f"protocols at each size bandwidth first exceeds latency at {min(best) / 1e6:.1f} to "
            f"{max(best) / 1e6:.1f} MB, because LL, of low latency, carries half the rate",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
