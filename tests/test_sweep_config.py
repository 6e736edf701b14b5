"""Files of sweeps: what is understood, and what is refused in one sentence."""

import numpy as np
import pytest

import jaxecon as je
from jaxecon.specs._catalogue import configs_dir
from jaxecon.sweep._config import parse_config, read_config
from jaxecon.sweep._plan import Plan
from jaxecon.sweep._points import Points

GOOD = {
    "budget": [1.0, 2.0],
    "scenario": {"model": "llama-3.1-8b", "accelerator": "h100-sxm"},
    "axes": {
        "accelerator.hbm_bandwidth": ["x0.5", 3e12],
        "workload.context": {"low": 100, "high": 10000, "points": 3, "scale": "log"},
    },
}


def test_grid_in_order():
    points = Points(parse_config(GOOD), combinations=2)
    assert points.rows == 2 * 2 * 3 * 2
    combination, values = points.at(0, points.rows)
    np.testing.assert_array_equal(combination, np.repeat([0, 1], 12))
    number, relative = values["accelerator.hbm_bandwidth"]
    np.testing.assert_array_equal(number[:12], np.repeat([0.5, 3e12], 6))
    np.testing.assert_array_equal(relative[:12], np.repeat([True, False], 6))
    np.testing.assert_allclose(values["workload.context"][0][:6], np.repeat([100, 1000, 10000], 2))
    np.testing.assert_array_equal(values["budget"][0][:4], [1, 2, 1, 2])


def test_any_range_of_rows_alone():
    axes = {"accelerator.price": {"low": "x0.5", "high": "x2"}, "workload.context": {"low": 0, "high": 9}}
    sample = {"method": "sobol", "count": 50}
    points = Points(parse_config(GOOD | {"axes": axes, "sample": sample, "seed": 3}), combinations=3)
    assert points.rows == 3 * 50 * 2
    combination, whole = points.at(0, points.rows)
    for start, stop in ((0, 1), (7, 40), (90, 130), (199, 300)):
        some, part = points.at(start, stop)
        np.testing.assert_array_equal(some, combination[start:stop])
        for name in whole:
            np.testing.assert_array_equal(part[name], np.array(whole[name])[:, start:stop])
    factor, relative = whole["accelerator.price"]
    assert relative.all() and 0.5 <= factor.min() < 0.52 and 1.9 < factor.max() <= 2
    assert np.median(factor) == pytest.approx(1.0, abs=0.06)  # factors are spread in their logarithm
    other = Points(parse_config(GOOD | {"axes": axes, "sample": sample, "seed": 4}), combinations=3)
    assert not np.array_equal(other.at(0, 9)[1]["workload.context"][0], whole["workload.context"][0][:9])


@pytest.mark.parametrize("path", sorted((configs_dir() / "sweeps").glob("*.toml")), ids=lambda p: p.stem)
def test_examples(path):
    plan = Plan(read_config(path))
    assert plan.points.rows >= 100
    assert path.read_text().startswith(f"# jaxecon sweep configs/sweeps/{path.name}")


def test_only_the_leaves_that_shape_degrees_are_found():
    axes = {"model.groups[0].mixer.heads": [32, 64], "accelerator.network.domain_size": [8, 72]}
    plan = Plan(parse_config(GOOD | {"axes": axes}))
    (structure,) = plan.structures
    assert [structure.names[i] for i in structure.shaping] == ["model.groups[0].mixer.heads"]


def test_models_of_one_structure_are_one():
    scenario = {"model": ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3"], "accelerator": "h100-sxm"}
    plan = Plan(parse_config(GOOD | {"scenario": scenario}))
    assert [len(s.rows) for s in plan.structures] == [2, 1]


def test_the_hash_follows_the_numbers():
    hashes = [
        Plan(parse_config(GOOD | {"scenario": GOOD["scenario"] | {"context": c}})).hash for c in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


BAD = [
    ({"budgets": 1.0}, "did you mean 'budget'"),
    ({"budget": 0}, "positive"),
    ({"budget": "x2"}, "not factors"),
    ({"budget": []}, "empty"),
    ({"scenario": {"model": "llama-3.1-8b"}}, "'accelerator'"),
    ({"scenario": {"model": "lama-3.1-8b", "accelerator": "h100-sxm"}}, "did you mean"),
    ({"scenario": {"model": 3, "accelerator": "h100-sxm"}}, "text"),
    ({"scenario": {"model": ["a", "a"], "accelerator": "h100-sxm"}}, "twice"),
    ({"scenario": GOOD["scenario"] | {"context": "long"}}, "'context'"),
    ({"scenario": GOOD["scenario"] | {"colour": 1}}, "colour"),
    ({"scenario": GOOD["scenario"] | {"cost_model": "free"}}, "free"),
    ({"scenario": GOOD["scenario"] | {"context": -1}}, "context"),
    ({"axes": {"accelerator.hbm_bandwith": [1e12]}}, "accelerator.hbm_bandwidth"),
    ({"axes": {"accelerator.hbm_bandwidth": ["2x"]}}, "2x"),
    ({"axes": {"accelerator.hbm_bandwidth": [-1.0]}}, "cannot be -1"),
    ({"axes": {"accelerator.hbm_bandwidth": [0.0]}}, "cannot be 0"),
    ({"axes": {"accelerator.memory_efficiency": ["x2"]}}, "cannot be 1.5"),
    ({"axes": {"reserve": [1.0]}}, "cannot be 1"),
    ({"axes": {"workload.context": {"low": 1, "high": 2}}}, "points"),
    ({"axes": {"workload.context": {"low": 2, "high": 1, "points": 3}}}, "below"),
    ({"axes": {"workload.context": {"low": 1, "high": "x2", "points": 3}}}, "both"),
    ({"axes": {"workload.context": {"low": 0, "high": 2, "points": 3, "scale": "log"}}}, "above 0"),
    ({"axes": {"workload.context": {"low": 1, "high": 2, "points": 3, "scale": "cubic"}}}, "cubic"),
    ({"axes": {"model.groups[0].mixer.heads": [1.5]}}, "whole"),
    ({"axes": {"budget": 1.0}}, "top"),
    ({"axes": 3}, "table"),
    ({"sample": {"method": "dice", "count": 3}}, "dice"),
    ({"sample": {"count": 0}}, "count"),
    ({"outputs": ["certifed"]}, "certified"),
    ({"outputs": []}, "empty"),
    ({"elasticities": ["budget"]}, "outputs"),
    ({"outputs": ["elasticities"], "elasticities": ["accelerator.hbm"]}, "no leaf"),
    ({"seed": 1.5}, "seed"),
    ({"rows_per_chunk": 0}, "rows_per_chunk"),
]


@pytest.mark.parametrize(("change", "says"), BAD)
def test_bad_config(change, says):
    with pytest.raises(je.InputError, match=says):
        plan = Plan(parse_config(GOOD | change))
        structure = plan.structures[0]
        leaves = structure.values[0]
        for place in structure.shaping:
            leaves[place] = 1.5
        plan.degrees_of(structure, 0, leaves)


def test_the_file_is_named(tmp_path):
    path = tmp_path / "sweep.toml"
    with pytest.raises(je.InputError, match="sweep.toml"):
        read_config(path)
    path.write_text("budget = ")
    with pytest.raises(je.InputError, match="sweep.toml"):
        read_config(path)
    path.write_text("bugdet = 1")
    with pytest.raises(je.InputError, match="sweep.toml.*did you mean 'budget'"):
        read_config(path)
