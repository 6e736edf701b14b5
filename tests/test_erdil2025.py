"""The paper's presets from catalogue models, their search, and compile counts."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._numerics import Smooth

ACCELERATOR = {"price_per_hour": 2.0}


def _scenario(kind=je.Erdil2025, name="llama-3.1-70b", **options):
    model, accelerator = je.load_model(name), je.load_accelerator("h100-sxm", **ACCELERATOR)
    return kind(model, accelerator, je.Workload(context=1000), **options)


@pytest.mark.parametrize("kind", [je.Erdil2025, je.Toy])
def test_search_over_the_papers_space(kind):
    found = je.certified_optimum(_scenario(kind), 2.0, max_accelerators=32)
    assert found.cost <= 2.0 and found.speed > 0


def test_best_step_is_the_least_over_layouts():
    scenario = _scenario()
    times = []
    for kind in ("1d", "2d"):
        for p in (1.0, 2.0, 4.0):
            layout = je.Layout(tensor=8.0 / p, pipeline=p, batch=16.0, partition=kind)
            times.append(float(scenario.step_time(layout).total))
    assert float(scenario.best_step_time(8.0, 16.0)) == pytest.approx(min(times), rel=1e-12)


@pytest.mark.parametrize("kind", [je.Erdil2025, je.Serving])
def test_smooth_step_is_a_lower_bound_that_tends_to_the_exact(kind):
    scenario = _scenario(kind)
    layout = je.Layout(tensor=8.0, pipeline=2.0, batch=16.0)
    exact = float(scenario.step_time(layout).total)
    gaps = [1 - float(scenario.step_time(layout, Smooth(t)).total) / exact for t in (0.1, 0.01, 1e-4)]
    assert 0 <= gaps[2] < gaps[1] < gaps[0] and gaps[2] < 1e-3


def test_gradient_has_the_shape_of_the_question():
    scenario = _scenario(je.Serving)
    layout = je.Layout(tensor=8.0, batch=16.0)
    slope = eqx.filter_grad(lambda s: jnp.log(s.speed(layout)))(scenario)
    bandwidth = float(slope.accelerator.hbm_bandwidth * scenario.accelerator.hbm_bandwidth)
    assert 0.3 < bandwidth < 1.0
    more = eqx.tree_at(lambda s: s.accelerator.hbm_bandwidth, scenario, replace_fn=lambda x: x * 1.0001)
    step = np.log(float(more.speed(layout)) / float(scenario.speed(layout))) / np.log(1.0001)
    assert bandwidth == pytest.approx(step, rel=1e-3)


def test_one_compilation_for_all_models_of_a_structure():
    traces = []

    @eqx.filter_jit
    def speed(scenario, layout):
        traces.append(1)
        return scenario.speed(layout)

    layout = je.Layout(tensor=8.0, batch=16.0)
    for name in ("llama-3.1-70b", "llama-3.1-405b", "llama-2-70b"):
        speed(_scenario(je.Serving, name), layout)
    assert len(traces) == 1


def test_draft_takes_memory():
    speculation = je.Speculation(je.load_model("llama-3.1-8b"), acceptance=0.8, max_draft_tokens=4)
    with_draft = _scenario(je.Serving, speculation=speculation)
    ledger = with_draft.ledger(je.Layout(tensor=8.0, batch=16.0, draft_tokens=3.0))
    assert float(ledger.draft) > 2 * 7e9 / 8
    found = je.certified_optimum(with_draft, 3.0)
    plain = je.certified_optimum(_scenario(je.Serving), 3.0)
    assert found.speed > plain.speed and float(found.layout.draft_tokens) > 0


@pytest.mark.parametrize("revision", ["2024-09", "2025-05"])
def test_the_draft_in_its_best_structure(revision):
    scenario = je.Erdil2025(
        je.load_model("llama-3.1-70b"),
        je.load_accelerator("h100-sxm"),
        je.Workload(4096.0),
        draft=je.load_model("llama-3.1-8b"),
        acceptance=0.8,
        gamma_max=4,
        revision=revision,
    )
    n, batch = (
        x.ravel() for x in jnp.meshgrid(jnp.asarray([1.0, 3.0, 8.0, 17.0]), jnp.asarray([1.0, 5.0, 96.0]))
    )
    layout = je.Layout(tensor=n, batch=batch, draft_tokens=jnp.full(n.shape, 2.0))
    structure = eqx.filter_jit(lambda s: s.draft_structure(layout))(scenario)
    best = eqx.filter_jit(lambda s: s.draft_time(layout).total)(scenario)
    held = eqx.filter_jit(lambda s: s.draft_time(layout, structure).total)(scenario)
    np.testing.assert_allclose(held, best, rtol=1e-14)
    stages = scenario.draft_pipeline(structure)
    assert set(np.asarray(stages)) <= set(scenario.pipelines) and np.all(stages <= jnp.minimum(n, batch))
    for two_d in (False, True):
        kind = je.Layout(**{**vars(layout), "partition": "2d" if two_d else "1d"})
        where = jnp.full(n.shape, two_d)
        speed, known = eqx.filter_jit(
            lambda s, w: (s.speed_among(layout, w), s.speed_among(layout, w, best))
        )(scenario, where)
        np.testing.assert_allclose(speed, eqx.filter_jit(lambda s, x: s.speed(x))(scenario, kind), rtol=1e-14)
        np.testing.assert_allclose(known, speed, rtol=1e-14)
