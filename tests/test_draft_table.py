"""The best draft length at entries of the table, against every length by the exact arithmetic."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum._draft_table import _tried, best_drafts
from jaxecon.optimum._envelope_types import layout_of, spaces


@pytest.mark.parametrize(("revision", "longest"), [("2024-09", 6), ("2025-05", 6), ("2025-05", 1)])
def test_lengths_and_speeds_are_the_best(revision, longest):
    scenario = je.Erdil2025(
        je.load_model("llama-3.1-70b"),
        je.load_accelerator("h100-sxm", price_per_hour=2.0),
        je.Workload(4096.0),
        draft=je.load_model("llama-3.1-8b"),
        acceptance=0.8,
        gamma_max=longest,
        revision=revision,
    )
    s = spaces(scenario.families(jnp.asarray(64.0)))
    tensor = jnp.geomspace(1.0, 64.0, 9) / s.stages[:, None]
    tensor = jnp.maximum(tensor, 1.0)
    batch = s.stages[:, None] * jnp.geomspace(1.0, 4096.0, 7)[:, None, None]
    layout = layout_of(tensor, s.stages[:, None], batch)
    (time, before), drafts = eqx.filter_jit(best_drafts)(scenario, s, layout)
    every = jnp.asarray(scenario.draft_lengths, jnp.float64)[:, None, None, None]
    two_d = jnp.broadcast_to(s.partition[:, None] > 0.0, tensor.shape)
    layout = layout_of(tensor, s.stages[:, None], batch, every + 0.0 * batch)
    exact = np.asarray(eqx.filter_jit(lambda a, x: a.speed_among(x, two_d))(scenario, layout))
    highest = exact.max(axis=0)
    # Where all-reduces change with the draft length, its parts are not straight.
    loss = 1.0 - 1.0 / (np.asarray(time) * highest)
    assert np.median(np.abs(loss)) < 1e-9 and np.abs(loss).max() < 0.08
    place = np.asarray(drafts).astype(int) - scenario.draft_lengths[0]
    told = np.take_along_axis(exact, place[None], 0)[0]
    assert np.mean(told >= highest * (1.0 - 1e-9)) > 0.8 and np.all(told >= 0.95 * highest)
    assert np.all(np.asarray(before) >= np.asarray(time) * (1.0 - 1e-9))


def test_long_drafts_are_thinned():
    assert _tried(tuple(range(2, 9))) == [2, 3, 4, 5, 6, 7, 8]
    assert _tried((1,)) == [1]
    few = _tried(tuple(range(501)))
    assert len(few) < 30 and few[:7] == list(range(7)) and few[-1] == 500
    assert np.all(np.diff(few[7:]) <= 0.35 * np.asarray(few[7:-1]))
