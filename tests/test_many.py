"""The batched exact search gives what the search of one scenario gives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_questions import question, scenario_of

import jaxecon as je
from jaxecon.optimum._many import STATUSES, certified_many

SMALL = {"max_accelerators": 12, "max_batch": 48}
FIELDS = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")


def _axes(scenario):
    """The numbers that vary."""
    return scenario.accelerator.hbm_bandwidth, scenario.workload.context


def stacked(scenarios):
    """Scenarios of one structure as one with leaves along an axis."""
    return jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *scenarios)


def agrees(found, i, scenario, budget, **limits):
    """Whether entry i is the certified optimum of one scenario, ties included."""
    try:
        one = je.certified_optimum(scenario, budget, **limits)
    except je.InfeasibleError as error:
        assert np.isnan(found.speed[i]) and np.isnan(found.layout.batch[i])
        reached = "unreachable" in str(error)
        assert STATUSES[found.status[i]] == ("budget unreachable" if reached else "does not fit")
        return
    assert STATUSES[found.status[i]] == "optimal"
    assert one.layout.partition == found.partition[i]
    assert [float(getattr(one.layout, f)) for f in FIELDS] == [getattr(found.layout, f)[i] for f in FIELDS]
    assert found.speed[i] == pytest.approx(one.speed, rel=1e-14)
    assert found.cost[i] == pytest.approx(one.cost, rel=1e-14)


def test_random_questions():
    groups = {}
    for seed in range(20):
        q = question(seed)
        groups.setdefault((q["draft"] is None, q["demand"] is None), []).append(q)
    assert len(groups) == 4
    for questions in groups.values():
        scenarios = [scenario_of(q) for q in questions]
        budgets = np.array([q["budget"] for q in questions])
        degrees = [s.degrees(SMALL["max_accelerators"]) for s in scenarios]
        table = np.arange(len(scenarios))
        found = certified_many(stacked(scenarios), budgets, degrees=degrees, table=table, max_batch=48)
        for i, scenario in enumerate(scenarios):
            agrees(found, i, scenario, budgets[i], **SMALL)


@pytest.mark.parametrize("model", ["deepseek-v3", "gemma-3-27b-it"])
def test_catalogue(model):
    accelerator = je.load_accelerator("h100-sxm")
    scenario = je.Serving(je.load_model(model), accelerator, je.Workload(4096))
    rng = np.random.default_rng(1)
    count = 12
    rate = accelerator.hbm_bandwidth * np.exp(rng.uniform(-1, 1, count))
    context = np.round(10 ** rng.uniform(1, 5.5, count))
    budgets = 10 ** rng.uniform(-1, 2, count)
    found = certified_many(eqx.tree_at(_axes, scenario, (np.asarray(rate), context)), budgets)
    for i in range(count):
        one = eqx.tree_at(_axes, scenario, (jnp.asarray(rate[i]), jnp.asarray(context[i])))
        agrees(found, i, one, budgets[i])


def test_two_partitions():
    paper = je.Erdil2025(
        je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm"), je.Workload(4096, 1.0)
    )
    budgets = np.geomspace(0.1, 100.0, 8)
    found = certified_many(paper, budgets, max_accelerators=24)
    for i, budget in enumerate(budgets):
        agrees(found, i, paper, budget, max_accelerators=24)
    assert len(set(found.partition)) > 1


def test_exact_ties_go_to_the_smaller_layout():
    """Without memory, network and launches, speed depends on tensor x batch only by arithmetic."""
    q = question(1)
    q["accelerator"] |= {"bandwidth": 2.0**100, "up": 2.0**100, "out": 2.0**100, "launch": 0.0}
    scenario = scenario_of(q | {"demand": None, "draft": None})
    cheapest = je.cheapest_at_speed(scenario, 1e-9, **SMALL).cost
    budgets = cheapest * np.array([1.0, 1.0 + 1e-9, 1.1, 2.0, 10.0])
    found = certified_many(scenario, budgets, **SMALL)
    for i, budget in enumerate(budgets):
        agrees(found, i, scenario, budget, **SMALL)


def test_shards_agree_with_one_device():
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("pairs",))
    scenario = scenario_of(question(1))
    budgets = np.geomspace(0.01, 10, 7)
    plain, sharded = (certified_many(scenario, budgets, **SMALL, mesh=m) for m in (None, mesh))
    assert np.isfinite(plain.speed).any()
    jax.tree.map(np.testing.assert_array_equal, plain, sharded)


def test_one_compilation_for_all_values():
    from jaxecon.optimum import _many

    scenario = scenario_of(question(1))
    certified_many(scenario, np.full(3, 1.0), **SMALL)
    before = _many._advance._cached._cache_size()
    certified_many(scenario, np.array([0.1, 2.0, 30.0]), **SMALL)
    assert _many._advance._cached._cache_size() == before


@pytest.mark.parametrize("budget", [0.0, -1.0, np.nan, [1.0, np.inf]])
def test_bad_budget(budget):
    with pytest.raises(je.InputError, match="budget"):
        certified_many(scenario_of(question(0)), budget)


def test_unequal_lengths():
    scenario = eqx.tree_at(lambda s: s.workload.context, scenario_of(question(0)), np.ones(3))
    with pytest.raises(je.InputError, match="unequal"):
        certified_many(scenario, np.ones(2))
