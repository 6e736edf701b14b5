"""The relaxed optimum: never below a legal layout, feasible, stationary; its derivatives re-solved."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import binding_shares
from random_questions import question, scenario_of

# Plain, tight on memory, tight on demand, drafted.
SEEDS = (1, 41, 7, 24)


@eqx.filter_jit
def _log_speed(scenario, budget):
    return jnp.log(je.max_speed(scenario, budget))


@eqx.filter_jit
def _slopes(scenario, budget):
    return eqx.filter_grad(lambda pair: jnp.log(je.max_speed(*pair)))((scenario, budget))


@eqx.filter_jit
def _curvature(scenario, log_budget):
    return jax.grad(jax.grad(lambda b: jnp.log(je.max_speed(scenario, jnp.exp(b)))))(log_budget)


def _case(seed):
    q = question(seed)
    return scenario_of(q), q["budget"]


@pytest.mark.parametrize("seed", SEEDS)
def test_relaxed_optimum(seed):
    scenario, budget = _case(seed)
    found = je.relaxed_optimum(scenario, budget)
    assert found.status == "success" and found.residual <= 1e-6
    assert found.cost <= budget * (1 + 1e-9)
    assert float(scenario.memory_margin(found.layout)) >= -1e-6 * float(scenario.accelerator.hbm_size)
    assert found.speed == pytest.approx(float(scenario.speed(found.layout)), rel=1e-9)
    assert found.speed >= je.certified_optimum(scenario, budget).speed * (1 - 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_shadow_price_equals_re_solved_differences(seed):
    scenario, budget = _case(seed)
    found, step = je.relaxed_optimum(scenario, budget), 1e-4
    ends = [float(_log_speed(scenario, jnp.asarray(budget * np.exp(d)))) for d in (-step, step)]
    assert found.shadow_price == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("seed", [1, 41])
def test_derivatives_equal_re_solved_differences(seed):
    scenario, budget = _case(seed)
    budget = jnp.asarray(budget)
    slopes, by_budget = _slopes(scenario, budget)
    names = ("hbm_bandwidth", "hbm_size", "price", "kernel_launch_latency", "arithmetic_efficiency")
    for name in names:

        def where(s, name=name):
            return getattr(s.accelerator, name)

        value, step = where(scenario), 1e-4
        ends = [
            float(_log_speed(eqx.tree_at(where, scenario, value * np.exp(d)), budget)) for d in (-step, step)
        ]
        expected = (ends[1] - ends[0]) / (2 * step)
        assert float(where(slopes) * value) == pytest.approx(expected, rel=1e-3, abs=1e-5), name
    # Price and budget enter as a ratio.
    by_price = float(slopes.accelerator.price * scenario.accelerator.price)
    assert by_price == pytest.approx(-float(by_budget * budget), rel=1e-6)
    best = je.relaxed_optimum(scenario, float(budget))
    shares = binding_shares(scenario, best)
    by_traffic = float(slopes.accelerator.hbm_bandwidth * scenario.accelerator.hbm_bandwidth)
    assert shares["memory traffic"] == pytest.approx(by_traffic, rel=1e-4, abs=1e-6)
    causes = sum(shares[k] for k in ("arithmetic", "memory traffic", "network", "latency"))
    assert causes == pytest.approx(1.0 + shares["price"] - shares["demand"], rel=1e-9)


@pytest.mark.parametrize("seed", [1, 41])
def test_second_derivative(seed):
    scenario, budget = _case(seed)
    at, step = jnp.log(budget), 2e-4  # below it, the noise of two solves shows

    def slope(log_budget):
        return float(_slopes(scenario, jnp.exp(log_budget))[1] * jnp.exp(log_budget))

    expected = (slope(at + step) - slope(at - step)) / (2 * step)
    assert float(_curvature(scenario, at)) == pytest.approx(expected, rel=1e-3)


def test_vmap_over_budgets():
    scenario, budget = _case(1)
    budgets = jnp.asarray([0.8, 1.0, 1.3]) * budget
    speeds = eqx.filter_jit(eqx.filter_vmap(je.max_speed, in_axes=(None, 0)))(scenario, budgets)
    singly = [je.relaxed_optimum(scenario, float(b)).speed for b in budgets]
    np.testing.assert_allclose(speeds, singly, rtol=1e-9)
    assert np.all(np.diff(speeds) > 0)


def test_unreachable_budget():
    scenario, _ = _case(1)
    with pytest.raises(je.InfeasibleError, match="unreachable"):
        je.relaxed_optimum(scenario, 1e-9)
    assert float(_log_speed(scenario, jnp.asarray(1e-9))) == -np.inf
    assert float(eqx.filter_jit(jax.grad(lambda b: je.max_speed(scenario, b)))(jnp.asarray(1e-9))) == 0.0


def test_sparse_model_with_latent_attention():
    """Tensor, data and expert degrees of DeepSeek-V3: never below a legal layout, stationary, and its
    shadow price that of re-solved budgets."""
    scenario = je.Serving(
        je.load_model("deepseek-v3"), je.load_accelerator("h100-sxm", price_per_hour=2.0), je.Workload(4096.0)
    )
    for budget in (0.5, 1.2):
        found = je.relaxed_optimum(scenario, budget, max_accelerators=256)
        legal = je.certified_optimum(scenario, budget, max_accelerators=256)
        assert found.status == "success" and found.cost <= budget * (1 + 1e-9)
        assert legal.speed * (1 - 1e-9) <= found.speed <= 1.05 * legal.speed
        assert float(found.layout.data) > 1 and float(found.layout.expert) > 1
        ends = [
            np.log(je.relaxed_optimum(scenario, budget * np.exp(d), max_accelerators=256).speed)
            for d in (-1e-4, 1e-4)
        ]
        assert found.shadow_price == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_budget(budget):
    with pytest.raises(je.InputError, match="budget"):
        je.relaxed_optimum(_case(1)[0], budget)


def test_both_sides_of_a_kink():
    """Fewer accelerators in a domain than the layout uses cost speed; more buy none."""
    scenario, budget = _case(24)

    def where(s):
        return s.accelerator.network.domain_size

    left, right = je.one_sided(scenario, budget, where)
    size = where(scenario)

    def at(change):
        moved = eqx.tree_at(where, scenario, size * np.exp(change))
        return float(_log_speed(moved, jnp.asarray(budget)))

    # Differences beside the kink, beyond the reach of the smoothing.
    assert left == pytest.approx((at(-1e-4) - at(-3e-4)) / 2e-4, rel=1e-2)
    assert right == pytest.approx((at(3e-4) - at(1e-4)) / 2e-4, rel=1e-2, abs=1e-3)
    assert left - right > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_both_certificates_agree(seed):
    scenario, budget = _case(seed)
    answers = [je.certified_optimum(scenario, budget, start=s) for s in ("enumerate", "relaxed")]
    assert answers[0].speed == answers[1].speed and answers[0].cost == answers[1].cost
    leaves = (jax.tree.leaves(a.layout) for a in answers)
    assert all(map(np.array_equal, *leaves))


def test_frontiers_side_by_side():
    scenario, _ = _case(1)
    both = je.frontier(scenario, points=8, max_accelerators=16)
    assert len(both.relaxed.speed) == 8 and np.all(both.relaxed.residual <= 1e-6)
    for speed, cost in zip(both.relaxed.speed, both.relaxed.cost, strict=True):
        legal = both.certified.speed[both.certified.cost <= cost * (1 + 1e-9)]
        assert speed >= legal.max(initial=0.0) * (1 - 1e-9)


def test_one_compilation_per_structure():
    scenario, budget = _case(1)
    solve = je.relaxed_optimum
    solve(scenario, budget)
    before = _compiled()
    other = eqx.tree_at(lambda s: s.accelerator.hbm_bandwidth, scenario, replace_fn=lambda x: 2.0 * x)
    solve(other, budget * 1.1)
    assert _compiled() == before


def _compiled():
    from jaxecon.optimum._relaxed_optimum import _solve

    return _solve._cached._cache_size()
