"""The exact search equals a naive enumeration of every layout and batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import audit


def _scenario(seed):
    rng = np.random.default_rng(seed)
    heads = int(rng.choice([4, 6, 8]))
    model = je.Model(
        width=1024.0 * heads,
        vocabulary=32000,
        groups=(
            je.LayerGroup(
                int(rng.choice([8, 12])),
                je.GroupedQueryAttention(heads * 4, heads, 128, 128),
                je.DenseFeedForward(3072.0 * heads),
            ),
        ),
    )
    peak = je.PeakRates(10 ** rng.uniform(14, 15))
    network = je.Network(10 ** rng.uniform(11, 12), 5e10, int(rng.choice([4, 8])))
    accelerator = je.Accelerator(peak, 10 ** rng.uniform(12, 12.6), 8e10, network, 2.0 / 3600.0)
    return je.Serving(model, accelerator, je.Workload(10 ** rng.uniform(2, 4)))


def _naive(scenario, budget, most, max_batch):
    best = None
    for degrees in scenario.degrees(most):
        for i in range(degrees.tensor.size):
            batch = jnp.arange(1.0, max_batch + 1.0)
            one = jax.tree.map(lambda x, i=i: jnp.full(max_batch, x[i]), degrees)
            layout = je.Layout(one.tensor, one.pipeline, one.expert, one.data, batch, one.draft_tokens)
            speed, cost = np.asarray(scenario.speed(layout)), np.asarray(scenario.cost(layout))
            fits = np.asarray(scenario.memory_margin(layout)) >= 0
            able = fits & (np.asarray(batch) >= float(degrees.pipeline[i])) & (cost <= budget)
            for j in np.flatnonzero(able):
                tensor, stages = float(degrees.tensor[i]), float(degrees.pipeline[i])
                key = (-speed[j], cost[j], tensor * stages, tensor, stages, j + 1.0)
                best = key if best is None or key < best else best
    return best


@pytest.mark.parametrize("seed", range(12))
def test_equals_naive_enumeration(seed):
    scenario = _scenario(seed)
    budget = float(10 ** np.random.default_rng(seed + 1000).uniform(-1.5, 1))
    expected = _naive(scenario, budget, 8, 64)
    if expected is None:
        with pytest.raises(je.InfeasibleError, match="unreachable|fits on no"):
            je.certified_optimum(scenario, budget, max_accelerators=8, max_batch=64)
        return
    found = je.certified_optimum(scenario, budget, max_accelerators=8, max_batch=64)
    layout = found.layout
    assert (float(layout.tensor), float(layout.pipeline), float(layout.batch)) == expected[3:]
    assert found.speed == pytest.approx(-expected[0], rel=1e-12)
    assert found.cost <= budget and found.gap == 0.0
    audit(scenario, found)


def test_inverse_question():
    scenario = _scenario(0)
    best = je.certified_optimum(scenario, 5.0, max_accelerators=8)
    cheap = je.cheapest_at_speed(scenario, best.speed * 0.999, max_accelerators=8)
    assert cheap.cost <= best.cost * (1 + 1e-12) and cheap.speed >= best.speed * 0.999


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_budget(budget):
    with pytest.raises(je.InputError, match="budget"):
        je.certified_optimum(_scenario(0), budget)


def test_unreachable_budget_says_the_cheapest():
    with pytest.raises(je.InfeasibleError, match="the cheapest layout costs"):
        je.certified_optimum(_scenario(0), 1e-6, max_accelerators=8)


def test_no_room_says_how_much_is_missing():
    scenario = je.Serving(
        je.load_model("llama-3.1-405b"),
        je.load_accelerator("h100-sxm", price_per_hour=2.0),
        je.Workload(1000),
    )
    with pytest.raises(je.InfeasibleError, match="needs .* GB per accelerator"):
        je.certified_optimum(scenario, 1.0, max_accelerators=1)
