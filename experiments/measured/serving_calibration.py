"""How far the cost model is from measured serving, before and after its constants are fitted.

Claim: with a few dozen physical constants, shared by models, accelerators and engines, the cost model
predicts the time per output token of models it has not seen within 20 % on average, and within 12 %
of those it has; without them, with the paper's assumptions, it is off by far more.

Run: python experiments/measured/serving_calibration.py SERVING_POINTS.csv

Writes to results/: serving-predicted.csv (every row: measured, fitted, held out, and the two
uncalibrated predictions), serving-errors.csv (mean and median error by model, accelerator, engine,
kind, and whether prompts are proven to be shared), serving-elasticities.csv (which constants matter:
percent of time per percent of constant, and change of the mean error where a constant is 10 % larger),
serving-first-token.csv (time to the first token, to which nothing is fitted), serving-predicted and
-elasticities as .png and .svg.
"""

import csv
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from jaxecon._numerics import EXACT
from jaxecon.calibration import CONSTANTS, calibrate, case_of, read_measurements
from jaxecon.calibration._apply import choosing
from jaxecon.calibration._design import designs_of
from jaxecon.cost._serving_step import Engine, pass_seconds

RESULTS = Path(__file__).resolve().parents[2] / "results"
KINDS = ("decode_steady", "serving_agg", "serving_disagg")


def uncalibrated(cases: list, full_rates: bool) -> np.ndarray:
    """The paper's assumptions on the same rows: 4 launches a layer, the library's collectives, no host
    time and no prompts; at full rates or at the catalogue's assumed efficiencies."""
    found = np.zeros(len(cases))
    for design in designs_of(cases):

        def one(work, accelerator, per_step):
            accelerator = choosing(accelerator, None)
            if full_rates:
                accelerator = eqx.tree_at(
                    lambda a: [a.arithmetic_efficiency, a.memory_efficiency],
                    accelerator,
                    replace_fn=jnp.ones_like,
                )
            unit = jnp.ones_like(per_step)
            return (
                pass_seconds(work.decode, accelerator, Engine(4.0 * unit, 0.0 * unit, unit), EXACT).total
                / per_step
            )

        seconds = jax.vmap(one)(design.work, design.accelerator, design.tokens_per_step)
        found[list(design.rows)] = np.asarray(seconds)
    return found


