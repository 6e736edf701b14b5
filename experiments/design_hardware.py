"""Which mix of bandwidth, latency and FLOP/s buys the most speed per percent of change.

The smallest change (root of the sum of squared logarithms) of six numbers of the machine that reaches a
wanted speed at an unchanged price, by gradient through the optimum.

Run: python experiments/design_hardware.py [FOLDER], or jaxecon reproduce design_hardware
Writes design_hardware.png, design_hardware.svg and design_hardware.csv.
Settings: configs/experiments/design_hardware.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "design_hardware"


def main(folder: Path) -> list[report.Finding]:
    """Designs for growing gains, and the one-number change that would buy the same."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(*fields, context=s["context"])
    now = je.relaxed_optimum(scenario, s["budget"]).speed
    names = list(s["free"].values())
    rows, designs = [], {}
    for gain in s["gains"]:
        found = je.design(scenario, names, (gain * now, s["budget"]))
        designs[gain] = found
        rows += [
            {
                "speed_gain": gain,
                "speed_tokens_per_s": found.speed,
                "parameter": name,
                "factor": found.factors[name],
                "share_of_change": float(np.log(found.factors[name]) ** 2 / found.size**2),
                "status": found.status,
            }
            for name in names
        ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    last = designs[s["gains"][-1]]
    report.bars_chart(
        {label: 100.0 * abs(np.log(last.factors[name])) for label, name in s["free"].items()},
        folder / NAME,
        x="change in percent of the logarithm (more bandwidth and FLOP/s, less latency)",
        title=f"The smallest change of an H100 that makes {scenario.model.name} "
        f"{s['gains'][-1]:g}x as fast at ${s['budget']:g}",
        source=s["source"],
    )
    mix = ", ".join(f"{label} x{last.factors[name]:.2f}" for label, name in s["free"].items())
    states = ", ".join(f"{g:g}x: size {d.size:.2f}, {d.status}" for g, d in designs.items())
    return [
        report.Finding(
            f"the mix that buys {s['gains'][-1]:g}x the speed with the least change",
            "",
            mix,
            "",
            f"405B at ${s['budget']:g} per million tokens, {now:.1f} tokens/s before; {states}",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
