"""Certified optima of many scenarios: cost per scenario by batch, against single warm calls.

Run: python benchmarks/many_scenarios.py
"""

import statistics
import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import jaxecon as je

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)


def _axes(scenario: je.Serving) -> tuple[jnp.ndarray, jnp.ndarray]:
    """The numbers that vary."""
    return scenario.accelerator.hbm_bandwidth, scenario.workload.context


def draw(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bandwidth, context, budget) of random scenarios."""
    rng = np.random.default_rng(0)
    bandwidth = 3.35e12 * 4.0 ** rng.uniform(-1, 1, count)
    return bandwidth, 10.0 ** rng.uniform(2, 5, count), 10.0 ** rng.uniform(-0.5, 1, count)


def main() -> None:
    """Print a row per batch; single calls are timed between them, on the same scenarios."""
    scenario = je.Serving(je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm"), je.Workload(4096))
    bandwidth, context, budget = draw(max(COUNTS))

    def single(i: int) -> float:
        one = eqx.tree_at(_axes, scenario, (jnp.asarray(bandwidth[i]), jnp.asarray(context[i])))
        began = time.perf_counter()
        try:
            je.certified_optimum(one, budget[i])
        except je.InfeasibleError:
            pass
        return time.perf_counter() - began

    singles = [single(i) for i in range(20)][5:]
    print("| scenarios | microseconds each | of a single warm call |\n| --- | --- | --- |")
    rows = []
    for count in COUNTS:
        many = eqx.tree_at(_axes, scenario, (bandwidth[:count], context[:count]))
        je.certified_many(many, budget[: min(count, 8192)]) if count == 1 else None
        each = []
        for _ in range(1 if count >= 100_000 else 4):
            began = time.perf_counter()
            for start in range(0, count, 8192):
                part = slice(start, min(start + 8192, count))
                chunk = eqx.tree_at(_axes, many, (bandwidth[part], context[part]))
                je.certified_many(chunk, budget[part])
            each.append((time.perf_counter() - began) / count)
        singles += [single(i) for i in range(20, 40)]
        rows.append((count, min(each)))
    alone = statistics.median(singles)
    for count, each in rows:
        print(f"| {count:,} | {1e6 * each:.3g} | {each / alone:.4f} (1/{alone / each:.0f}) |")
    print(f"\nA single warm call: {1e3 * alone:.3g} ms (median of {len(singles)}, between the batches).\n")


if __name__ == "__main__":
    main()
