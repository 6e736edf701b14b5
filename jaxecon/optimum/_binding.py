"""What limits the relaxed optimum: elasticities of its speed by cause."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Smooth
from .._programs import program
from ..scenarios import Scenario
from ..specs import Accelerator, Layout
from ._interior import FINAL_TEMPERATURE
from ._relaxed_optimum import RelaxedOptimum


def _rates(a: Accelerator) -> tuple[list[Array], ...]:
    """Rates of arithmetic, memory and network that the accelerator states."""
    groups = (
        [a.peak.bits16, a.peak.bits8, a.peak.bits4],
        [a.hbm_bandwidth],
        [a.network.scale_up_bandwidth, a.network.scale_out_bandwidth],
    )
    return tuple([x for x in group if x is not None] for group in groups)


@program
def _time_shares(scenario: Scenario, layout: Layout) -> tuple[Array, ...]:
    """-d ln(step time)/d ln(all rates of one kind), by the smooth arithmetic, in which tied terms share
    the gradient."""
    kinds = _rates(scenario.accelerator)

    def log_time(logs: Array) -> Array:
        rates = [[x * factor for x in kind] for kind, factor in zip(kinds, jnp.exp(logs), strict=True)]
        moved = eqx.tree_at(
            lambda s: jax.tree.leaves(_rates(s.accelerator)), scenario, jax.tree.leaves(rates)
        )
        return jnp.log(moved.step_time(layout, Smooth(FINAL_TEMPERATURE, "above")).total)

    # Three directions: forward mode is quicker to trace and to compile than one reverse pass.
    return tuple(-jax.jacfwd(log_time)(jnp.zeros(len(kinds))))


def prepare_shares(scenario: Scenario) -> None:
    """In a command's process begin to compile what `binding_shares` runs, for 1-D partitions."""
    _time_shares.prepare(scenario, Layout(1.0, nodes=1.0))


def binding_shares(scenario: Scenario, best: RelaxedOptimum) -> dict[str, float]:
    """d ln speed / d ln of the arithmetic rate, memory bandwidth, network bandwidth, 1/latency, memory
    size (or other bound) and budget, at the relaxed optimum.

    The first four are shares of the step time, which add to 1 since time is homogeneous in rates and
    latencies, times 1 + (multiplier of the price) - (multiplier of the demand): a quicker step is a
    cheaper one too, and outruns a demand. By the envelope theorem the layout may be held.
    """
    kinds = ("arithmetic", "memory traffic", "network")
    found = _time_shares(scenario, best.interior)
    shares = {k: float(share) for k, share in zip(kinds, found, strict=True)}
    shares["latency"] = 1.0 - sum(shares.values())
    bounds = dict(best.multipliers)
    gain = 1.0 + bounds["price"] - bounds["demand"]
    return {k: gain * v for k, v in shares.items()} | bounds