def write(name: str, rows: list[dict]) -> None:
    with open(RESULTS / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(path: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows, bad = read_measurements(path, on_bad="skip")
    rows = [r for r in rows if r.kind in KINDS]
    cases = [case_of(r) for r in rows]
    found = calibrate(None, rows, progress=print)
    measured = np.asarray([p.measured for p in found.points])
    columns = {"fitted": np.asarray([p.predicted for p in found.points])}
    for name, out in found.held_out.items():
        columns[f"without_{name}"] = measured * np.exp(out.residuals)
    columns["uncalibrated_full_rates"] = uncalibrated(cases, True)
    columns["uncalibrated_assumed_rates"] = uncalibrated(cases, False)
    table = [
        {
            "line": p.line,
            "model": p.model,
            "accelerator": p.accelerator,
            "engine": p.engine,
            "kind": p.kind,
            "dense": p.dense,
            "impossible": p.impossible,
            "prompt_load": p.prompt_load,
            "shared_prompts": p.shared,
            "measured_s": p.measured,
            "low_s": p.low,
            "high_s": p.high,
            **{k: v[i] for k, v in columns.items()},
        }
        for i, p in enumerate(found.points)
    ]
    write("serving-predicted.csv", table)
    write("serving-errors.csv", errors_by_group(table, columns, measured))
    for k, v in columns.items():
        e = np.abs(v / measured - 1.0)
        print(f"{k:28s} mean {100 * e.mean():5.1f} %, median {100 * np.median(e):5.1f} %")
    shared = np.asarray([p.shared for p in found.points])
    for k, v in columns.items() if np.any(shared) else ():
        e = np.abs(v / measured - 1.0)
        print(
            f"{k:28s} mean {100 * e[shared].mean():5.1f} % of {shared.sum()} rows with shared prompts, "
            f"{100 * e[~shared].mean():5.1f} % of the others"
        )
    print({k: round(v.coverage, 3) for k, v in found.held_out.items()}, f"{found.seconds:.0f} s")
    first_tokens(rows, cases, found.fit.vector)
    importance = elasticities(found, measured)
    write("serving-elasticities.csv", importance)
    pictures(found, columns, measured, importance)


def first_tokens(rows: list, cases: list, vector: np.ndarray) -> None:
    """Time to the first token by the same constants, where the replica ingests its own prompts."""
    kept = [i for i, r in enumerate(rows) if r.kind == "serving_agg" and r.ttft is not None]
    chosen = [cases[i] for i in kept]
    predicted = np.zeros(len(kept))
    for design in designs_of(chosen):
        predicted[list(design.rows)] = np.asarray(design.first_token_seconds(jnp.asarray(vector)))
    table = [
        {
            "line": rows[i].line,
            "model": c.model_name,
            "accelerator": c.machine,
            "engine": c.engine,
            "batch": rows[i].batch,
            "prompt": rows[i].isl,
            "measured_s": rows[i].ttft,
            "predicted_s": p,
        }
        for i, c, p in zip(kept, chosen, predicted, strict=True)
    ]
    write("serving-first-token.csv", table)
    for engine in sorted({c.engine for c in chosen}):
        error = np.asarray(
            [abs(t["predicted_s"] / t["measured_s"] - 1.0) for t in table if t["engine"] == engine]
        )
        print(f"first token, {engine:14s} {len(error)} rows: median error {100 * np.median(error):.0f} %")


def errors_by_group(table: list[dict], columns: dict, measured: np.ndarray) -> list[dict]:
    rows = []
    for what in ("kind", "model", "accelerator", "engine", "dense", "shared_prompts"):
        names = np.asarray([str(r[what]) for r in table])
        for name in sorted(set(names.tolist())):
            own, row = names == name, {"by": what, "group": name, "rows": int(np.sum(names == name))}
            for k, v in columns.items():
                error = np.abs(v[own] / measured[own] - 1.0)
                row |= {f"{k}_mean": error.mean(), f"{k}_median": np.median(error)}
            rows.append(row)
    return rows


def elasticities(found, measured: np.ndarray) -> list[dict]:
    """d ln time/d ln constant, averaged over rows, and what 10 % of the constant does to the mean error."""
    jacobian, residuals, rows = found.fit.jacobian, found.fit.residuals, []
    base = np.mean(np.abs(np.expm1(residuals)))
    for i, c in enumerate(CONSTANTS):
        value = found.constants[c.name].value
        inner = 1.0 / (1.0 - value) if c.kind == "share" else 1.0  # d inner / d ln value
        up = np.mean(np.abs(np.expm1(residuals + 0.1 * inner * jacobian[:, i])))
        down = np.mean(np.abs(np.expm1(residuals - 0.1 * inner * jacobian[:, i])))
        rows.append(
            {
                "constant": c.name,
                "value": value,
                "elasticity_of_time": float(np.mean(jacobian[:, i]) * inner),
                "error_change_up_10_percent": up - base,
                "error_change_down_10_percent": down - base,
                "informed": found.constants[c.name].informed,
            }
        )
    return sorted(
        rows, key=lambda r: -max(r["error_change_up_10_percent"], r["error_change_down_10_percent"])
    )


def pictures(found, columns: dict, measured: np.ndarray, importance: list[dict]) -> None:
    engines = [p.engine for p in found.points]
    kept = [e for e in ("vllm", "tensorrt-llm", "sglang") if e in engines]
    shown = ("uncalibrated_full_rates", "fitted", "without_model")
    figure, axes = plt.subplots(
        len(shown),
        len(kept),
        figsize=(3.3 * len(kept), 9.3),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    machines = sorted({p.accelerator for p in found.points})
    for i, name in enumerate(shown):
        for j, engine in enumerate(kept):
            a = axes[i, j]
            for k, machine in enumerate(machines):
                own = np.asarray([p.engine == engine and p.accelerator == machine for p in found.points])
                a.scatter(
                    1e3 * measured[own],
                    1e3 * columns[name][own],
                    s=5,
                    alpha=0.5,
                    linewidths=0,
                    color=f"C{k}",
                    label=machine,
                )
            rows = np.asarray([p.engine == engine for p in found.points])
            error = np.abs(columns[name][rows] / measured[rows] - 1.0)
            a.plot([2, 300], [2, 300], color="0.4", linewidth=0.8)
            a.set(xscale="log", yscale="log", xlim=(2, 300), ylim=(1, 300))
            a.set_title(f"{engine}, {name.replace('_', ' ')}: {100 * error.mean():.0f} %", fontsize=9)
            a.spines[["top", "right"]].set_visible(False)
    for a in axes[-1]:
        a.set_xlabel("measured ms per token")
    for a in axes[:, 0]:
        a.set_ylabel("predicted ms per token")
    axes[0, -1].legend(fontsize=6, frameon=False, markerscale=2)
    save(figure, "serving-predicted")
    top = importance[:16][::-1]
    figure, a = plt.subplots(figsize=(7, 4.8), layout="constrained")
    for sign, colour in (("up", "#c05a2b"), ("down", "#3b6ea5")):
        a.barh(
            [r["constant"] for r in top],
            [100 * r[f"error_change_{sign}_10_percent"] for r in top],
            color=colour,
            alpha=0.7,
            label=f"constant 10 % {'larger' if sign == 'up' else 'smaller'}",
        )
    a.set_xlabel("change of the mean error, percentage points")
    a.legend(frameon=False, fontsize=8)
    a.spines[["top", "right"]].set_visible(False)
    save(figure, "serving-elasticities")


def save(figure, name: str) -> None:
    for ending in ("png", "svg"):
        figure.savefig(RESULTS / f"{name}.{ending}", dpi=130)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
