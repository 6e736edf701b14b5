"""Disaggregated serving: the best pools for prompts and for decoding within one budget.

The budget pays for a request's prompt and its output. What a prompt costs does not depend on how
tokens are decoded, so the cheapest prefill layout within the limit on the time to first token is part of
every optimum, and what remains of the budget is spent on decoding by the exact search.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError, InputError
from ..scenarios import Pools, Serving, pools
from ..scenarios._prompts import prompt_margin
from ..specs import Layout
from ._exact import Certified, certified_optimum
from ._space import MAX_ACCELERATORS, MAX_BATCH


class Disaggregated(eqx.Module):
    """The best decode layout, the cheapest prefill layout, and what both give together."""

    decode: Certified
    prefill: Layout
    pools: Pools
    cost: float
    """US dollars per million output tokens, prompts included."""


@eqx.filter_jit
def _ingestion(scenario: Serving, layouts: Layout) -> tuple[Array, Array, Array]:
    """(accelerator-seconds of a prompt, time to first token, free bytes) of each layout."""
    seconds = scenario.prompt_time(layouts) * layouts.accelerators
    return seconds, scenario.time_to_first_token(layouts), prompt_margin(scenario, layouts)


def cheapest_prefill(
    scenario: Serving,
    *,
    first_token: float = np.inf,
    max_accelerators: int = MAX_ACCELERATORS,
) -> tuple[Layout, float]:
    """(layout, US dollars per prompt) of the cheapest replica for prompts alone, by enumeration.

    Raises:
        InfeasibleError: if none fits in memory, or none is as quick as `first_token` seconds.
    """
    rows = []
    for layouts in scenario.degrees(max_accelerators):
        keep = np.asarray(layouts.draft_tokens) == 0.0
        plain = jax.tree.map(lambda x, keep=keep: x[keep], layouts)
        if not plain.tensor.size:
            continue
        seconds, first, margin = (np.asarray(x) for x in _ingestion(scenario, plain))
        rows.append((plain, seconds, first, margin))
    fits = [margin >= 0.0 for *_, margin in rows]
    if not any(np.any(f) for f in fits):
        raise InfeasibleError(f"no replica of up to {max_accelerators} accelerators holds a prompt")
    quickest = min(float(first[f].min()) for (_, _, first, _), f in zip(rows, fits, strict=True) if f.any())
    best: tuple[float, Layout] | None = None
    for (layouts, seconds, first, _), f in zip(rows, fits, strict=True):
        able = np.flatnonzero(f & (first <= first_token))
        if len(able):
            i = int(able[np.argmin(seconds[able])])
            if best is None or seconds[i] < best[0]:
                best = float(seconds[i]), jax.tree.map(lambda x, i=i: x[i], layouts)
    if best is None:
        raise InfeasibleError(
            f"a first token within {first_token:g} s is unreachable: the quickest layout takes "
            f"{quickest:.4g} s"
        )
    return best[1], best[0] * float(scenario.accelerator.price)


def disaggregated_optimum(
    scenario: Serving,
    budget: float,
    *,
    first_token: float = np.inf,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Disaggregated:
    """The fastest decoding within `budget` US dollars per million output tokens, prompts included.

    Raises:
        InputError: for a budget that is not a positive number.
        InfeasibleError: if prompts alone exceed the budget, or no layout fits or meets what remains.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    if scenario.chunk_tokens is not None:
        raise InputError("pools of their own ingest the prompts; leave chunk_tokens out")
    limits = {"max_accelerators": max_accelerators}
    prefill, dollars = cheapest_prefill(scenario, first_token=first_token, **limits)
    prompts = 1e6 * dollars / float(scenario.workload.output)
    if prompts >= budget:
        raise InfeasibleError(
            f"a budget of ${budget:g} per million tokens is unreachable: the prompts alone cost "
            f"${prompts:.4g}"
        )
    found = certified_optimum(scenario, budget - prompts, **limits, max_batch=max_batch)
    both = pools(scenario, found.layout, prefill)
    return Disaggregated(found, prefill, both, found.cost + prompts)
