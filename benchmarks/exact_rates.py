"""Exact layout evaluations per second: this library, a compiled Numba loop, the paper's NumPy grid.

Run: python benchmarks/exact_rates.py        (needs the `bench` extra)
Each figure is the best of several timings, taken in turns, on one core and on all.
"""

import os
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numba_loop
import numpy as np
import numpy_grid

import jaxecon as je
from jaxecon.optimum._space import _evaluate

POINTS = 400
PIPELINES = (1.0, 2.0, 4.0, 6.0)


def best_of(calls: dict, work: dict[str, int], rounds: int = 7, seconds: float = 0.15) -> dict[str, float]:
    """Work per second of each call, the best of `rounds`, in turns so that noise is shared."""
    rates = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            began, times = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                call()
                times += 1
            rates[name] = max(rates[name], times * work[name] / (time.perf_counter() - began))
    return rates


def layouts(width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tensor, pipeline, batch) of random legal layouts."""
    rng = np.random.default_rng(seed)
    tensor, pipeline = 2.0 ** rng.integers(0, 7, width), rng.choice([1.0, 2.0, 4.0, 5.0, 8.0], width)
    return tensor, pipeline, np.maximum(pipeline, rng.integers(1, 513, width))


def against_numba(threads: str) -> None:
    """Rates by width of the batch, the same layouts for both."""
    scenario = je.Serving(je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm"), je.Workload(4096))
    facts = numba_loop.facts_of(scenario)
    for width in (1, 10, 100, 1_000, 10_000, 100_000):
        tensor, pipeline, batch = layouts(width)
        one = np.ones(width)
        space = jax.tree.map(jnp.asarray, je.Layout(tensor, pipeline, one, one, batch, 0 * one))
        batches = jnp.asarray(batch)
        speed, cost, fits = np.empty(width), np.empty(width), np.empty(width, bool)
        arguments = (facts, tensor, pipeline, batch, speed, cost, fits)

        def ours(space=space, batches=batches):
            return jax.block_until_ready(_evaluate(scenario, space, batches))

        loops = {"plain": numba_loop.one_thread, "parallel": numba_loop.all_threads}
        calls = {"jaxecon": ours} | {
            name: (lambda f=f, arguments=arguments: f(*arguments)) for name, f in loops.items()
        }
        rates = best_of(calls, dict.fromkeys(calls, width))
        figures = [np.asarray(x) for x in ours()]
        np.testing.assert_allclose(speed, figures[0], rtol=1e-13)
        np.testing.assert_allclose(cost, figures[1], rtol=1e-13)
        np.testing.assert_array_equal(fits, figures[2])
        millions = " | ".join(f"{1e-6 * rates[k]:.3g}" for k in ("jaxecon", "plain", "parallel"))
        ratio = rates["jaxecon"] / max(rates["plain"], rates["parallel"])
        print(f"| {threads} | {width:,} | {millions} | {ratio:.2f} |", flush=True)


@eqx.filter_jit
def quickest(scenario: je.Erdil2025, n: jax.Array, batch: jax.Array) -> jax.Array:
    """Step time of the quickest of the paper's eight structures at each point, inf where none is legal."""
    pipeline = jnp.asarray(PIPELINES)[:, None, None]
    legal, best = pipeline <= jnp.minimum(n, batch), jnp.inf
    for partition in ("2d", "1d"):
        layout = je.Layout(n / pipeline, pipeline, batch=batch, partition=partition)
        time = jnp.where(legal, scenario.step_time(layout).total, jnp.inf)
        best = jnp.minimum(best, jnp.min(time, axis=0))
    return best


def against_numpy(threads: str) -> None:
    """The paper's equations in structures a second: one grid on either side, and layouts apart here."""
    model = {"d_model": 8192, "d_ff": 28672, "ff_matrix_count": (2, 1), "layers": 80, "n_experts": 1}
    model |= {"n_active_experts": 1, "num_query_heads": 64, "group_size": 8, "d_head": 128}
    model |= {"weight_precision_bytes": 2, "activation_precision_bytes": 2, "vocab_size": 128256}
    accelerator = {"flop_per_second": {"16": 9.89e14}, "hbm_bandwidth_Bps": 3.35e12, "node_size": 8}
    accelerator |= {"hbm_size_bytes": 8e10, "intranode_allreduce_bandwidth_Bps": 2.25e11}
    accelerator |= {"internode_allreduce_bandwidth_Bps": 2.5e10, "price_dollars_per_hour": 2.0}
    accelerator |= {"kernel_launch_latency_seconds": 4.5e-6}
    scenario = je.Erdil2025.from_fields(model, accelerator, context=4096)
    counts = {"total_params": float(scenario.model.total_parameters)}
    counts["total_active_params"] = float(scenario.model.active_parameters)
    counts["kv_bytes_per_token"] = float(scenario.model.kv_cache_bytes(1.0))
    axes = np.geomspace(1, 1024, POINTS), np.geomspace(1, 65536, POINTS)
    whole, apart = (np.meshgrid(*axes, indexing="ij", sparse=sparse) for sparse in (False, True))
    width = 100_000
    tensor, pipeline, batch = layouts(width)
    pipeline = np.where(pipeline > 4, 6.0, np.where(pipeline == 5, 4.0, pipeline))
    one = np.ones(width)
    space = jax.tree.map(jnp.asarray, je.Layout(tensor, pipeline, one, one, batch, 0 * one))
    batches = jnp.asarray(np.maximum(batch, pipeline))

    def grid(points):
        return numpy_grid.best_step_time(model | counts, accelerator, 4096, 1, *points)

    calls = {
        "grid": lambda: jax.block_until_ready(quickest(scenario, *apart)),
        "layouts": lambda: jax.block_until_ready(_evaluate(scenario, space, batches)),
        "numpy": lambda: grid(whole),
        "open": lambda: grid(apart),
    }
    np.testing.assert_allclose(quickest(scenario, *apart), grid(whole), rtol=1e-13)
    # Each point of the grid is evaluated in eight structures.
    structures = 2 * len(PIPELINES) * POINTS**2
    rates = best_of(calls, dict.fromkeys(calls, structures) | {"layouts": width}, rounds=4)
    millions = " | ".join(f"{1e-6 * rates[k]:.3g}" for k in calls)
    ratios = rates["grid"] / rates["numpy"], rates["grid"] / rates["open"], rates["layouts"] / rates["numpy"]
    print(f"| {threads} | {millions} | {' | '.join(f'{r:.1f}' for r in ratios)} |", flush=True)


def main() -> None:
    """Print both tables for the cores that this process may use."""
    threads = f"{len(os.sched_getaffinity(0))} core(s)"
    if "numpy" not in sys.argv[1:]:
        against_numba(threads)
    else:
        against_numpy(threads)


if __name__ == "__main__":
    main()
