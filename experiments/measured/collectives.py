"""Measured collectives against the paper's latency and 10 MB claims.

Claims (Erdil 2025, arXiv:2506.04645): an all-reduce of one byte takes about 30 microseconds on a DGX
H100 (LL128), and bandwidth dominates a collective only above about 10 MB. Bandwidth is taken to
dominate where a call takes twice what its smallest message does.

Run: python experiments/measured/collectives.py COLLECTIVES.csv

Writes results/collectives.csv (measured and fitted microseconds of every call), -constants.csv (fitted
constants with intervals, by machine), -claims.csv (claim beside measurement), .png and .svg.
"""

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from jaxecon.calibration import fit_collectives, read_collectives

RESULTS = Path(__file__).resolve().parents[2] / "results"
CLAIMED_LATENCY_US = 30.0
CLAIMED_SIZE = 10e6


def crossover(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """(seconds of the smallest messages, bytes beyond which every call takes twice that)."""
    order = np.argsort(sizes)
    sizes, seconds = sizes[order], seconds[order]
    floor = float(np.median(seconds[:3]))
    below = np.flatnonzero(seconds < 2.0 * floor)
    i = below[-1] + 1
    if i == len(sizes):
        return floor, float("nan")
    ends = np.log(seconds[i - 1 : i + 1])
    share = (np.log(2.0 * floor) - ends[0]) / max(ends[1] - ends[0], 1e-9)
    return floor, float(np.exp(np.log(sizes[i - 1]) + share * np.log(sizes[i] / sizes[i - 1])))


def write(name: str, rows: list[dict]) -> None:
    with open(RESULTS / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(path: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    fits = fit_collectives(read_collectives(path))
    calls, constants, claims = [], [], []
    for machine, fit in fits.items():
        mean, median = fit.errors()
        for name, (value, low, high) in fit.constants.items():
            constants.append(
                {
                    "machine": machine,
                    "constant": name,
                    "value": value,
                    "low": low,
                    "high": high,
                    "mean_error": mean,
                    "median_error": median,
                }
            )
        for call, predicted in zip(fit.calls, fit.predicted, strict=True):
            calls.append(
                {
                    "machine": machine,
                    "operation": call.operation,
                    "own_kernel": call.own,
                    "ranks": call.ranks,
                    "bytes": call.size,
                    "measured_us": 1e6 * call.seconds,
                    "fitted_us": 1e6 * predicted,
                }
            )
        for kernels in sorted({c.implementation for c in fit.calls}):
            for ranks in sorted({c.ranks for c in fit.calls}):
                chosen = [
                    c
                    for c in fit.calls
                    if c.implementation == kernels and c.ranks == ranks and c.operation == "all_reduce"
                ]
                if len(chosen) < 10 or min(c.size for c in chosen) > 2048:
                    continue
                floor, size = crossover(
                    np.asarray([c.size for c in chosen]), np.asarray([c.seconds for c in chosen])
                )
                claims.append(
                    {
                        "machine": machine,
                        "kernels": kernels,
                        "ranks": ranks,
                        "smallest_us": 1e6 * floor,
                        "claimed_us": CLAIMED_LATENCY_US,
                        "bandwidth_dominates_above_bytes": size,
                        "claimed_bytes": CLAIMED_SIZE,
                    }
                )
        print(
            f"{machine}: {len(fit.calls)} calls, mean error {100 * mean:.0f} %, median {100 * median:.0f} %"
        )
    for c in claims:
        print(
            f"{c['machine']:14s} {c['kernels'][:30]:30s} {c['ranks']:2.0f}: {c['smallest_us']:5.1f} us, 2x "
            f"above {c['bandwidth_dominates_above_bytes'] / 1e6:.2g} MB"
        )
    write("collectives.csv", calls)
    write("collectives-constants.csv", constants)
    write("collectives-claims.csv", claims)
    picture(fits)


def picture(fits: dict) -> None:
    names = [m for m in ("h100-sxm", "b200-sxm", "a100-sxm-80gb", "gb200-nvl72") if m in fits]
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.6 * len(names), 3.6), layout="constrained", sharey=True
    )
    for a, name in zip(np.atleast_1d(axes), names, strict=True):
        fit = fits[name]
        ranks = max(c.ranks for c in fit.calls if c.operation == "all_reduce" and c.own)
        for own, colour, label in ((False, "#3b6ea5", "library"), (True, "#c05a2b", "engine's kernels")):
            rows = [
                i
                for i, c in enumerate(fit.calls)
                if c.operation == "all_reduce" and c.own == own and c.ranks == ranks
            ]
            size = np.asarray([fit.calls[i].size for i in rows])
            order = np.argsort(size)
            a.scatter(
                size, [1e6 * fit.calls[i].seconds for i in rows], s=8, alpha=0.6, color=colour, label=label
            )
            a.plot(size[order], 1e6 * fit.predicted[rows][order], color=colour, linewidth=1)
        a.axhline(CLAIMED_LATENCY_US, color="0.5", linestyle=":", linewidth=1)
        a.axvline(CLAIMED_SIZE, color="0.5", linestyle=":", linewidth=1)
        a.set(xscale="log", yscale="log", xlabel="bytes", title=f"{name}, {ranks:.0f} ranks")
        a.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set_ylabel("microseconds of an all-reduce")
    np.atleast_1d(axes)[0].legend(fontsize=8, frameon=False)
    figure.suptitle("All-reduces measured and fitted; the paper's 30 us and 10 MB dotted", fontsize=10)
    for ending in ("png", "svg"):
        figure.savefig(RESULTS / f"collectives.{ending}", dpi=130)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
