"""`jaxecon calibrate` on real rows, and on rows that cannot be used."""

import json
from pathlib import Path

import pytest

import jaxecon as je
from jaxecon.calibration import COLUMNS, CONSTANTS, shipped
from jaxecon.cli._optimize import interval

ROWS = Path(__file__).parent / "data" / "serving_points.csv"


@pytest.fixture
def spoilt(tmp_path):
    path = tmp_path / "points.csv"
    lines = ROWS.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[2].replace("B200", "B2000"), lines[3].replace("fp8", "fp5")]))
    return path, len(lines)


def test_constants_picture_and_worst_rows(run, spoilt, tmp_path):
    path, good = spoilt
    out, picture = tmp_path / "mine.toml", tmp_path / "fit.png"
    words = ("--on-bad", "skip", "--held-out", "none", "--worst", 3, "--out", out, "--plot", picture)
    code, text, _ = run("calibrate", path, *words, "--json")
    answer = json.loads(text)
    assert code == 0 and picture.stat().st_size > 5000
    assert answer["rows"] == good - 1
    assert [b["line"] for b in answer["bad_rows"]] == [good + 1, good + 2]
    assert "unknown accelerator 'B2000'" in answer["bad_rows"][0]["reason"]
    assert len(answer["worst_rows"]) == 3
    assert abs(answer["worst_rows"][0]["error"]) >= abs(answer["worst_rows"][2]["error"])
    again = shipped(out)
    assert again.rows == answer["rows"]
    assert again.spread.covariance.shape == (len(again.vector),) * 2


def test_an_answer_carries_its_interval_or_says_that_there_is_none():
    model, workload, layout = je.load_model("llama-3.1-8b"), je.Workload(4096, 512), je.Layout(batch=8.0)
    plain = interval(je.Serving(model, je.load_accelerator("h100-sxm"), workload), layout)
    assert plain == {"calibration": "not calibrated", "interval": None}
    scenario = je.Serving(model, je.load_accelerator("h100-sxm", engine="vllm"), workload)
    fitted = interval(scenario, layout)
    assert "of them of h100-sxm" in fitted["calibration"]
    low, high = fitted["interval"]["speed_tokens_per_s"]
    assert low < float(scenario.speed(layout)) < high
    cheap, dear = fitted["interval"]["cost_usd_per_million_tokens"]
    assert cheap < float(scenario.cost(layout)) < dear


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--held-out", "gpu"), "no held-out group 'gpu'"),
        (("--kinds", "serving"), "no kind 'serving'; did you mean 'serving_agg'"),
        (("--prior", "guess"), "the prior is 'shipped' or 'physics', got 'guess'"),
        (("--on-bad", "mend"), "on_bad is 'refuse' or 'skip', got 'mend'"),
        (("--out", "constants.json"), "written to a .toml file"),
        (("--plot", "fit.gif"), "a picture ends in .png, .svg or .pdf"),
    ],
)
def test_bad_options_are_one_sentence(run, words, message):
    code, out, err = run("calibrate", ROWS, *words)
    assert code == 2 and not out
    assert message in err and "Traceback" not in err


def test_every_column_and_constant_is_documented(run):
    text = (Path(__file__).parents[1] / "docs" / "calibration.md").read_text()
    for name in (*COLUMNS, *(c.name for c in CONSTANTS)):
        assert f"`{name}`" in text
    code, out, _ = run("calibrate", "--help")
    assert code == 0 and all(name in out for name in COLUMNS)


def test_a_bad_row_is_refused_by_its_line(run, spoilt):
    path, good = spoilt
    code, _, err = run("calibrate", path)
    assert code == 2
    assert f"line {good + 1}: unknown accelerator 'B2000'; did you mean" in err
