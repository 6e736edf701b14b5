"""Other ways to the same answers: the paper's grid, SciPy's SLSQP, finite differences.

Run: python benchmarks/other_methods.py
Times are warm, compilation is not counted, except in the rows that say so.
"""

import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy_grid
from scipy.optimize import minimize

import jaxecon as je
from jaxecon.optimum._many_relaxed import relaxed_many
from jaxecon.optimum._max_speed import log_max_speed
from jaxecon.optimum._relaxed_optimum import limits_of

BUDGETS = (0.5, 1.0, 1.5, 3.0, 6.0)
STARTS = 6
BATCH = 256


def timed(call, repeats: int = 5) -> tuple[float, object]:
    """(median seconds, result) of a warm call."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - began)
    return statistics.median(times), result


def first_call(call) -> float:
    """Seconds of a first call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _described(fields: dict) -> dict:
    """Without the counts that the library works out itself."""
    return {k: v for k, v in fields.items() if not k.startswith(("total", "kv_bytes"))}


def papers_grid() -> None:
    """The paper's grid of 400 x 400 real points against the whole certified frontier."""
    fields = {"d_model": 8192, "d_ff": 28672, "ff_matrix_count": (2, 1), "layers": 80, "n_experts": 1}
    fields |= {"n_active_experts": 1, "num_query_heads": 64, "group_size": 8, "d_head": 128}
    fields |= {"weight_precision_bytes": 2, "activation_precision_bytes": 2, "vocab_size": 128256}
    machine = {"flop_per_second": {"16": 9.89e14}, "hbm_bandwidth_Bps": 3.35e12, "node_size": 8}
    machine |= {"hbm_size_bytes": 8e10, "intranode_allreduce_bandwidth_Bps": 2.25e11}
    machine |= {"internode_allreduce_bandwidth_Bps": 2.5e10, "price_dollars_per_hour": 2.0}
    machine |= {"kernel_launch_latency_seconds": 4.5e-6}
    scenario = je.Erdil2025.from_fields(fields, machine, context=4096)
    fields |= {"total_params": float(scenario.model.total_parameters)}
    fields |= {"total_active_params": float(scenario.model.active_parameters)}
    fields |= {"kv_bytes_per_token": float(scenario.model.kv_cache_bytes(1.0))}
    grid, (speed, cost) = timed(lambda: numpy_grid.grid_frontier(fields, machine, 4096), 3)
    whole, found = timed(lambda: je.certified_frontier(scenario), 3)
    one, _ = timed(lambda: je.certified_optimum(scenario, 1.0), 3)
    budgets = np.geomspace(found.cost.min(), found.cost.max(), 64) * (1 + 1e-12)
    first = first_call(lambda: je.relaxed_frontier(scenario, budgets))
    curve, _ = timed(lambda: je.relaxed_frontier(scenario, budgets), 101)
    behind = []
    for at in np.geomspace(found.cost.min(), found.cost.max(), 50)[1:-1]:
        ours = found.speed[found.cost <= at].max()
        theirs = speed[cost <= at].max(initial=0.0)
        behind.append(theirs / ours)
    print(f"| paper's grid, whole frontier | {grid:.3g} s | {whole:.3g} s | {grid / whole:.2f} |")
    print(f"| paper's grid; ours 64 relaxed budgets | {grid:.3g} s | {curve:.3g} s | {grid / curve:.1f} |")
    small = fields | {"d_model": 4096, "d_ff": 14336, "layers": 32, "num_query_heads": 32, "group_size": 4}
    model = je.Erdil2025.from_fields(_described(small), machine, context=4096).model
    small |= {"total_params": float(model.total_parameters)}
    small |= {"total_active_params": float(model.active_parameters)}
    small |= {"kv_bytes_per_token": float(model.kv_cache_bytes(1.0))}
    options = {"acceptance": 0.8, "gamma_max": 20}
    drafted = je.Erdil2025.from_fields(
        _described(fields), machine, context=4096, draft=_described(small), **options
    )
    grid_d, _ = timed(lambda: numpy_grid.grid_frontier(fields, machine, 4096, small, **options), 1)
    first_d = first_call(lambda: je.relaxed_frontier(drafted, budgets))
    curve_d, _ = timed(lambda: je.relaxed_frontier(drafted, budgets), 101)
    what = "the same with up to 20 drafted tokens"
    print(f"| {what} | {grid_d:.3g} s | {curve_d:.3g} s | {grid_d / curve_d:.1f} |")
    print(f"| our first call, with compilation | {grid:.3g} s | {first:.3g} s | {grid / first:.2f} |")
    print(f"| the same with drafted tokens | {grid_d:.3g} s | {first_d:.3g} s | {grid_d / first_d:.2f} |")
    print(f"| paper's grid, one budget | {grid:.3g} s | {one:.3g} s | {grid / one:.1f} |")
    print(
        f"\nSpeed on the grid (real degrees) over the certified (whole degrees) at equal cost: "
        f"{min(behind):.3f} to {max(behind):.3f}\n"
    )


