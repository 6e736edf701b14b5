"""Exponents and responses of the toy model against its closed forms; families; fits; inverse design."""

import equinox as eqx
import numpy as np
import pytest

import jaxecon as je
from jaxecon.sensitivity import _solved
from jaxecon.sensitivity._exponents import fit
from random_questions import question, scenario_of

FIELDS = {
    "d_model": 8192,
    "d_ff": 28672,
    "ff_matrix_count": [2, 1],
    "layers": 80,
    "n_experts": 1,
    "n_active_experts": 1,
    "num_query_heads": 64,
    "group_size": 8,
    "d_head": 128,
    "weight_precision_bytes": 2,
    "activation_precision_bytes": 2,
    "vocab_size": 1e-9,
}
MACHINE = {
    "flop_per_second": {"16": 1e15},
    "hbm_bandwidth_Bps": 3.3e12,
    "hbm_size_bytes": 80e9,
    "intranode_allreduce_bandwidth_Bps": 225e9,
    "internode_allreduce_bandwidth_Bps": 25e9,
    "node_size": 8,
    "price_dollars_per_hour": 2.1,
    "kernel_launch_latency_seconds": 4e-6,
}
LATENCY = {"accelerator.network.library_latency": 1.0}
BANDWIDTH = {"accelerator.hbm_bandwidth": 1.0}


@pytest.fixture(scope="module")
def toy():
    """Latency L R hop sqrt(N), without the constant and the -1; no embeddings."""
    toy = je.Toy.from_fields(FIELDS, MACHINE)
    return je.with_parameters(toy, {"base_latency": 2e-6})


CLOSED = [
    (lambda s: je.power_family(s, BANDWIDTH), 1 / 3),
    (lambda s: je.power_family(s, LATENCY), -2 / 3),
    (lambda s: je.size_family(s, 1 / 4), -1 / 2),
    (lambda s: je.size_family(s, 1 / 3), -5 / 9),
]


@pytest.mark.parametrize(("family", "expected"), CLOSED, ids=["bandwidth", "latency", "1/4", "1/3"])
def test_closed_forms_of_the_toy_model(toy, family, expected):
    found = je.scaling_exponent(family(toy), None)
    np.testing.assert_allclose(found.local, expected, atol=1e-6)
    assert found.fitted == pytest.approx(expected, abs=1e-6)
    assert found.interval[0] <= found.fitted <= found.interval[1]
    assert np.max(np.abs(found.residuals)) < 1e-8


def test_responses_of_the_toy_model(toy):
    """N* = (2W/(B L g))^(2/3)."""
    moved = je.responses(toy, 1e12)
    assert moved.status == "success"
    expected = {"accelerator.hbm_bandwidth": -2 / 3, "accelerator.network.library_latency": -2 / 3}
    expected |= {"model.weight_bytes": 2 / 3, "model.layers": 0.0, "accelerator.hbm_size": 0.0}
    for name, value in expected.items():
        assert moved["accelerators"][name] == pytest.approx(value, abs=1e-6), name


def test_responses_equal_re_solved_layouts():
    q = question(1)
    scenario, budget = scenario_of(q), q["budget"]
    moved = je.responses(scenario, budget)
    assert moved.status == "success"
    bounds = _solved.limits(budget, 1024, 65536)
    for name in ("accelerator.hbm_bandwidth", "accelerator.price", "model.width", "workload.context"):
        ends = []
        for step in (-1e-3, 1e-3):
            other = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(step)})
            at = _solved.solve(other, bounds)
            x, _ = _solved.refined(other, bounds, at.solution)
            z = at.solution.box.z(x[:3])
            ends.append([float(z[0] + z[1]), float(x[3])])
        change = (np.asarray(ends[1]) - np.asarray(ends[0])) / 2e-3
        for component, value in zip(("accelerators", "batch"), change, strict=True):
            assert moved[component][name] == pytest.approx(value, rel=5e-3, abs=1e-4), (name, component)


def test_any_function_is_a_family(toy):
    def family(scale):
        return eqx.tree_at(lambda s: s.accelerator.hbm_bandwidth, toy, 1e12 * (1.0 + scale))

    found = je.scaling_exponent(family, None, [1.0, 2.0, 4.0])
    np.testing.assert_allclose(found.local, np.array([0.5, 2 / 3, 0.8]) / 3, atol=1e-6)


def test_fit():
    x = np.linspace(0.0, 3.0, 7)
    noise = np.array([0.1, -0.1, 0.05, 0.0, -0.05, 0.1, -0.1])
    slope, (low, high), residuals = fit(x, 2.0 * x + noise)
    expected = np.polyfit(x, 2.0 * x + noise, 1)
    assert slope == pytest.approx(expected[0]) and low < slope < high
    np.testing.assert_allclose(residuals, 2.0 * x + noise - np.polyval(expected, x), atol=1e-12)
    # Student's t with 5 degrees of freedom has its 97.5 % point at 2.5706 (any table).
    error = np.sqrt(residuals @ residuals / 5 / np.sum((x - x.mean()) ** 2))
    assert high - slope == pytest.approx(2.5706 * error, rel=1e-4)


def test_bad_families(toy):
    with pytest.raises(je.InputError, match="hbm_"):
        je.power_family(toy, {"accelerator.hbm": 1.0})
    with pytest.raises(je.InputError, match="depth exponent"):
        je.size_family(toy, 1.5)
    for scales in ([1.0, 2.0], [1.0, 1.0, 1.0], [1.0, -1.0, 2.0]):
        with pytest.raises(je.InputError, match="at least 3"):
            je.scaling_exponent(je.power_family(toy, BANDWIDTH), None, scales)


def test_design_of_the_toy_model(toy):
    """With constant elasticities g the smallest change is g ln(gain)/(g g)."""
    now = je.relaxed_optimum(toy, 1e12).speed
    names = [*BANDWIDTH, *LATENCY]
    found = je.design(toy, names, (1.5 * now, 1e12))
    g = np.array([1 / 3, -2 / 3])
    expected = np.exp(g * np.log(1.5) / (g @ g))
    assert found.status == "success"
    assert found.speed == pytest.approx(1.5 * now, rel=1e-6)
    np.testing.assert_allclose([found.factors[n] for n in names], expected, rtol=1e-3)
    eased = je.design(toy, names, (1.5 * now, 1e12), weights={names[0]: 4.0})
    assert eased.factors[names[0]] > found.factors[names[0]] and eased.size < found.size
    assert je.design(toy, names, (0.9 * now, 1e12)).size == 0.0


@pytest.mark.parametrize(
    ("free", "target", "says"),
    [
        ([], (10.0, 1.0), "at least one"),
        (["accelerator.prise"], (10.0, 1.0), "price"),
        (["accelerator.power"], (10.0, 1.0), "positive"),
        (["accelerator.price"], (-1.0, 1.0), "target"),
    ],
)
def test_bad_designs(toy, free, target, says):
    with pytest.raises(je.InputError, match=says):
        je.design(toy, free, target)
