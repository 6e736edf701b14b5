"""Claim: halving the latency of a token needs about 4 times fewer parameters, or 8 times the HBM bandwidth.

Run: python experiments/halving_latency.py [FOLDER], or jaxecon reproduce halving_latency
Writes halving_latency.png, halving_latency.svg and halving_latency.csv.
Settings: configs/experiments/halving_latency.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "halving_latency"


def _factor(found: je.ScalingExponent) -> float:
    """The scale at which the speed is twice that at scale 1; inf where it never is."""
    logs = np.log(found.speed)
    one = logs[np.argmin(np.abs(np.log(found.scale)))]
    order = np.argsort(logs)
    if logs.max() < one + np.log(2.0):
        return float("inf")
    return float(np.exp(np.interp(one + np.log(2.0), logs[order], np.log(found.size[order]))))


def main(folder: Path) -> list[report.Finding]:
    """Speeds along both families, and where they reach twice the speed."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
    now = float(scenario.model.total_parameters)
    smaller = je.scaling_exponent(
        je.size_family(scenario, s["depth_exponent"]),
        None,
        np.geomspace(*s["parameter_scales"], s["members"]),
    )
    wider = je.scaling_exponent(
        je.power_family(scenario, {"accelerator.hbm_bandwidth": 1.0}),
        None,
        np.geomspace(*s["bandwidth_scales"], s["members"]),
    )
    fewer, more = now / _factor(smaller), _factor(wider)
    base = wider.speed[0]
    families = {"fewer parameters": (now / smaller.size, smaller), "more bandwidth": (wider.size, wider)}
    rows = [
        {"change": name, "factor": float(x), "speed_ratio": float(v / base)}
        for name, (xs, found) in families.items()
        for x, v in zip(xs, found.speed, strict=True)
    ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        {name: (xs, found.speed / base) for name, (xs, found) in families.items()},
        folder / NAME,
        x="factor: parameters divided by, bandwidth multiplied by",
        y="speed / speed at factor 1",
        title=f"Halving the latency of {scenario.model.name}: {fewer:.1f}x fewer parameters or "
        f"{more:.0f}x the bandwidth",
        source=s["source"],
        lines={"4": s["stated_parameters"], "8": s["stated_bandwidth"]},
    )
    verdicts = [
        report.verdict(s["stated_parameters"], fewer, s["rough"]),
        report.verdict(s["stated_bandwidth"], more, s["rough"]),
    ]
    ceiling = wider.speed[-1] / base
    return [
        report.Finding(
            "halving latency needs fewer parameters",
            "about 4x",
            f"{fewer:.2f}x",
            verdicts[0],
            "405B on H100, depth going as parameters^(1/3)",
        ),
        report.Finding(
            "halving latency needs more HBM bandwidth",
            "8x",
            f"{more:.1f}x" if np.isfinite(more) else "no bandwidth suffices",
            verdicts[1],
            "the exponent falls as bandwidth grows, since launches and network latency stay; "
            f"{s['bandwidth_scales'][1]:.0f}x the bandwidth gives only {ceiling:.2f}x the speed",
        ),
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
