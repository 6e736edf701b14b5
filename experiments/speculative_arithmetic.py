"""Claim: speculative decoding does not help arithmetic-bound work, such as prompt ingestion.

On a fixed machine the batch grows until arithmetic binds; the best number of drafted tokens falls to
none. A prompt of many tokens is such a batch from the beginning.

Run: python experiments/speculative_arithmetic.py [FOLDER], or jaxecon reproduce speculative_arithmetic
Writes speculative_arithmetic.png, speculative_arithmetic.svg and speculative_arithmetic.csv.
Settings: configs/experiments/speculative_arithmetic.toml.
"""

import sys
from pathlib import Path

import numpy as np

import jaxecon as je
from jaxecon import report

NAME = "speculative_arithmetic"


def main(folder: Path) -> list[report.Finding]:
    """Speeds of the best positive number of drafted tokens against none, over the batch."""
    s = report.settings(NAME)
    specs = report.paper_specs()
    models, hardware = specs["models"], specs["accelerators"][s["accelerator"]]
    scenario = je.Erdil2025.from_fields(
        models[s["model"]],
        hardware,
        context=s["context"],
        draft=models[s["draft"]],
        acceptance=s["acceptance"],
        gamma_max=max(s["drafted"]),
    )
    batch = np.geomspace(*s["batches"], s["points"])
    speeds, busy = {}, None
    for count in s["drafted"]:
        shape = np.ones(len(batch))
        layout = je.Layout(s["accelerators"] * shape, shape, shape, shape, batch, count * shape)
        speeds[count] = np.asarray(scenario.speed(layout))
        if count == 0:
            time = scenario.step_time(layout)
            busy = np.asarray(time.arithmetic) / np.asarray(time.memory)
    gains = {f"{k} drafted": v / speeds[0] for k, v in speeds.items() if k}
    rows = [
        {
            "batch": float(b),
            "drafted_tokens": k,
            "speed_tokens_per_s": float(v),
            "arithmetic_over_memory": float(r),
        }
        for k, vs in speeds.items()
        for b, v, r in zip(batch, vs, busy, strict=True)
    ]
    report.save_rows(rows, folder / f"{NAME}.csv")
    turn = float(batch[np.argmax(busy > 1.0)])
    report.curves_chart(
        {k: (batch, v) for k, v in gains.items()},
        folder / NAME,
        x=f"batch on {s['accelerators']} accelerators, one new token each",
        y="speed with a draft / without",
        title="Speculative decoding stops paying where arithmetic binds",
        source=s["source"],
        log="x",
        lines={"arithmetic exceeds memory": turn},
    )
    best = np.max(list(gains.values()), axis=0)
    bound = busy > 1.0
    inside = float(best[bound].max())
    return [
        report.Finding(
            "speculative decoding does not help",
            "arithmetic-bound work, such as prompt ingestion",
            f"speed times {inside:.2f} at best where arithmetic binds (batch {turn:.0f} and above), times "
            f"{best.max():.2f} at best below",
            "holds" if inside <= 1.0 else "fails",
            "70B on 8 H100, 8B draft, acceptance 0.8, at least one drafted token; a prompt of that many "
            "tokens "
            "is arithmetic-bound at batch 1",
        )
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else report.results_folder()
    report.print_findings(main(folder))
