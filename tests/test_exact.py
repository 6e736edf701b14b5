"""The exact search and the frontier equal a naive NumPy enumeration of every layout."""

import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import audit
from jaxecon.scenarios import evaluate_layouts
from numpy_reference import table
from numpy_sparse import table as sparse_table
from random_questions import question, scenario_of, sparse_question, sparse_scenario_of

SMALL = {"max_accelerators": 12, "max_batch": 48}
NOTHING = "fits on no|is below what any"
"""What is said where no layout is legal: memory is short, or each serves more than the demand."""


def _first(rows, order):
    return rows[np.lexsort(rows[:, order[::-1]].T * 1.0)[0]]


@pytest.mark.parametrize("seed", range(200))
def test_equals_naive_enumeration(seed):
    q = question(seed)
    scenario, rows = scenario_of(q), table(q, 12, 48)
    able = rows[rows[:, 1] <= q["budget"]]
    if not len(able):
        with pytest.raises(je.InfeasibleError, match="unreachable" if len(rows) else NOTHING):
            je.certified_optimum(scenario, q["budget"], **SMALL)
        return
    able[:, 0] *= -1
    expected = _first(able, [0, 1, 2, 3, 4, 5, 6])
    found = je.certified_optimum(scenario, q["budget"], **SMALL)
    layout = found.layout
    degrees = [layout.accelerators, layout.tensor, layout.pipeline, layout.draft_tokens, layout.batch]
    assert [float(x) for x in degrees] == expected[2:].tolist()
    assert found.speed == pytest.approx(-expected[0], rel=1e-12)
    assert found.cost == pytest.approx(expected[1], rel=1e-12)
    assert found.space_size == len(rows) and found.gap == 0.0
    assert found.examined <= found.space_size and found.cost <= q["budget"]
    audit(scenario, found)


@pytest.mark.parametrize("seed", range(40))
def test_sparse_layouts_equal_the_plain_account(seed):
    q = sparse_question(seed)
    rows = sparse_table(q, 12, 48)
    spread = rows[rows[:, 6] > 1]  # several data ranks
    rows = spread if len(spread) else rows
    rows = rows[np.random.default_rng(seed).integers(0, len(rows), 64)]
    names = ("tensor", "pipeline", "expert", "data", "batch")
    layouts = je.Layout(**dict(zip(names, rows[:, 3:].T, strict=True)))
    speed, cost, _, margin = evaluate_layouts(sparse_scenario_of(q), layouts)
    np.testing.assert_allclose(speed, rows[:, 0], rtol=1e-12)
    np.testing.assert_allclose(cost, rows[:, 1], rtol=1e-12)
    assert np.all(margin >= 0)


@pytest.mark.parametrize("seed", range(30))
def test_sparse_models_equal_naive_enumeration(seed):
    q = sparse_question(seed)
    scenario, rows = sparse_scenario_of(q), sparse_table(q, 12, 48)
    able = rows[rows[:, 1] <= q["budget"]]
    if not len(able):
        with pytest.raises(je.InfeasibleError, match="unreachable" if len(rows) else NOTHING):
            je.certified_optimum(scenario, q["budget"], **SMALL)
        return
    found = je.certified_optimum(scenario, q["budget"], **SMALL)
    layout = found.layout
    assert found.space_size == len(rows)
    assert found.speed == pytest.approx(able[:, 0].max(), rel=1e-12)
    names = ("accelerators", "tensor", "pipeline", "expert", "data", "batch")
    same = np.all(able[:, 2:] == [float(getattr(layout, k)) for k in names], axis=1)
    assert able[same, 0] == pytest.approx([found.speed], rel=1e-12)
    assert able[same, 1] == pytest.approx([found.cost], rel=1e-12)
    audit(scenario, found)


@pytest.mark.parametrize("seed", range(40))
def test_inverse_equals_naive_enumeration(seed):
    q = question(seed)
    scenario, rows = scenario_of(q), table(q, 12, 48)
    if not len(rows):
        return
    target = float(np.quantile(rows[:, 0], 0.7))
    able = rows[rows[:, 0] >= target]
    able[:, 0] *= -1
    expected = _first(able, [1, 0, 2, 3, 4, 5, 6])
    found = je.cheapest_at_speed(scenario, target * (1 - 1e-12), **SMALL)
    assert found.cost == pytest.approx(expected[1], rel=1e-12)
    assert float(found.layout.batch) == expected[6]


@pytest.mark.parametrize("seed", range(40))
def test_frontier_equals_naive_enumeration(seed):
    q = question(seed)
    rows = table(q, 12, 48)
    if not len(rows):
        return
    rows = rows[np.lexsort((rows[:, 1], -rows[:, 0]))][:, :2]
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], rows[:-1, 1]]))
    expected = rows[rows[:, 1] < lowest]
    found = je.certified_frontier(scenario_of(q), **SMALL)
    np.testing.assert_allclose(np.stack([found.speed, found.cost], 1), expected, rtol=1e-12)
    assert np.all(np.diff(found.speed) < 0) and np.all(np.diff(found.cost) < 0)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_budget(budget):
    with pytest.raises(je.InputError, match="budget"):
        je.certified_optimum(scenario_of(question(0)), budget)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_speed(speed):
    with pytest.raises(je.InputError, match="speed"):
        je.cheapest_at_speed(scenario_of(question(0)), speed)


def test_unreachable_questions_say_the_nearest():
    scenario = scenario_of(question(1))
    with pytest.raises(je.InfeasibleError, match="the cheapest layout costs"):
        je.certified_optimum(scenario, 1e-9, **SMALL)
    with pytest.raises(je.InfeasibleError, match="the fastest layout gives"):
        je.cheapest_at_speed(scenario, 1e9, **SMALL)


def test_no_room_says_how_much_is_missing():
    model, accelerator = je.load_model("llama-3.1-405b"), je.load_accelerator("h100-sxm")
    scenario = je.Serving(model, accelerator, je.Workload(1000))
    with pytest.raises(je.InfeasibleError, match="needs .* GB per accelerator.*smallest that would fit"):
        je.certified_optimum(scenario, 1.0, max_accelerators=1)


@pytest.mark.parametrize(
    "demand, max_batch, named",
    [
        (None, 2, "max_batch 2 is too small.*at least 3"),
        (1.0, 65536, "demand of 1 tokens/s is below.*slowest"),
    ],
)
def test_other_limits_than_memory_are_named(demand, max_batch, named):
    """On six accelerators 405 billion parameters fit only in three or more stages, each with a sequence."""
    model, accelerator = je.load_model("llama-3.1-405b"), je.load_accelerator("b200-sxm")
    scenario = je.Serving(model, accelerator, je.Workload(1024.0, demand=demand))
    with pytest.raises(je.InfeasibleError, match=named):
        je.certified_optimum(scenario, 1e4, max_accelerators=6, max_batch=max_batch)
