"""The relaxed frontier against the paper's grid on random settings, half of them with drafted tokens.

Run: python benchmarks/random_frontiers.py [COUNT] [FIRST_SEED]
At the cost of every point of the grid's Pareto frontier (400 x 400 real N and batch, whole draft lengths),
our speed over the grid's; both by the exact arithmetic.
"""

import sys

import jax.numpy as jnp
import numpy as np

import jaxecon as je

POINTS, LONGEST = 400, 20
LARGEST, LARGEST_BATCH = 1024, 65536


def scenario_of(seed: int) -> je.Erdil2025:
    """A random model on a random machine; drafting where the seed is odd."""
    rng = np.random.default_rng(seed)

    def model(width: int, layers: int) -> dict:
        heads = width // 128
        grouped = int(rng.choice([1, heads // 8]))
        return {
            "d_model": width,
            "d_ff": int(width * rng.choice([2.75, 3.5, 4.0])),
            "ff_matrix_count": (2, 1),
            "layers": layers,
            "n_experts": 1,
            "n_active_experts": 1,
            "num_query_heads": heads,
            "group_size": max(grouped, 1),
            "d_head": 128,
            "weight_precision_bytes": 2,
            "activation_precision_bytes": 2,
            "vocab_size": 128256,
        }

    machine = {
        "flop_per_second": {"16": 9.89e14 * rng.choice([0.3, 1.0, 2.0])},
        "hbm_bandwidth_Bps": 3.35e12 * rng.choice([0.5, 1.0, 2.5]),
        "hbm_size_bytes": 8e10 * rng.choice([1.0, 2.0]),
        "node_size": int(rng.choice([8, 16, 72])),
        "intranode_allreduce_bandwidth_Bps": 2.25e11 * rng.choice([0.5, 1.0, 2.0]),
        "internode_allreduce_bandwidth_Bps": 2.5e10 * rng.choice([0.5, 1.0, 4.0]),
        "price_dollars_per_hour": 2.0,
        "kernel_launch_latency_seconds": 4.5e-6,
    }
    target = model(int(rng.choice([4096, 8192, 12288])), int(rng.choice([40, 80, 120])))
    context = float(rng.choice([512.0, 4096.0, 32768.0]))
    if seed % 2 == 0:
        return je.Erdil2025.from_fields(target, machine, context=context)
    draft = model(int(rng.choice([1024, 2048, 4096])), int(rng.choice([8, 16, 32])))
    acceptance = float(rng.choice([0.5, 0.7, 0.8, 0.9, 0.97]))
    drafting = {"draft": draft, "acceptance": acceptance, "gamma_max": LONGEST}
    return je.Erdil2025.from_fields(target, machine, context=context, **drafting)


def grid_frontier(scenario: je.Erdil2025) -> tuple[np.ndarray, np.ndarray]:
    """(speed, cost) of the grid's frontier, dearest first; one row of N at a time, which saves memory."""
    batch = jnp.geomspace(1.0, LARGEST_BATCH, POINTS)
    rows = [scenario.best_step_time(jnp.full(POINTS, n), batch) for n in np.geomspace(1.0, LARGEST, POINTS)]
    n = np.repeat(np.geomspace(1.0, LARGEST, POINTS), POINTS)
    time, batch = np.asarray(rows).ravel(), np.tile(np.asarray(batch), POINTS)
    cost = 1e6 * n * float(scenario.accelerator.price) * time / batch
    order = np.lexsort((cost, time))[: int(np.isfinite(time).sum())]
    speed, cost = 1.0 / time[order], cost[order]
    keep = cost < np.minimum.accumulate(np.concatenate([[np.inf], cost[:-1]]))
    return speed[keep], cost[keep]


def main(count: int = 24, first: int = 0) -> None:
    """Print a row per setting, and what part of all points is behind."""
    whole = {True: [], False: []}
    print("| seed | drafts | points | least ratio | below 0.9995 |\n| --- | --- | --- | --- | --- |")
    for seed in range(first, first + count):
        scenario = scenario_of(seed)
        speed, cost = grid_frontier(scenario)
        budgets = cost * (1.0 + 1e-12)
        found = je.relaxed_frontier(scenario, budgets, max_accelerators=LARGEST, max_batch=LARGEST_BATCH)
        best = [found.speed[found.cost <= b * (1.0 + 1e-12)].max(initial=0.0) for b in budgets]
        ratio = np.asarray(best) / speed
        whole[scenario.draft is not None].append(ratio)
        drafts = "yes" if scenario.draft is not None else "no"
        print(
            f"| {seed} | {drafts} | {len(ratio)} | {ratio.min():.6f} | {(ratio < 0.9995).sum()} |", flush=True
        )
    for drafts, ratios in whole.items():
        every = np.concatenate([np.zeros(0), *ratios])
        if every.size:
            behind, name = int((every < 0.9995).sum()), "with drafts" if drafts else "without drafts"
            print(f"{name}: {behind} of {every.size} points below 0.9995, least {every.min():.6f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
