"""The continuous frontier in the paper's space: as fast as the relaxed optimum, within its limits."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import _side_by_side as side_by_side
from jaxecon.optimum._relaxation import Limits

BUDGETS = np.geomspace(0.5, 3.0, 8)


@pytest.fixture(scope="module")
def scenario():
    return je.Erdil2025(
        je.load_model("llama-3.1-70b"),
        je.load_accelerator("h100-sxm", price_per_hour=2.0),
        je.Workload(4096.0),
    )


def test_speeds_are_exact_and_within_the_limits(scenario):
    found = je.relaxed_frontier(scenario, BUDGETS)
    assert len(found.speed) == len(BUDGETS) and np.all(np.diff(found.speed) <= 0.0)
    for i, budget in enumerate(BUDGETS[::-1]):
        layout = je.Layout(
            tensor=found.layout.tensor[i],
            pipeline=found.layout.pipeline[i],
            batch=found.layout.batch[i],
            partition=found.partition[i],
        )
        assert found.speed[i] == pytest.approx(float(scenario.speed(layout)), rel=1e-12)
        assert found.cost[i] == pytest.approx(float(scenario.cost(layout)), rel=1e-12)
        assert found.cost[i] <= budget * (1.0 + 1e-12)
        assert float(scenario.memory_margin(layout)) >= -1e-12 * float(scenario.accelerator.hbm_size)
        assert float(layout.batch) >= float(layout.pipeline)


def test_no_slower_than_the_relaxed_optimum(scenario):
    legal = je.certified_frontier(scenario)
    cheapest = float(legal.cost.min()) * (1.0 + 1e-12)
    budgets = np.asarray([0.5, 0.7, 1.0, 1.4, 1.9, 2.4, 3.0, cheapest])
    found = je.relaxed_frontier(scenario, budgets)
    for speed, budget in zip(found.speed, np.sort(budgets)[::-1], strict=True):
        assert speed >= legal.speed[legal.cost <= budget].max() * (1.0 - 1e-12)
    for budget in (0.7, 1.9):
        relaxed = je.relaxed_optimum(scenario, budget).speed
        assert found.speed[found.cost <= budget][0] == pytest.approx(relaxed, rel=1e-4)


def test_unreachable_budgets_are_left_out(scenario):
    budgets = np.concatenate([np.full(4, 1e-6), BUDGETS[:4]])
    found = je.relaxed_frontier(scenario, budgets)
    assert len(found.speed) == 4 and np.all(found.cost > 1e-2)


def test_one_compilation_per_structure(scenario):
    je.relaxed_frontier(scenario, BUDGETS)
    searches = _programs(scenario)
    before = [x._cache_size() for x in searches]
    other = eqx.tree_at(lambda s: s.accelerator.hbm_bandwidth, scenario, replace_fn=lambda x: 2.0 * x)
    je.relaxed_frontier(other, 1.1 * BUDGETS, max_accelerators=512)
    je.relaxed_frontier(other, BUDGETS[:7])
    assert _programs(other) == searches
    assert [x._cache_size() for x in searches] == before


def _programs(scenario):
    limits = Limits(*map(np.asarray, (1.0, 1024.0, 65536.0)))
    search = side_by_side.searches(jax.tree.structure((scenario, limits)))
    return search.table, search.rows


def _on_a_grid(scenario, budgets):
    """The best speed within each budget on the paper's kind of grid, by the paper's own search."""
    n, batch = np.meshgrid(np.geomspace(1.0, 1024.0, 200), np.geomspace(1.0, 65536.0, 200), indexing="ij")
    time = np.asarray(scenario.best_step_time(n, batch))
    cost = 1e6 * n * float(scenario.accelerator.price) * time / batch
    return np.asarray([np.max(1.0 / time[cost <= b], initial=0.0) for b in budgets])


def test_no_slower_than_a_grid_down_to_the_cheapest(scenario):
    # Near the least cost arithmetic binds, and cost hardly depends on the batch.
    cheap = eqx.tree_at(lambda s: s.accelerator.hbm_bandwidth, scenario, replace_fn=lambda x: 3.0 * x)
    budgets = np.geomspace(0.3, 8.0, 24)
    grid = _on_a_grid(cheap, budgets)
    budgets, grid = budgets[grid > 0.0][::-1], grid[grid > 0.0][::-1]
    found = je.relaxed_frontier(cheap, budgets)
    assert len(found.speed) == len(budgets) >= 16
    assert np.all(found.speed >= 0.9999 * grid)


def test_drafted_tokens_follow(scenario):
    draft = je.load_model("llama-3.1-8b")
    drafted = je.Erdil2025(
        scenario.model, scenario.accelerator, scenario.workload, draft=draft, acceptance=0.8, gamma_max=6
    )
    budgets = np.geomspace(0.4, 4.0, 8)
    found = je.relaxed_frontier(drafted, budgets)
    assert len(found.speed) == 8 and np.all(found.cost <= budgets[::-1] * (1.0 + 1e-12))
    assert set(found.layout.draft_tokens) <= set(range(7))
    assert np.any(found.layout.draft_tokens > 2.0)
    assert np.all(found.speed >= 0.9999 * _on_a_grid(drafted, budgets[::-1]))
    legal = je.certified_frontier(drafted)
    assert np.all(
        [s >= legal.speed[legal.cost <= b].max() for s, b in zip(found.speed, budgets[::-1], strict=True)]
    )
    for i, kind in enumerate(found.partition):
        layout = jax.tree.map(lambda a, i=i: jax.numpy.asarray(a[i]), found.layout)
        exact = drafted.speed(je.Layout(**{**vars(layout), "partition": kind}))
        assert found.speed[i] == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("name", ["Empty context"])
def test_the_papers_frontier(reference, name):
    specs = json.loads((reference / "erdil2025_specs.json").read_text())
    settings = json.loads((reference / "erdil2025_frontiers.json").read_text())
    (s,) = (s for s in settings if s["name"] == name)
    scenario = je.Erdil2025.from_fields(
        specs["models"][s["model"]], specs["accelerators"][s["accelerator"]], context=s["context"]
    )
    columns = ("speed_tokens_per_s", "cost_usd_per_million", "n_accelerators")
    speed, cost, n = (np.asarray(s[k]) for k in columns)
    speed, cost = speed[n >= 1.0], cost[n >= 1.0]
    found = je.relaxed_frontier(scenario, cost * (1.0 + 1e-12), max_batch=2**20)
    assert len(found.speed) == len(cost)
    order = np.argsort(-cost, kind="stable")
    assert np.all(found.speed >= 0.9995 * speed[order])
