"""Elasticities against re-solved optima, at kinks on either side, and the identities they obey."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.scenarios import evaluate_layouts
from jaxecon.sensitivity import _elasticities, _solved
from random_questions import question, scenario_of

STEP = 1e-4
KINKED = "a full domain"


def _case(seed):
    if seed == KINKED:
        model, accelerator = je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm")
        return je.Serving(model, accelerator, je.Workload(context=4096.0)), 1.5
    q = question(seed)
    return scenario_of(q), q["budget"]


@pytest.fixture(scope="module")
def found():
    return {seed: je.elasticities(*_case(seed)) for seed in (1, 41, KINKED)}


def _log_speed(seed, name, move):
    scenario, budget = _case(seed)
    if name == "budget":
        return np.log(je.relaxed_optimum(scenario, budget * np.exp(move)).speed)
    moved = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(move)})
    return np.log(je.relaxed_optimum(moved, budget).speed)


@pytest.mark.parametrize("seed", [1, 41])
def test_equal_re_solved_differences(found, seed):
    assert found[seed].status == "success"
    for name, value in found[seed].items():
        if isinstance(value, tuple):
            continue
        expected = (_log_speed(seed, name, STEP) - _log_speed(seed, name, -STEP)) / (2 * STEP)
        assert value == pytest.approx(expected, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("seed", [1, KINKED])
def test_slopes_between_two_budgets(found, seed):
    """What is told where the optimum does not converge equals what is told where it does; numbers with two
    sides are left to differences."""
    question = found[seed]._question
    middles, sure = question._between()
    assert np.sum(sure) > len(sure) / 2
    for value, told, name in zip(middles, sure, question.names, strict=True):
        expected = found[seed][name]
        assert not (told and isinstance(expected, tuple)), name
        if told:
            assert value == pytest.approx(expected, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("name", ["accelerator.network.domain_size", "model.groups.0.mixer.kv_heads"])
def test_sides_at_a_kink(found, name):
    """Eight accelerators fill a domain and hold one key-value head each: both numbers have two sides."""
    left, right = found[KINKED][name]
    for side, sign in ((left, -1.0), (right, 1.0)):
        far = sign * 3e-4
        beside = [_log_speed(KINKED, name, k * far) for k in (1, 2, 3)]
        assert side == pytest.approx(np.dot((-2.5, 4.0, -1.5), beside) / far, rel=1e-3, abs=1e-5)
    assert left - right > 0.1


def _eight_billion():
    """Of the structure of the kinked case, so that nothing is compiled anew."""
    model, accelerator = je.load_model("llama-3.1-8b"), je.load_accelerator("h100-sxm")
    return je.Serving(model, accelerator, je.Workload(context=4096.0))


def test_a_bound_that_is_left_does_not_pull(found):
    """With larger domains the optimum stays on eight key-value heads, just below a full domain."""
    right = je.elasticities(_eight_billion(), 0.8)["accelerator.network.domain_size"][1]
    assert right == pytest.approx(0.0, abs=5e-5)


def test_a_small_kink_has_two_sides(found):
    """Half a percent apart: one side alone would be off by a quarter of a percent."""
    name = "accelerator.network.domain_size"
    scenario = je.with_parameters(_eight_billion(), {name: 1.0})
    here = np.log(je.relaxed_optimum(scenario, 8.0).speed)
    for side, move in zip(je.elasticities(scenario, 8.0)[name], (-STEP, STEP), strict=True):
        moved = je.with_parameters(scenario, {name: np.exp(move)})
        assert side == pytest.approx((np.log(je.relaxed_optimum(moved, 8.0).speed) - here) / move, rel=1e-3)


def test_a_binding_memory_is_no_kink(found):
    scenario, budget = _case(KINKED)
    scenario = je.with_parameters(scenario, {"accelerator.hbm_size": 18.4e9})
    question = _elasticities._Question(scenario, budget, 1024, 65536)
    plain = question._slopes(question.solved)
    assert question.solved.solution.point.multipliers[2] > 1e-3
    bent = {question.names[i] for i in np.flatnonzero(question._bends(plain))}
    assert bent == {"accelerator.network.domain_size", "model.groups.0.mixer.kv_heads"}


@pytest.mark.parametrize("seed", [1, 41])
def test_homogeneity(found, seed):
    """Faster rates, shorter latencies and a dearer machine, by one factor, give that factor of speed."""
    e = found[seed]
    rates = ["peak.bits16", "hbm_bandwidth", "network.scale_up_bandwidth", "network.scale_out_bandwidth"]
    total = sum(e[f"accelerator.{k}"] for k in (*rates, "price"))
    total -= sum(e[k] for k in ("accelerator.kernel_launch_latency", "engine_overhead"))
    total -= e["accelerator.network.library_latency"]
    total += e.get("workload.demand", 0.0)
    assert total == pytest.approx(1.0, abs=1e-9)
    assert e["accelerator.price"] == pytest.approx(-e["budget"], rel=1e-9, abs=1e-12)
    if abs(e["budget"]) > 1e-6:
        assert e.cost["accelerator.price"] == pytest.approx(1.0, rel=1e-9)


def test_twice_the_bytes_on_twice_the_machine(found):
    e = found[1]
    kinds = ("weight", "expert", "embedding", "activation", "kv", "state", "communication", "dispatch")
    bytes_ = [e[f"model.precision.{k}"] for k in kinds]
    machine = ["hbm_size", "hbm_bandwidth", "network.scale_up_bandwidth", "network.scale_out_bandwidth"]
    assert sum(bytes_) + sum(e[f"accelerator.{k}"] for k in machine) == pytest.approx(0.0, abs=1e-5)


def test_cost_at_a_fixed_speed(found):
    scenario, budget = _case(1)
    name = "accelerator.hbm_bandwidth"
    step = 1e-3
    moved = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(step)})
    other = budget * np.exp(found[1].cost[name] * step)
    before, after = je.relaxed_optimum(scenario, budget).speed, je.relaxed_optimum(moved, other).speed
    assert np.log(after / before) == pytest.approx(0.0, abs=1e-5)


def test_without_a_budget(found):
    scenario, _ = _case(1)
    values = found[1].max_speed
    assert set(values) == set(je.parameters(scenario))
    assert values["accelerator.price"] == pytest.approx(0.0, abs=1e-6)
    name = "accelerator.hbm_bandwidth"
    ends = []
    for move in (-STEP, STEP):
        moved = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(move)})
        ends.append(np.log(je.relaxed_optimum(moved, 1e12).speed))
    assert values[name] == pytest.approx((ends[1] - ends[0]) / (2 * STEP), rel=1e-3, abs=1e-5)


def test_the_certified_layout_held(found):
    """The batch is solved for by bisection, so that cost or speed stays."""
    scenario, _ = _case(1)
    held = found[1].certified
    best = held.found
    layout = best.layout
    for name in ("accelerator.hbm_bandwidth", "model.width", "workload.context"):
        ends = {"speed": [], "cost": []}
        for move in (-1e-5, 1e-5):
            moved = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(move)})
            for kind in ends:
                low, high = 0.5, 2.0
                for _ in range(50):
                    factor = np.sqrt(low * high)
                    at = je.Layout(layout.tensor, layout.pipeline, batch=layout.batch * factor)
                    speed, cost = (float(x) for x in evaluate_layouts(moved, at)[:2])
                    too_small = cost > best.cost if kind == "speed" else speed > best.speed
                    low, high = (factor, high) if too_small else (low, factor)
                ends[kind].append(np.log(speed if kind == "speed" else cost))
        for kind, values in ends.items():
            expected = (values[1] - values[0]) / 2e-5
            assert getattr(held, kind)[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), (name, kind)
    assert held.cost["accelerator.price"] == pytest.approx(1.0, abs=1e-9)


def test_a_full_domain_that_shrinks_jumps(found):
    left, right = found[KINKED].certified.speed["accelerator.network.domain_size"]
    assert left == np.inf and right == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_budget(budget):
    with pytest.raises(je.InputError, match="budget"):
        je.elasticities(_case(1)[0], budget)


def test_unreachable_budget():
    with pytest.raises(je.InfeasibleError, match="unreachable"):
        je.elasticities(_case(1)[0], 1e-9)


def test_names():
    scenario, _ = _case(1)
    with pytest.raises(je.InputError, match="hbm_bandwidth"):
        je.with_parameters(scenario, {"accelerator.hbm_bandwith": 1.0})
    stacked = je.with_parameters(scenario, {"accelerator.price": jnp.ones(2)})
    with pytest.raises(je.InputError, match="single numbers"):
        je.parameters(stacked)


def test_one_compilation_per_structure(found):
    scenario, budget = _case(1)
    before = _solved.slopes._cached._cache_size()
    moved = je.with_parameters(scenario, {"accelerator.hbm_bandwidth": 2e12})
    je.elasticities(moved, budget)
    assert _solved.slopes._cached._cache_size() == before


@pytest.mark.parametrize(
    ("sides", "plain", "told"),
    [
        ((1.0, 1.0005), 1.0002, 1.0002),
        ((1.0, 1.0), 2.0, 1.0),
        ((1.0, 2.0), 1.5, (1.0, 2.0)),
        ((np.nan, 1.0), 1.0, 1.0),
        ((np.nan, 1.0), 2.0, (np.nan, 1.0)),
        ((np.nan, np.nan), 2.0, np.nan),
    ],
)
def test_what_two_sides_tell(sides, plain, told):
    """The envelope's derivative only where a side bears it out; no side that is not known is made up."""
    np.testing.assert_array_equal(_elasticities._merged(sides, plain), told)
