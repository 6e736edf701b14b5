"""The relaxed problem: its unknowns, and the smallest batch that a budget allows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum._interior import Jet, extended_log, reduce, solve
from jaxecon.optimum._relaxation import box_of, degrees_of, evaluate, least_batch, log_tokens, spread
from jaxecon.optimum._relaxed_optimum import limits_of


def _case(model: str) -> tuple[je.Serving, list]:
    machine = je.load_accelerator("h100-sxm", price_per_hour=2.0)
    scenario = je.Serving(je.load_model(model), machine, je.Workload(4096))
    return scenario, list(scenario.families(jnp.asarray(256.0)))


@eqx.filter_jit
def _least(scenario, limits, z, box):
    return least_batch(scenario, limits, z, box, 20, stated_nodes=False)


@eqx.filter_jit
def _price_slack(scenario, limits, z, box):
    return evaluate(scenario, limits, z, box, stated_nodes=False)[1][..., 0]


def _bisected(scenario, limits, z, box):
    """ln of the smallest affordable batch by plain bisection."""
    low, high = np.array(z[:, 1]), np.full(len(z), float(jnp.log(limits.max_batch)))

    def affordable(log_batch):
        point = jnp.concatenate([z, jnp.asarray(log_batch)[:, None]], axis=1)
        return np.asarray(_price_slack(scenario, limits, point, box)) >= 0.0

    high = np.where(affordable(low), low, high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        good = affordable(middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    return high


@pytest.mark.parametrize("budget", [0.8, 2.0, 20.0, 1e4])
def test_least_batch_equals_bisection(budget):
    scenario, families = _case("llama-3.1-70b")
    limits = limits_of(budget, 256, 65536)
    one = jnp.ones(())
    box = box_of(families[0], jnp.asarray(0), scenario, limits, one, one > 2.0)
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.uniform(0.0, np.log([64.0, 8.0, 1.0]), (128, 3)))
    found = _least(scenario, limits, z, box)
    reachable = np.asarray(found.slacks[:, 0]) >= 0.0
    expected = _bisected(scenario, limits, z, box)
    assert reachable.any()
    assert np.all(np.abs(np.asarray(found.z[:, 3]) - expected)[reachable] < 1e-10)
    # Where no batch is affordable, the answer is the largest, with what it lacks.
    assert np.allclose(found.z[~reachable, 3], np.log(65536.0))


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_tokens_and_batch_are_one_another_s_inverse(model):
    scenario, families = _case(model)
    limits = limits_of(1.0, 256, 65536)
    one = jnp.ones(())
    for i, family in enumerate(families):
        box = box_of(family, jnp.asarray(i), scenario, limits, one, one > 2.0)
        w = jnp.asarray([0.3, 0.6, 0.5, 2.5])
        z = degrees_of(w, box)
        assert np.isclose(float(log_tokens(z, z[3], box)), 2.5, rtol=1e-14)
        assert np.allclose(box.y(z[:3])[box.high > box.low], w[:3][box.high > box.low])


def test_spread_boxes_broadcast():
    scenario, families = _case("llama-3.1-8b")
    limits = limits_of(1.0, 256, 65536)
    nodes = jnp.asarray([1.0, 2.0, 3.0])
    box = box_of(families[0], jnp.asarray(0), scenario, limits, nodes, nodes > 9.0)
    y = jnp.asarray(np.random.default_rng(1).uniform(size=(3, 5, 3)))
    each = jnp.stack([jax.tree.map(lambda x, i=i: x[i], box).z(y[i]) for i in range(3)])
    assert np.array_equal(spread(box).z(y), each)


def test_the_barrier_is_smooth_where_its_parabola_begins():
    weight, edge = jnp.asarray(0.05), 0.05 * 1e-2
    at = edge * jnp.asarray([-3.0, 1.0 - 1e-7, 1.0 + 1e-7, 50.0])
    value, push, bow = extended_log(at, weight)
    assert np.allclose(value[2:], -0.05 * np.log(at[2:]))
    assert abs(float(value[1] - value[2])) < 1e-7
    assert np.isclose(float(push[1]), float(push[2]), rtol=1e-5)
    slopes = jax.vmap(jax.grad(lambda x: extended_log(x, weight)[0]))(at)
    bends = jax.vmap(jax.grad(lambda x: extended_log(x, weight)[1]))(at)
    assert np.allclose(slopes, -push) and np.allclose(bends, -bow)


def test_small_systems_are_solved_all_at_once():
    random = np.random.default_rng(5)
    half, right = random.normal(size=(6, 3, 3)), random.normal(size=(6, 3))
    matrix = half @ np.swapaxes(half, -1, -2) * [[1e-6], [1.0], [1e6]] * [1e-6, 1.0, 1e6]
    expected = np.linalg.solve(matrix, right[..., None])[..., 0]
    np.testing.assert_allclose(solve(jnp.asarray(matrix), jnp.asarray(right)), expected, rtol=1e-6)
    assert solve(jnp.asarray(matrix[0]), jnp.asarray(right[0])).shape == (3,)


def test_starts_do_not_mix():
    random = np.random.default_rng(6)
    shapes = ((4, 7), (4, 7, 4), (4, 7, 4, 4))
    jet = Jet(*(jnp.asarray(random.uniform(0.1, 1.0, size=shape)) for shape in shapes))
    y, weight = jnp.asarray(random.uniform(0.1, 0.9, size=(4, 3))), jnp.asarray(1e-2)
    together = reduce(jet, y, weight)
    for i in range(4):
        alone = reduce(jax.tree.map(lambda x, i=i: x[i], jet), y[i], weight)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-12)
