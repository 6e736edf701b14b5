"""Claim: speed goes as HBM bandwidth to the power 1/3, roughly.

By the envelope theorem the exponent is the share of memory reads in the time of the optimal step. The
terms that the toy model leaves out are switched off one after another, until only weights read from
memory and a latency growing as the square root of the number of accelerators are left: there the
exponent is 1/3 exactly.

Run: python experiments/bandwidth_exponent.py [FOLDER], or jaxecon reproduce bandwidth_exponent
Writes bandwidth_exponent.png, bandwidth_exponent.svg and bandwidth_exponent.csv.
Settings: configs/experiments/bandwidth_exponent.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "bandwidth_exponent"


def main(folder: Path) -> list[report.Finding]:
    """Exponents of the full equations and of ever simpler ones."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    full = je.Erdil2025.from_fields(*fields, context=s["context"])
    off = {
        "kernel launches": {"accelerator.kernel_launch_latency": 0.0},
        "network bandwidth": {
            "accelerator.network.scale_up_bandwidth": s["infinite"],
            "accelerator.network.scale_out_bandwidth": s["infinite"],
        },
        "activations in memory": {"model.activation_bytes": 1e-9},
        "node boundaries": {"accelerator.network.domain_size": s["one_domain"]},
    }
    variants, changes = {"full equations": full}, {}
    for name, values in off.items():
        changes |= values
        variants[f"without {name}"] = je.with_parameters(full, changes)
    hop = s["ring_hop"]
    toy = je.Toy(full.model, full.accelerator, full.workload, hop_latency=hop, base_latency=hop)
    variants["without constant latency"] = toy
    scales = np.geomspace(*s["scales"], s["members"])
    rows, bars, fits = [], {}, []
    for label, scenario in variants.items():
        family = je.power_family(scenario, {"accelerator.hbm_bandwidth": 1.0})
        found = je.scaling_exponent(family, None, scales)
        fits.append(found)
        at_one = float(found.local[len(scales) // 2])
        bars[label if not bars else f"... {label}"] = at_one
        rows += [
            {
                "equations": label,
                "hbm_bandwidth_factor": float(scale),
                "speed_tokens_per_s": float(speed),
                "local_exponent": float(local),
            }
            for scale, speed, local in zip(scales, found.speed, found.local, strict=True)
        ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.bars_chart(
        bars,
        folder / NAME,
        x="d ln speed / d ln HBM bandwidth, at the stated bandwidth, no budget",
        title=f"Why speed grows more slowly than bandwidth^(1/3): {full.model.name}, terms off one by one",
        source=s["source"],
        lines={"1/3": s["stated"]},
    )
    first = fits[0]
    values = list(bars.values())
    steps = np.diff(values)
    names = [*off, "constant latency"]
    order = sorted(range(len(steps)), key=lambda i: -steps[i])
    moved = ", ".join(f"{names[i]} {steps[i]:+.3f}" for i in order)
    return [
        report.Finding(
            "speed against HBM bandwidth",
            "exponent +1/3, rough",
            f"{values[0]:.3f} at 405B on H100; {first.fitted:.3f} fitted over 1/4 to 4 times the bandwidth "
            f"(95 % interval {first.interval[0]:.3f} to {first.interval[1]:.3f})",
            report.verdict(s["stated"], values[0], s["rough"]),
            f"the exponent is the share of memory in the step; what switching terms off in turn adds: "
            f"{moved}; "
            f"then it is {values[-1]:.6f}. It falls from {first.local.max():.2f} to "
            f"{first.local.min():.2f} as "
            "bandwidth grows",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