def slsqp() -> None:
    """SLSQP with exact gradients of the exact cost model, from random starts."""
    scenario = je.Serving(je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm"), je.Workload(4096))

    def layout(z):
        one = jnp.ones(())
        return je.Layout(jnp.exp(z[0]), jnp.exp(z[1]), one, one, jnp.exp(z[2]), 0.0 * one)

    @jax.jit
    def figures(z, numbers, budget):
        s, at = eqx.combine(numbers, structure), layout(z)
        margin = s.memory_margin(at) / s.accelerator.hbm_size
        rows = [jnp.log(s.speed(at)), jnp.log(budget / s.cost(at)), margin, z[2] - z[1]]
        return jnp.stack([*rows, jnp.log(1024.0) - z[0] - z[1]])

    numbers, structure = eqx.partition(scenario, eqx.is_array)
    slopes = jax.jit(jax.jacobian(figures))
    rng = np.random.default_rng(0)
    starts = rng.uniform([0, 0, 0], [np.log(64), np.log(8), np.log(512)], (STARTS, 3))

    def solve(budget):
        best = 0.0
        for start in starts:
            found = minimize(
                lambda z: -float(figures(z, numbers, budget)[0]),
                start,
                jac=lambda z: -np.asarray(slopes(z, numbers, budget)[0]),
                bounds=[(0, np.log(64)), (0, np.log(80)), (0, np.log(65536))],
                constraints={
                    "type": "ineq",
                    "fun": lambda z: np.asarray(figures(z, numbers, budget)[1:]),
                    "jac": lambda z: np.asarray(slopes(z, numbers, budget)[1:]),
                },
                method="SLSQP",
            )
            values = np.asarray(figures(found.x, numbers, budget))
            if np.all(values[1:] >= -1e-6):
                best = max(best, float(np.exp(values[0])))
        return best

    theirs, ours, ratios = [], [], []
    for budget in BUDGETS:
        t, speed = timed(lambda b=budget: solve(b), 3)
        u, relaxed = timed(lambda b=budget: je.relaxed_optimum(scenario, b), 3)
        theirs.append(t)
        ours.append(u)
        ratios.append(speed / relaxed.speed)
    t, u = statistics.median(theirs), statistics.median(ours)
    print(f"| SLSQP from {STARTS} starts, relaxed optimum | {t:.3g} s | {u:.3g} s | {t / u:.1f} |")
    many = np.geomspace(BUDGETS[0], BUDGETS[-1], BATCH)
    nothing = jax.tree.map(lambda x: None, scenario)
    v, _ = timed(lambda: relaxed_many(nothing, scenario, many), 3)
    each = v / BATCH
    print(f"| the same, ours {BATCH} budgets at once, each | {t:.3g} s | {each:.3g} s | {t / each:.0f} |")
    print(f"\nSpeed of SLSQP's best over ours, by budget: {', '.join(f'{r:.3f}' for r in ratios)}\n")


def finite_differences() -> None:
    """Elasticities in every number of the question: re-solved twice each, or one gradient."""
    scenario = je.Serving(je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm"), je.Workload(4096))
    limits = limits_of(1.0, 1024, 65536)
    leaves, structure = jax.tree.flatten(scenario)

    @eqx.filter_jit
    def value(leaves):
        return log_max_speed(jax.tree.unflatten(structure, leaves), limits)

    @eqx.filter_jit
    def gradient(leaves):
        return jax.grad(lambda x: log_max_speed(jax.tree.unflatten(structure, x), limits))(leaves)

    step = 1e-4

    def differences():
        slopes = []
        for i in range(len(leaves)):
            sides = [
                float(value([*leaves[:i], leaves[i] * np.exp(sign * step), *leaves[i + 1 :]]))
                for sign in (-1, 1)
            ]
            slopes.append((sides[1] - sides[0]) / (2 * step))
        return np.array(slopes)

    slow, by_differences = timed(differences, 1)
    fast, slopes = timed(lambda: jax.block_until_ready(gradient(leaves)), 3)
    by_gradient = np.array([float(s * x) for s, x in zip(slopes, leaves, strict=True)])
    gaps = np.abs(by_differences - by_gradient)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(scenario)[0]]
    order = np.argsort(-gaps)[:3]
    said = ", ".join(f"{gaps[i]:.1e} in {paths[i][1:]}" for i in order)
    what = f"finite differences, {len(leaves)} elasticities"
    print(f"| {what} | {slow:.3g} s | {fast:.3g} s | {slow / fast:.0f} |")
    print(f"\nLargest differences between the two: {said}\n")


def main() -> None:
    """Print one table row per method, each followed by what it finds."""
    for part in (papers_grid, slsqp, finite_differences):
        print("| other method | its time | ours | ratio |\n| --- | --- | --- | --- |")
        part()
        jax.clear_caches()


if __name__ == "__main__":
    main()
