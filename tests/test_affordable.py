"""The least affordable batch: where the exact cost meets the budget, with the best draft length nearby."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum._affordable import Place, best, looked
from jaxecon.optimum._envelope_types import layout_of

BUDGETS = np.asarray([0.6, 1.0, 2.0, 4.0])


def _scenario(drafted, revision="2024-09"):
    parts = (
        je.load_model("llama-3.1-70b"),
        je.load_accelerator("h100-sxm", price_per_hour=2.0),
        je.Workload(4096.0),
    )
    more = {"draft": je.load_model("llama-3.1-8b"), "acceptance": 0.8, "gamma_max": 6} if drafted else {}
    return je.Erdil2025(*parts, revision=revision, **more)


@eqx.filter_jit
def _once(scenario, at, inverse, drafts, other, rate):
    look = looked(scenario, at, inverse, drafts, other)
    return best(scenario, look, rate, jnp.full(rate.shape, 2.0**-20), jnp.ones(rate.shape))


def _searched(scenario, tensor, looks, guess=64.0):
    """(batch, drafted tokens) after so many looks from a guess."""
    shape = (len(BUDGETS),)
    tensor, two_d = jnp.full(shape, tensor), jnp.zeros(shape, bool)
    rate = 1e6 * scenario.accelerator.price * tensor / jnp.asarray(BUDGETS)
    inverse, drafts, structure = jnp.full(shape, 1.0 / guess), None, None
    if scenario.draft is not None:
        drafts = jnp.full(shape, 3.0)
        layout = layout_of(tensor, jnp.ones(shape), 1.0 / inverse, drafts)
        structure = eqx.filter_jit(lambda s, x: s.draft_structure(x))(scenario, layout)
    for i in range(looks):
        other = None if drafts is None else drafts + (-1.0 if i % 2 else 1.0)
        at = Place(tensor, jnp.ones(shape), two_d, structure)
        inverse, drafts, _ = _once(scenario, at, inverse, drafts, other, rate)
    return 1.0 / inverse, drafts


def _costs(scenario, tensor, batch, drafts=0.0):
    shape = jnp.broadcast_shapes(jnp.shape(batch), jnp.shape(drafts))
    layout = layout_of(
        jnp.full(shape, tensor),
        jnp.ones(shape),
        jnp.broadcast_to(batch, shape),
        jnp.broadcast_to(drafts, shape),
    )
    return _cost(scenario, layout)


@eqx.filter_jit
def _cost(scenario, layout):
    return scenario.cost_at_speed(layout, scenario.speed_among(layout, jnp.zeros(layout.batch.shape, bool)))


@pytest.mark.parametrize("tensor", [4.0, 7.3, 8.0])
@pytest.mark.parametrize("guess", [8.0, 64.0, 4096.0])
def test_cost_meets_the_budget_from_any_guess(tensor, guess):
    scenario = _scenario(False)
    batch, _ = _searched(scenario, tensor, 3, guess)
    cost = _costs(scenario, tensor, batch)
    least = np.asarray(_costs(scenario, tensor, jnp.full(1, 2.0**20)))
    met = BUDGETS > least
    assert met.any()
    np.testing.assert_allclose(np.asarray(cost)[met], BUDGETS[met], rtol=1e-9)


@pytest.mark.parametrize("revision", ["2024-09", "2025-05"])
def test_no_draft_length_nearby_affords_a_smaller_batch(revision):
    scenario = _scenario(True, revision)
    batch, drafts = _searched(scenario, 8.0, 6)
    np.testing.assert_array_equal(drafts, np.round(drafts))
    cost = np.asarray(_costs(scenario, 8.0, batch, drafts))
    np.testing.assert_allclose(cost, BUDGETS, rtol=1e-6)
    for step in (-1.0, 1.0):
        other = jnp.clip(drafts + step, float(scenario.draft_lengths[0]), 6.0)
        assert np.all(np.asarray(_costs(scenario, 8.0, batch, other)) >= BUDGETS * (1.0 - 1e-6))


def test_bounds_hold_where_the_budget_is_out_of_reach():
    scenario = _scenario(False)
    shape = (1,)
    at = Place(jnp.full(shape, 8.0), jnp.ones(shape), jnp.zeros(shape, bool), None)
    for budget, expected in ((1e-9, 2.0**-20), (1e9, 1.0)):
        rate = 8e6 * scenario.accelerator.price / jnp.full(shape, budget)
        root, _, cost = _once(scenario, at, jnp.full(shape, 1e-2), None, None, rate)
        assert float(root[0]) == expected
        assert (float(cost[0]) > 1.0) == (budget < 1.0)
