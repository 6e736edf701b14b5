"""Checks of an answer from first principles, sharing no formula with the search."""

import jax
import numpy as np

from ..scenarios import Inspection, Scenario, inspect_layouts
from ._exact import Certified
from ._frontier import Frontier


def audit(scenario: Scenario, found: Certified | Frontier) -> None:
    """Recompute what every printed layout must satisfy.

    Stored weights and the whole batch's cache, spread evenly, are the least that any split needs;
    arithmetic and cache reads at the plain peak rates are the least time that any step takes.

    Raises:
        RuntimeError: if memory does not fit, the accelerator count is not the product of the
            degrees, the time is below the roofline, or cost and speed do not belong together.
    """
    accelerator = scenario.accelerator
    seen = inspect_layouts(scenario, found.layout)
    layout = jax.tree.map(np.asarray, found.layout)
    speed, reported = np.asarray(found.speed), np.asarray(found.cost)
    n = layout.tensor * layout.data * layout.pipeline
    batch, size = layout.batch, float(accelerator.hbm_size)
    seconds = np.asarray(seen.tokens_per_step) / speed
    cost = 1e6 * n * float(accelerator.price) / (batch * speed)
    need = (_weights(scenario, seen) + float(seen.cache_bytes) * batch) / n
    need = need + float(getattr(scenario, "reserve", 0.0)) * size
    rates = (accelerator.peak.bits16, accelerator.peak.bits8, accelerator.peak.bits4)
    peak = max(float(x) for x in rates if x is not None)
    reads = _reads(scenario, seen) * batch
    arithmetic = _flop(scenario, seen) * batch / (n * peak)
    least = np.maximum(arithmetic, reads / (n * float(accelerator.hbm_bandwidth)))
    margin = np.asarray(seen.margin)
    checks = {
        "the layout does not fit in memory": need <= size,
        "the memory ledger does not add up": margin <= size - need + 1.0,
        "the accelerators are not the product of the degrees": n == layout.accelerators,
        "the time is below the roofline": seconds >= least * (1 - 1e-12),
        "speed is not that of the layout": np.isclose(speed, np.asarray(seen.speed), rtol=1e-9),
        "cost and speed disagree": np.isclose(cost, reported, rtol=1e-9),
    }
    for complaint, holds in checks.items():
        if not np.all(holds):
            raise RuntimeError(f"internal check failed: {complaint}; please report this scenario")


def _weights(scenario: Scenario, seen: Inspection) -> float:
    """Least bytes of stored weights: every parameter at the narrowest precision used."""
    model = scenario.model
    precision = getattr(model, "precision", None)
    if precision is None:
        return float(seen.parameters) * float(model.weight_bytes)
    narrowest = min(float(x) for x in (precision.weight, precision.expert, precision.embedding))
    return float(seen.parameters) * narrowest


def _reads(scenario: Scenario, seen: Inspection) -> float:
    """Cache bytes that a step must read; the toy model reads none, sparse attention not all."""
    model = scenario.model
    halves = [getattr(g, "mixer", None) for g in getattr(model, "groups", ())]
    if any(getattr(m, "index_top_k", None) is not None for m in halves):
        return 0.0
    return 0.0 if type(scenario).__name__ == "Toy" else float(seen.cache_bytes)


def _flop(scenario: Scenario, seen: Inspection) -> float:
    """FLOP per token without attention scores: 2 per active weight outside the embeddings."""
    model = scenario.model
    embeddings = float(seen.embedding_parameters)
    vectors = sum(
        float(g.count) * (float(g.norm_parameters) + float(getattr(h, "vector_parameters", 0.0)))
        for g in getattr(model, "groups", ())
        for h in (g.mixer, g.feed_forward)
    )
    other = float(getattr(model, "other_parameters", 0.0))
    inside = float(seen.active_parameters) - embeddings - vectors - other
    return 2.0 * max(inside, 0.0) * 0.999
