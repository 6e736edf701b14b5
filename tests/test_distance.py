"""Distances to the next layout and the next regime, against certified optima on either side."""

import numpy as np
import pytest

import jaxecon as je

NAMES = ("accelerator.price", "accelerator.hbm_bandwidth", "model.groups.0.mixer.kv_heads")


@pytest.fixture(scope="module")
def scenario():
    accelerator = je.load_accelerator("h100-sxm")
    return je.Serving(je.load_model("llama-3.1-70b"), accelerator, je.Workload(context=4096.0))


@pytest.fixture(scope="module")
def found(scenario):
    return je.distances(scenario, 1.5, NAMES, 64)


def _degrees(scenario, name, move):
    moved = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(move)})
    layout = je.certified_optimum(moved, 1.5, max_accelerators=64).layout
    return float(layout.tensor), float(layout.pipeline)


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_layout_changes_there(scenario, found, name):
    here = _degrees(scenario, name, 0.0)
    for sign, distance in zip((-1, 1), found[name].layout, strict=True):
        assert 0.0 < distance < np.inf
        assert _degrees(scenario, name, sign * distance) != here
        assert _degrees(scenario, name, sign * 0.5 * distance) == here


def test_a_tie_is_at_hand(found):
    """Eight key-value heads on eight accelerators: fewer heads are replicated at once."""
    down, up = found["model.groups.0.mixer.kv_heads"].regime
    assert down == pytest.approx(0.0, abs=1e-8) and up > 0.01
    assert found["accelerator.price"].regime == (np.inf, np.inf)


def test_unknown_name(scenario):
    with pytest.raises(je.InputError, match="price"):
        je.distances(scenario, 1.5, ["accelerator.prise"])
