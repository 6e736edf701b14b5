"""What limits the relaxed optimum: elasticities of its speed by cause."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Smooth
from .._programs import program
from ..scenarios import Scenario
from ..specs import Accelerator, Layout
from ._interior import FINAL_TEMPERATURE
from ._relaxed_optimum import RelaxedOptimum


@program
def _time_slopes(scenario: Scenario, layout: Layout) -> tuple[Accelerator, Array]:
    """d ln(step time)/d(every number of the accelerator), by the smooth arithmetic, in which tied
    terms share the gradient."""

    def log_time(accelerator: Accelerator) -> Array:
        moved = eqx.tree_at(lambda s: s.accelerator, scenario, accelerator)
        return jnp.log(moved.step_time(layout, Smooth(FINAL_TEMPERATURE, "above")).total)

    return eqx.filter_grad(log_time)(scenario.accelerator), log_time(scenario.accelerator)


def binding_shares(scenario: Scenario, best: RelaxedOptimum) -> dict[str, float]:
    """d ln speed / d ln of the arithmetic rate, memory bandwidth, network bandwidth, 1/latency, memory
    size (or other bound) and budget, at the relaxed optimum.

    The first four are shares of the step time, which add to 1 since time is homogeneous in rates and
    latencies, times 1 + (multiplier of the price) - (multiplier of the demand): a quicker step is a
    cheaper one too, and outruns a demand. By the envelope theorem the layout may be held.
    """
    slopes, _ = _time_slopes(scenario, best.interior)
    a = scenario.accelerator

    def share(pairs: list[tuple[Array | None, Array | None]]) -> float:
        return -sum(float(s) * float(x) for s, x in pairs if s is not None and x is not None)

    peaks = [(getattr(slopes.peak, k), getattr(a.peak, k)) for k in ("bits16", "bits8", "bits4")]
    links = ("scale_up_bandwidth", "scale_out_bandwidth")
    shares = {
        "arithmetic": share(peaks),
        "memory traffic": share([(slopes.hbm_bandwidth, a.hbm_bandwidth)]),
        "network": share([(getattr(slopes.network, k), getattr(a.network, k)) for k in links]),
    }
    shares["latency"] = 1.0 - sum(shares.values())
    bounds = dict(best.multipliers)
    gain = 1.0 + bounds["price"] - bounds["demand"]
    return {k: gain * v for k, v in shares.items()} | bounds
