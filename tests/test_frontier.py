"""The frontier holds every undominated layout and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import certified_frontier
from test_exact import _scenario


def _all_points(scenario, most, max_batch):
    points = []
    for degrees in scenario.degrees(most):
        for i in range(degrees.tensor.size):
            batch = jnp.arange(1.0, max_batch + 1.0)
            one = jax.tree.map(lambda x, i=i: jnp.full(max_batch, x[i]), degrees)
            layout = je.Layout(one.tensor, one.pipeline, one.expert, one.data, batch, one.draft_tokens)
            fits = np.asarray(scenario.memory_margin(layout)) >= 0
            able = fits & (np.asarray(batch) >= float(degrees.pipeline[i]))
            both = np.stack([np.asarray(scenario.speed(layout)), np.asarray(scenario.cost(layout))], 1)
            points.append(both[able])
    return np.concatenate(points)


@pytest.mark.parametrize("seed", range(6))
def test_equals_enumeration(seed):
    scenario = _scenario(seed)
    points = _all_points(scenario, 8, 64)
    if not len(points):
        pytest.skip("the random model fits nowhere")
    points = points[np.lexsort((points[:, 1], -points[:, 0]))]
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], points[:-1, 1]]))
    expected = points[points[:, 1] < lowest]
    found = certified_frontier(scenario, max_accelerators=8, max_batch=64)
    np.testing.assert_allclose(np.stack([found.speed, found.cost], 1), expected, rtol=1e-12)
    assert np.all(np.diff(found.speed) < 0) and np.all(np.diff(found.cost) < 0)
