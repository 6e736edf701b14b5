"""Fitted constants: one cost model in fit and prediction, honest intervals, borrowing said aloud."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._errors import InputError
from jaxecon.calibration import CONSTANTS, case_of, constants_toml, read_measurements, shipped
from jaxecon.calibration._apply import calibrated, stacked_places
from jaxecon.calibration._cases import scenario_of
from jaxecon.calibration._constants import NAMES, PRIOR_MEAN, PRIOR_SPREAD
from jaxecon.calibration._design import bounds_of, designs_of, seconds_of
from jaxecon.calibration._fit import Calibration, Point, calibrate, errors_of, residuals_of
from jaxecon.calibration._heldout import HeldOut, coverage_of, sweep_weights
from jaxecon.calibration._posterior import Spread, estimates
from jaxecon.calibration._solver import SCALE, Fit, maximise
from jaxecon.calibration._table import parse
from jaxecon.cli._calibrate import summary

ROWS = Path(__file__).parent / "data" / "serving_points.csv"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "serving_points.csv"


@pytest.fixture(scope="module")
def rows():
    return read_measurements(ROWS)[0]


@pytest.fixture(scope="module")
def cases(rows):
    return [case_of(r) for r in rows]


@pytest.fixture(scope="module")
def designs(cases):
    return designs_of(cases)


def test_at_most_sixty_constants_each_with_a_physical_prior():
    assert len(CONSTANTS) <= 60
    assert len(set(NAMES)) == len(NAMES)
    for c in CONSTANTS:
        assert c.value(c.inner(c.prior)) == pytest.approx(c.prior)
        assert 0.0 < c.spread <= 1.0
        assert c.kind != "share" or 0.0 < c.prior < 1.0
        assert c.meaning


def test_fit_and_prediction_are_one_model(cases, designs):
    """The stacked rows of the fit take as long as `Serving` says, layout by layout."""
    vector = jnp.asarray(shipped().vector)
    stacked, seen = seconds_of(designs, vector, len(cases)), set()
    for i, case in enumerate(cases):
        if case.waiting is not None or (case.engine, case.dense) in seen:
            continue
        where = {k: v[0] for k, v in stacked_places([(case.machine, case.engine)]).items()}
        hardware = calibrated(vector, case.accelerator, case.engine, where)
        scenario = scenario_of(case._replace(accelerator=hardware))
        if float(scenario.memory_margin(case.layout)) < 0.0:
            continue
        seen.add((case.engine, case.dense))
        assert stacked[i] == pytest.approx(float(scenario.step_time(case.layout).total), rel=1e-9)
    assert len(seen) >= 4


def test_jacobian_is_that_of_finite_differences(rows, designs):
    residuals = residuals_of(designs, np.asarray([r.tpot for r in rows]))
    x = shipped().vector + 0.01 * np.random.default_rng(0).standard_normal(len(NAMES))
    value, jacobian = residuals(x)
    direction = np.random.default_rng(1).standard_normal(len(NAMES))
    step = 1e-6
    above, below = residuals(x + step * direction)[0], residuals(x - step * direction)[0]
    np.testing.assert_allclose(jacobian @ direction, (above - below) / (2 * step), atol=1e-6, rtol=1e-5)
    assert np.all(np.isfinite(value))


def test_known_constants_are_found_again(rows, cases, designs):
    """Rows made by the model itself are fitted to within their noise, away from the prior mean."""
    truth = PRIOR_MEAN + 0.7 * PRIOR_SPREAD * np.random.default_rng(2).choice([-1.0, 1.0], len(NAMES))
    made = seconds_of(designs, jnp.asarray(truth), len(cases))
    synthetic = [r._replace(tpot=float(s)) for r, s in zip(rows, made, strict=True)]
    found = calibrate(None, synthetic, held_out=("accelerator",))
    assert found.fit.converged
    assert found.errors().mean < 0.02
    assert found.errors(held_out="accelerator").mean > found.errors().mean
    assert all(p.low < p.predicted < p.high for p in found.points)
    assert found.constants["step_overhead_s"].informed > 0.3 > found.constants["gpt-fast.step"].informed
    text = constants_toml(found, "2026-01-02", "made by the model")
    assert text.count("[constants.") == len(NAMES)


def test_robust_fit_ignores_what_describes_something_else():
    design = np.column_stack([np.ones(40), np.linspace(-1, 1, 40)])
    truth = np.asarray([0.3, -0.2])
    noise = 0.3 * SCALE * np.random.default_rng(3).standard_normal(40)
    noise[:4] += 3.0

    def residuals(x):
        return design @ (x - truth) + noise, design

    fit = maximise(residuals, np.zeros(2), np.ones(40), np.zeros(2), np.ones(2))
    assert fit.converged
    np.testing.assert_allclose(fit.vector, truth, atol=0.03)
    assert fit.gradient < 1.0


def test_rows_of_one_sweep_count_as_one():
    assert sweep_weights(["a", "a", "b"]).tolist() == [0.5, 0.5, 1.0]


def test_coverage_is_judged_by_other_groups():
    names = np.asarray(["a"] * 50 + ["b"] * 50)
    errors = np.concatenate([np.linspace(0, 1, 50), np.linspace(0, 2, 50)])
    assert coverage_of(names, errors, np.zeros(100), 1.0) == pytest.approx((50 + 22) / 100, abs=0.03)


def test_calibrated_accelerators_say_so():
    plain, fitted = je.load_accelerator("h100-sxm"), je.load_accelerator("H100-SXM", engine="vLLM")
    assert str(plain.calibration) == "not calibrated"
    assert "of them of h100-sxm" in str(fitted.calibration)
    assert plain.engine is None and str(fitted.engine.name) == "vllm"
    assert 0.5 < float(fitted.memory_efficiency) < 1.0
    assert float(fitted.hbm_bandwidth) == float(plain.hbm_bandwidth)
    borrowed = je.load_accelerator("h20", engine="vllm", price_per_hour=1.0)
    assert "none of them of h20, which borrows its family's (hopper)" in str(borrowed.calibration)
    alone = je.load_accelerator("gaudi3", engine="sglang", price_per_hour=1.0)
    assert "borrows what all share" in str(alone.calibration)


def test_engines_bring_the_collectives_that_links_allow():
    """TensorRT-LLM keeps to one-shot reductions, and no engine has any of its own on PCIe or a torus."""

    def choice(name, **options):
        return je.load_accelerator(name, price_per_hour=1.0, **options).network.algorithms

    assert choice("h100-sxm") == ("library",)
    assert choice("h100-sxm", engine="vllm") == ("library", "one_shot", "two_shot", "in_switch", "pairwise")
    assert choice("h100-sxm", engine="tensorrt-llm") == ("library", "one_shot", "pairwise")
    assert choice("a100-sxm-80gb", engine="vllm") == ("library", "one_shot", "two_shot", "pairwise")
    without = (("l40s", "vllm"), ("mi250x", "vllm"), ("groq-lpu-v1", "vllm"), ("h100-sxm", "gpt-fast"))
    for name, engine in without:
        assert choice(name, engine=engine) == ("library",)
    assert choice("h100-sxm", engine="vllm", collectives="library") == ("library",)
    assert choice("h100-sxm", collectives="best") == choice("h100-sxm", engine="vllm")
    assert choice("tpu-v5e", collectives="best") == ("library",)
    with pytest.raises(InputError, match="no collectives 'bets'; did you mean 'best'"):
        choice("h100-sxm", collectives="bets")


def test_engines_and_links_without_constants_are_refused():
    with pytest.raises(InputError, match="no fitted constants for engine 'vlm'; did you mean 'vllm'"):
        je.load_accelerator("h100-sxm", engine="vlm")
    with pytest.raises(InputError, match="torus"):
        je.load_accelerator("tpu-v5e", engine="vllm", price_per_hour=1.0)


def test_intervals_hold_the_prediction_and_widen_for_what_is_new():
    model, workload = je.load_model("llama-3.1-70b", weight_bits=8, kv_bits=8), je.Workload(4096, 512)
    layout = je.Layout(tensor=8.0, batch=16.0)
    widths = []
    for name in ("h100-sxm", "gaudi3"):
        scenario = je.Serving(model, je.load_accelerator(name, engine="vllm", price_per_hour=1.0), workload)
        found = je.predict_interval(scenario, layout)
        assert found.seconds == pytest.approx(float(scenario.step_time(layout).total), rel=1e-9)
        assert found.low < found.seconds < found.high
        widths.append((found.new, found.high / found.low))
    assert widths[0][0] == "model" and widths[1][0] == "accelerator"
    assert 1.2 < widths[0][1] < 3.0
    with pytest.raises(InputError, match="load the accelerator with engine="):
        je.predict_interval(je.Serving(model, je.load_accelerator("h100-sxm"), workload), layout)


def test_prompts_delay_tokens_as_the_engine_schedules_them():
    model = je.load_model("llama-3.1-8b")
    layout = je.Layout(tensor=1.0, batch=32.0)
    times = {}
    for engine in ("vllm", "sglang"):
        hardware = je.load_accelerator("h100-sxm", engine=engine)
        for chunk in (None, 8192.0):
            scenario = je.Serving(model, hardware, je.Workload(2304, 256), chunk_tokens=chunk)
            times[engine, chunk] = float(scenario.step_time(layout).total)
    assert times["vllm", 8192.0] > 1.1 * times["vllm", None]
    assert times["vllm", 8192.0] - times["vllm", None] > times["sglang", 8192.0] - times["sglang", None]


def test_shared_prompts_explain_what_prompts_of_their_own_cannot():
    """13.7 ms with 400 prompts of 15000 tokens are faster than full rates, unless the prompts are one."""
    text = {"model": "qwen3-32b", "gpu": "b200-sxm", "engine": "trtllm", "n_gpus": "2", "tp": "2"}
    text |= {"batch": "400", "isl": "15000", "osl": "500", "weight_prec": "nvfp4", "tpot_ms": "13.7"}
    pair = [case_of(parse(text | more, 900)) for more in ({}, {"out_tok_s_per_gpu": "13800"})]
    designs = designs_of(pair)
    own, shared = seconds_of(designs, jnp.asarray(shipped().vector), 2)
    least = bounds_of(designs, 2)
    assert least[0] > 0.0137 > least[1]
    assert own > 4.0 * 0.0137 and shared < 2.0 * 0.0137


def test_errors_of_rows_with_shared_prompts_stand_apart():
    plain = Point(2, "m", "a", "e", "serving_agg", True, 1.0, 1.0, 1.1, 0.5, 2.0, 0.1, 0.4)
    points = [plain, plain._replace(line=3, prompt_load=1.2), plain._replace(line=4, weight=0.1)]
    logs = np.log([1.1, 1.5, 3.0])
    fit = Fit(PRIOR_MEAN, logs, np.zeros((3, len(NAMES))), 0.0, 1, True, 0.0)
    without = HeldOut(["m"] * 3, logs + np.log(2.0), np.zeros(3), np.asarray([True, True, False]), 0.9)
    spread = Spread(np.diag(PRIOR_SPREAD**2), 0.05, {"nothing": 1.6})
    values = estimates(fit, spread, PRIOR_SPREAD)
    found = Calibration(values, points, {"model": without}, spread, [], fit, 1.0)
    assert [p.shared for p in points] == [False, True, False]
    assert found.errors().mean == pytest.approx(0.3)
    assert found.errors(shared=True)[:2] == pytest.approx((1, 0.5))
    assert found.errors(True, "model", shared=False)[:2] == pytest.approx((1, 1.2))
    text = constants_toml(found, "2026-01-02", "made by hand")
    assert "shared_prompt_rows = 1" in text
    assert "shared_without_model_mean = 2.0" in text and "dense_unshared_fitted_mean = 0.1" in text
    answer = summary(found, [], [], 0)["shared_prompts"]
    assert answer["rows"] == [{"line": 3, "prompt_load": 1.2}]
    assert answer["largest_prompt_load_of_others"] == 0.4
    assert answer["errors"]["without_model"]["mean"] == pytest.approx(2.0)
    assert answer["errors_of_others"]["fitted"]["rows"] == 1


def test_bad_requests_of_a_fit_are_named():
    with pytest.raises(InputError, match="no measurements to fit"):
        calibrate(None, [])


def test_shipped_constants_keep_their_error_on_all_measured_rows():
    if not DATA.is_file():
        pytest.skip("the measured points lie in ../shared, which is absent")
    rows = [r for r in read_measurements(DATA)[0] if r.kind != "e2e_offline"]
    cases = [case_of(r) for r in rows]
    predicted = seconds_of(designs_of(cases), jnp.asarray(shipped().vector), len(rows))
    logs = np.log(predicted / np.asarray([r.tpot for r in rows]))
    everything = errors_of(logs)
    assert everything.rows == shipped().rows == len(rows)
    assert everything.mean < 0.12 and everything.median < 0.08
    assert errors_of(logs[np.asarray([c.dense for c in cases])]).mean < 0.07
    loads = np.sort([c.prompt_load for c in cases])
    assert sum(c.shared > 0.0 for c in cases) == np.sum(loads > 1.0) == 3
    assert loads[-3] > 2.5 and loads[-4] < 0.5, "no row is near the limit of the proof"
    stated = shipped().error
    assert everything.mean == pytest.approx(stated["all_fitted_mean"], abs=0.002)
    assert stated["all_without_model_mean"] < 0.20 and stated["dense_without_model_mean"] < 0.15
    assert 0.85 < stated["coverage_without_model"] < 0.95
