"""Neighbours of real degrees: what counts as near, when a look is widened, and what is never missed."""

import jax
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import Space, rounded
from jaxecon.optimum._rounding import neighbours
from jaxecon.optimum._space import Block

SIZES = {"max_accelerators": 32, "max_batch": 512}


@pytest.fixture(scope="module")
def scenario():
    machine = je.load_accelerator("h100-sxm", price_per_hour=2.0)
    return je.Serving(je.load_model("mixtral-8x7b-v0.1"), machine, je.Workload(2048.0))


@pytest.fixture
def space(scenario):
    return Space(scenario, *SIZES.values())


def _block(degrees):
    tensor, data, draft = np.asarray(degrees, float).T
    ones = np.ones(len(degrees))
    layouts = je.Layout(tensor, ones, ones, data, ones, draft)
    return Block(layouts, ones, ones, 0)


def test_near_is_a_factor_of_tensor_of_data_and_of_both_together():
    block = _block([(4, 4, 0), (8, 4, 0), (8, 8, 0), (8, 2, 0), (2, 2, 0), (16, 1, 0), (4, 4, 2), (4, 4, 3)])
    near = neighbours(block, je.Layout(tensor=4.0, data=4.0))
    assert near.tolist() == [True, True, False, True, False, False, True, False]
    wider = neighbours(block, je.Layout(tensor=4.0, data=4.0), 4.0)
    assert wider.tolist() == [True] * 8


def test_wider_looks_reach_any_number_of_data_ranks_beside_near_tensor_degrees():
    block = _block([(4, 64, 0), (8, 64, 0), (4, 2, 0), (2, 64, 0), (12, 64, 0)])
    layout = je.Layout(tensor=5.0, data=2.0)
    assert neighbours(block, layout).tolist() == [False, False, True, False, False]
    assert neighbours(block, layout, 4.0).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("budget", [0.15, 0.3, 1.0, 3.0])
def test_the_certified_layout_is_its_own_best_neighbour(scenario, space, budget):
    certified = je.certified_optimum(scenario, budget, **SIZES)
    layout, speed, cost = rounded(space, certified.layout, budget)
    assert (speed, cost) == (certified.speed, certified.cost)
    assert all(map(np.array_equal, *(jax.tree.leaves(x) for x in (layout, certified.layout))))
    assert space.examined_degrees < 0.6 * sum(map(len, space.blocks))
    assert space.examined < certified.examined


@pytest.mark.parametrize("tensor, data", [(1.0, 1.0), (3.3, 1.0), (1.0, 24.0), (30.0, 2.0)])
def test_from_anywhere_a_legal_affordable_layout_is_found(scenario, space, tensor, data):
    certified = je.certified_optimum(scenario, 0.15, **SIZES)
    batch = np.asarray(8.0 * data)
    layout, speed, cost = rounded(space, je.Layout(tensor, data=data, batch=batch), 0.15)
    assert cost <= 0.15 and speed <= certified.speed
    (block,) = space.blocks
    fields = ("tensor", "data", "expert", "pipeline")
    same = np.all([getattr(block.layouts, k) == float(getattr(layout, k)) for k in fields], axis=0)
    (index,) = np.flatnonzero(same)
    assert block.low[index] <= float(layout.batch) <= block.high[index]
    found = space.evaluate(block, np.array([index]), np.array([float(layout.batch)]))
    assert [float(x[0]) for x in found] == [speed, cost, 1.0]


def test_none_only_where_no_layout_meets_the_budget(scenario, space):
    cheapest = je.cheapest_at_speed(scenario, 1e-9, **SIZES)
    far = je.Layout(tensor=1.0, data=64.0, expert=64.0, batch=64.0)
    assert rounded(space, far, cheapest.cost)[2] == cheapest.cost
    assert rounded(space, far, cheapest.cost * (1 - 1e-9)) is None


def test_a_wider_look_is_taken_only_where_the_first_falls_short(scenario, space, monkeypatch):
    far = je.Layout(tensor=2.0, data=1.0, batch=1.5)
    counts, speeds = [], []
    for close in (1.0, 0.01):
        monkeypatch.setattr("jaxecon.optimum._rounding._CLOSE", close)
        fresh = Space(scenario, *SIZES.values())
        speeds.append(rounded(fresh, far, 0.3)[1])
        counts.append(fresh.examined_degrees)
    assert speeds[0] < 0.9 * speeds[1] and counts[0] < counts[1]
