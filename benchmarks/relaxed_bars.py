"""How good the relaxed optimum is: against a dense grid plus polish, and against exact search.

Run: python benchmarks/relaxed_bars.py [COUNT] [FIRST_SEED] [sparse]
Every speed and cost that counts is by the exact arithmetic, hard ceil included. The reference
scans 300 tensor degrees, 24 pipeline degrees and 17 draft lengths, all real, with the smallest
affordable batch for each, and then zooms 14 times into the best point.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scenarios import MAX_ACCELERATORS, grouped

import jaxecon as je
from jaxecon.optimum._relaxation import Box, Limits, least_batch
from jaxecon.optimum._relaxed_optimum import limits_of
from jaxecon.scenarios import Across, Scenario


@eqx.filter_jit
def _batches(
    scenario: Scenario, limits: Limits, points: jax.Array, across: Across
) -> tuple[jax.Array, jax.Array]:
    """(speed or 0, z) at each (ln free degree, ln pipeline, ln(1 + draft))."""
    box = Box(jnp.zeros(3), jnp.zeros(3), jnp.ones(()), jnp.asarray(False), jnp.asarray(0), across, "1d")
    found = least_batch(scenario, limits, points, box, 22, stated_nodes=False)
    return jnp.where(found.fits, jnp.exp(-found.objective), 0.0), found.z


def reference(scenario: Scenario, limits: Limits) -> float:
    """Speed of the dense-grid-plus-polish optimum over all families."""
    best = 0.0
    families = scenario.families(limits.max_accelerators)
    counts = (300, 24, 17) if len(families) < 9 else (80, 8, 5)
    for family in families:
        low = np.log([family.tensor_low, family.pipeline_low, 1.0 + family.draft_low])
        high = np.log([family.tensor_high, family.pipeline_high, 1.0 + family.draft_high])
        if low[0] > high[0] + 1e-12:
            continue  # an empty family
        size = float(scenario.accelerator.network.domain_size / family.across.fixed)
        full = np.log(size * np.arange(1, 1 + int(np.exp(high[0]) // size)))[: counts[0]]
        axes = [np.concatenate([np.linspace(low[0], high[0], counts[0]), full[full >= low[0]]])]
        axes += [np.linspace(low[i], high[i], counts[i]) for i in (1, 2)]
        axes = [np.unique(a) for a in axes]
        best = max(best, _zoom(scenario, limits, axes, low, high, family.across))
    return best


def _zoom(
    scenario: Scenario, limits: Limits, axes: list, low: np.ndarray, high: np.ndarray, across: Across
) -> float:
    best, at = 0.0, None
    widths = (high - low) / np.array([100, 10, 8])
    for _ in range(15):
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
        size = 1 << (len(grid) - 1).bit_length()
        grid = grid[np.minimum(np.arange(size), len(grid) - 1)]
        speeds = np.asarray(_batches(scenario, limits, jnp.asarray(grid), across)[0])
        i = int(np.argmax(speeds))
        if speeds[i] > best:
            best, at = float(speeds[i]), grid[i]
        if at is None:
            return 0.0
        counts = (15, 9, 9)
        axes = [
            np.unique(np.clip(at[k] + widths[k] * np.linspace(-1, 1, counts[k]), low[k], high[k]))
            for k in range(3)
        ]
        widths = widths * 0.4
    return best


def main(count: int = 500, first: int = 0, sparse: bool = False) -> None:
    """Print the share of scenarios within each bar, and the worst."""
    ratios, violations, statuses, nans = [], [], [], 0
    for seed, scenario, budget in grouped(count, first, sparse):
        limits = limits_of(budget, MAX_ACCELERATORS, 65536)
        expected = reference(scenario, limits)
        try:
            found = je.relaxed_optimum(scenario, budget, max_accelerators=MAX_ACCELERATORS)
        except je.InfeasibleError:
            ratios.append(0.0 if expected > 0 else 1.0)
            print(f"seed {seed}: none found, reference {expected:.6g}", flush=True)
            continue
        margin = scenario.memory_margin(found.layout) / scenario.accelerator.hbm_size
        demand = scenario.demand_margin(found.layout, jnp.asarray(found.speed))
        excess = max(found.cost / budget - 1.0, -float(margin), -float(demand))
        values = [found.speed, found.cost, found.residual, found.shadow_price]
        nans += sum(bool(np.isnan(v)) for v in values)
        ratio = found.speed / expected if expected > 0 else 1.0
        ratios.append(ratio)
        violations.append(excess)
        statuses.append(found.status)
        if ratio < 0.999 or found.status != "success" or excess > 1e-6:
            print(
                f"seed {seed}: ratio {ratio:.6f} {found.status} {found.residual:.1e} {excess:.1e}", flush=True
            )
    ratios = np.array(ratios)
    print(f"{count} scenarios from seed {first}")
    print(f"within 0.1 %: {np.mean(ratios >= 0.999):.4f}; within 1 %: {np.mean(ratios >= 0.99):.4f}; ")
    print(f"worst ratio {ratios.min():.6f}; beats the grid by up to {ratios.max() - 1:.2e}")
    print(f"worst violation {max(violations):.1e}; nan {nans}")
    for status in sorted(set(statuses)):
        print(f"status {status!r}: {statuses.count(status)}")


if __name__ == "__main__":
    numbers = [int(x) for x in sys.argv[1:] if x != "sparse"]
    main(*numbers, sparse="sparse" in sys.argv)
