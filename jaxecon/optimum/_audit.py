"""Checks of an answer from first principles, sharing no formula with the search."""

import math

from ..scenarios import Scenario
from ._exact import Certified


def audit(scenario: Scenario, found: Certified) -> None:
    """Recompute what every printed layout must satisfy.

    Stored weights and the whole batch's cache, spread evenly, are the least that any split needs;
    arithmetic and cache reads at the plain peak rates are the least time that any step takes.

    Raises:
        RuntimeError: if memory does not fit, the accelerator count is not the product of the
            degrees, the time is below the roofline, or cost and speed do not belong together.
    """
    layout, accelerator, workload = found.layout, scenario.accelerator, scenario.workload
    degrees = [float(x) for x in (layout.tensor, layout.data, layout.pipeline)]
    n, batch = math.prod(degrees), float(layout.batch)
    tokens = sum(_acceptance(scenario) ** i for i in range(int(layout.draft_tokens) + 1))
    seconds = float(scenario.tokens_per_step(layout)) / found.speed
    cost = 1e6 * n * float(accelerator.price) * seconds / (batch * tokens)
    need = (_weights(scenario) + _cache(scenario, float(workload.context)) * batch) / n
    reserve = float(getattr(scenario, "reserve", 0.0)) * float(accelerator.hbm_size)
    rates = [x for x in (accelerator.peak.bits16, accelerator.peak.bits8, accelerator.peak.bits4)]
    peak = max(float(x) for x in rates if x is not None)
    reads = _reads(scenario, float(workload.context)) * batch
    least = max(_flop(scenario) * batch / (n * peak), reads / (n * float(accelerator.hbm_bandwidth)))
    checks = {
        "the layout does not fit in memory": need + reserve <= float(accelerator.hbm_size),
        "the memory ledger does not add up": float(scenario.memory_margin(layout))
        <= float(accelerator.hbm_size) - need - reserve + 1.0,
        "the accelerators are not the product of the degrees": n == float(layout.accelerators),
        "the time is below the roofline": seconds >= least * (1 - 1e-12),
        "cost and speed disagree": math.isclose(cost, found.cost, rel_tol=1e-6),
    }
    for complaint, holds in checks.items():
        if not holds:
            raise RuntimeError(f"internal check failed: {complaint}; please report this scenario")


def _acceptance(scenario: Scenario) -> float:
    speculation = getattr(scenario, "speculation", None)
    chosen = getattr(scenario, "acceptance", None) if speculation is None else speculation.acceptance
    return 0.0 if chosen is None else float(chosen)


def _weights(scenario: Scenario) -> float:
    """Least bytes of stored weights: every parameter at the narrowest precision used."""
    model = scenario.model
    precision = getattr(model, "precision", None)
    if precision is None:
        return float(model.total_parameters) * float(model.weight_bytes)
    narrowest = min(float(x) for x in (precision.weight, precision.expert, precision.embedding))
    return float(model.total_parameters) * narrowest


def _cache(scenario: Scenario, context: float) -> float:
    return float(scenario.model.kv_cache_bytes(context))


def _reads(scenario: Scenario, context: float) -> float:
    """Cache bytes that a step must read; the toy model reads none, sparse attention not all."""
    model = scenario.model
    halves = [getattr(g, "mixer", None) for g in getattr(model, "groups", ())]
    if any(getattr(m, "index_top_k", None) is not None for m in halves):
        return 0.0
    return 0.0 if type(scenario).__name__ == "Toy" else _cache(scenario, context)


def _flop(scenario: Scenario) -> float:
    """FLOP per token without attention scores: 2 per active weight outside the embeddings."""
    model = scenario.model
    embeddings = float(model.embedding_parameters)
    vectors = sum(
        float(g.count) * (float(g.norm_parameters) + float(getattr(h, "vector_parameters", 0.0)))
        for g in getattr(model, "groups", ())
        for h in (g.mixer, g.feed_forward)
    )
    other = float(getattr(model, "other_parameters", 0.0))
    inside = float(model.active_parameters) - embeddings - vectors - other
    return 2.0 * max(inside, 0.0) * 0.999
