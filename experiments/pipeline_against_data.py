"""Claim: pipeline parallelism is worse than data parallelism unless memory binds.

Copies of a replica change neither speed nor cost, so data parallelism is the frontier of one-stage
replicas. It is compared with several stages at equal speed, with the memory of the accelerators as it is
and with so much that it never binds.

Run: python experiments/pipeline_against_data.py [FOLDER], or jaxecon reproduce pipeline_against_data
Writes pipeline_against_data.png, pipeline_against_data.svg and pipeline_against_data.csv.
Settings: configs/experiments/pipeline_against_data.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "pipeline_against_data"


def _cost_at(frontier: je.DenseFrontier, speed: np.ndarray) -> np.ndarray:
    order = np.argsort(frontier.speed)
    x, y = np.log(frontier.speed[order]), np.log(frontier.cost[order])
    return np.where(speed > frontier.speed.max(), np.inf, np.exp(np.interp(np.log(speed), x, y)))


def main(folder: Path) -> list[report.Finding]:
    """Cost of several stages over cost of one stage, at equal speeds."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    fields = specs["models"][s["model"]], specs["accelerators"][s["accelerator"]]
    rows, curves, least = [], {}, {}
    for context in s["contexts"]:
        for memory in (1.0, s["roomy"]):
            scenario = je.Erdil2025.from_fields(*fields, context=context)
            size = memory * float(scenario.accelerator.hbm_size)
            scenario = je.with_parameters(scenario, {"accelerator.hbm_size": size})
            one = je.dense_frontier(scenario, pipelines=(1.0,), points=s["points"])
            more = je.dense_frontier(scenario, pipelines=s["pipelines"], points=s["points"])
            speed = np.geomspace(max(one.speed.min(), more.speed.min(), 5.0), 0.98 * more.speed.max(), 80)
            ratio = _cost_at(more, speed) / _cost_at(one, speed)
            kept = np.isfinite(ratio)
            label = f"context {context:,}" + (", ample memory" if memory > 1 else "")
            curves[label] = (speed[kept], ratio[kept])
            least[context, memory] = float(ratio[kept].min())
            rows += [
                {"context": context, "memory_factor": memory, "speed": float(v), "cost_ratio": float(r)}
                for v, r in zip(speed[kept], ratio[kept], strict=True)
            ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    report.curves_chart(
        curves,
        folder / NAME,
        x="tokens/s of one request",
        y="cost with 2 to 6 stages / cost with one stage",
        title=f"Pipeline against data parallelism, {scenario.model.name} on H100",
        source=s["source"],
        log="x",
    )
    real = [least[c, 1.0] for c in s["contexts"]]
    roomy = [least[c, s["roomy"]] for c in s["contexts"]]
    return [
        report.Finding(
            "pipeline parallelism against data parallelism",
            "worse unless memory binds",
            f"cost at equal speed down to {min(real):.2f} of one stage's with 80 GB; never below "
            f"{min(roomy):.3f} with ample memory",
            "holds" if min(roomy) >= 1.0 - s["resolution"] and min(real) < 0.98 else "fails",
            f"405B, contexts 0 to 10,000, to the {100 * s['resolution']:g} % that the grid resolves; where "
            "memory binds, several stages hold the weights on more accelerators without wider collectives",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
