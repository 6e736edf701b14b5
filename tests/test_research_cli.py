"""sensitivity, whatif, exponents and reproduce on real input, and bad input in one sentence."""

import csv
import io
import json

import pytest

SCENE = ("--model", "llama-3.1-70b", "--accelerator", "h100-sxm")
PRICED = (*SCENE, "--budget", "1.5")


def test_sensitivity(run, tmp_path):
    picture = tmp_path / "tornado.png"
    code, out, _ = run("sensitivity", *PRICED, "--json", "--plot", str(picture))
    answer = json.loads(out)
    assert code == 0 and picture.stat().st_size > 0 and answer["status"] == "success"
    rows = {r["parameter"]: r for r in answer["parameters"]}
    assert rows["accelerator.price"]["d_ln_cost"] == pytest.approx(1.0)
    assert rows["accelerator.network.domain_size"]["certified_d_ln_speed"][0] == "jump"
    table = list(csv.DictReader(io.StringIO(run("sensitivity", *PRICED, "--csv")[1])))
    assert len(table) == len(rows)
    code, out, _ = run("sensitivity", *PRICED, "--top", "3")
    assert code == 0 and "left out" in out


def test_whatif(run):
    words = ("whatif", *PRICED, "--set", "accelerator.hbm_bandwidth=+1%")
    answer = json.loads(run(*words, "--json")[1])
    relaxed = answer["relaxed"]
    assert relaxed["predicted"] == pytest.approx(relaxed["re_solved"], rel=1e-4)
    assert relaxed["predicted"] > relaxed["before"]
    assert "hbm_bandwidth" in run(*words)[1]


def test_exponents(run, tmp_path):
    picture = tmp_path / "exponents.svg"
    words = ("exponents", *SCENE, "--members", "3", "--plot", str(picture))
    rows = {r["family"]: r for r in json.loads(run(*words, "--json")[1])}
    assert picture.stat().st_size > 0
    assert -0.7 < rows["parameters"]["fitted_exponent"] < -0.3
    assert 0.1 < rows["HBM bandwidth"]["local_exponent"] < 0.4


def test_reproduce(run, tmp_path):
    page = tmp_path / "page.md"
    words = ("reproduce", "collective_base_latency", "--out", str(tmp_path / "out"), "--findings", str(page))
    code, out, err = run(*words, "--json")
    row = json.loads(out)[0]
    assert code == 0 and row["verdict"].startswith("holds") and "collective_base_latency" in err
    assert page.read_text() == (tmp_path / "out" / "FINDINGS.md").read_text()
    assert "microseconds" in run(*words)[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sensitivity", *SCENE, "--budget", "-1"), "budget"),
        (("sensitivity", *SCENE, "--budget", "0.0001"), "unreachable"),
        (("sensitivity", *PRICED, "--plot", "a.bmp"), ".png"),
        (("whatif", *PRICED, "--set", "accelerator.hbm=x2"), "hbm_"),
        (("whatif", *PRICED, "--set", "accelerator.hbm_bandwidth"), "cannot read"),
        (("whatif", *PRICED, "--set", "accelerator.hbm_bandwidth=x"), "cannot read"),
        (("whatif", *PRICED, "--set", "accelerator.hbm_bandwidth=-3"), "positive"),
        (("whatif", *PRICED, "--set", "engine_overhead=1"), "elasticity"),
        (("exponents", *SCENE, "--span", "1"), "span"),
        (("exponents", *SCENE, "--depth-exponent", "2"), "depth exponent"),
        (("reproduce", "nonesuch"), "nonesuch"),
    ],
)
def test_bad_input(run, words, says):
    code, out, err = run(*words)
    assert code == 2 and says in err and "Traceback" not in err and out == ""
