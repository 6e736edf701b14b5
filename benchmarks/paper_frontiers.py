"""The relaxed frontier against the paper's own frontiers, setting by setting.

Run: python benchmarks/paper_frontiers.py FRONTIERS.json SPECS.json [SETTING ...]
The files hold the paper's Pareto frontiers on its 400 x 400 grid of real N and batch (fields speed, cost,
accelerators) and the tables of its models and accelerators. At the cost of every point with at least one
accelerator, our speed over the paper's; both by the exact arithmetic.
"""

import json
import sys
import time

import numpy as np

import jaxecon as je

LARGEST_BATCH = 2**20  # the paper's grid goes beyond the library's default


def scenario_of(setting: dict, specs: dict) -> je.Erdil2025:
    """The paper's setting as a scenario."""
    draft = None if setting["draft"] is None else specs["models"][setting["draft"]]
    return je.Erdil2025.from_fields(
        specs["models"][setting["model"]],
        specs["accelerators"][setting["accelerator"]],
        context=setting["context"],
        draft=draft,
        acceptance=setting["acceptance"],
        gamma_max=setting["gamma_max"] or 0,
        demand=setting["demand_tokens_per_s"],
    )


def ratios(setting: dict, specs: dict) -> np.ndarray:
    """Our speed over the paper's at equal cost; 0 where we found nothing."""
    scenario = scenario_of(setting, specs)
    columns = ("speed_tokens_per_s", "cost_usd_per_million", "n_accelerators")
    speed, cost, n = (np.asarray(setting[k]) for k in columns)
    speed, cost, n = (x[n >= 1.0] for x in (speed, cost, n))
    budgets = cost * (1 + 1e-12)
    largest = max(1024.0, float(n.max()))
    found = je.relaxed_frontier(scenario, budgets, max_accelerators=largest, max_batch=LARGEST_BATCH)
    best = np.array([found.speed[found.cost <= b].max(initial=0.0) for b in budgets])
    return best / speed


def main(frontiers: str, specs: str, *chosen: str) -> None:
    """Print a row per setting."""
    with open(frontiers) as file, open(specs) as other:
        settings, tables = json.load(file), json.load(other)
    print("| setting | points | least ratio | below 0.9995 | seconds |\n| --- | --- | --- | --- | --- |")
    for i, setting in enumerate(settings):
        if chosen and str(i) not in chosen:
            continue
        began = time.perf_counter()
        found = ratios(setting, tables)
        took = time.perf_counter() - began
        below = int((found < 0.9995).sum())
        name = f"{setting['comparison']}: {setting['name']}"
        print(f"| {i} {name} | {len(found)} | {found.min():.6f} | {below} | {took:.1f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
