"""The main job from the command line, and bad input in one sentence with exit code 2."""

import json

import pytest

from jaxecon.cli import main


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["jaxecon", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


GOOD = ("optimize", "--model", "llama-3.1-70b", "--accelerator", "h100-sxm", "--budget", "1.5")


def test_optimize_json(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "a.png"
    code, out, _ = run(monkeypatch, capsys, *GOOD, "--json", "--plot", str(picture))
    answer = json.loads(out)
    assert code == 0 and 0 < picture.stat().st_size < 200_000
    layout = answer["layout"]
    assert layout["accelerators"] == layout["tensor"] * layout["pipeline"] * layout["data"]
    assert answer["cost_usd_per_million_tokens"] <= 1.5
    assert f"--max-num-seqs {layout['batch']}" in answer["launch"]["vllm"]
    memory = answer["memory_bytes"]
    assert sum(v for k, v in memory.items() if k != "capacity") <= memory["capacity"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--model", "lama-3.1-70b"), "did you mean"),
        (("--accelerator", "h100sxm"), "did you mean"),
        (("--budget", "0.0001"), "cheapest"),
        (("--budget", "-1"), "budget"),
        (("--context", "-5"), "context"),
        (("--output", "0"), "output"),
        (("--weight-bits", "0"), "weight_bits"),
        (("--max-accelerators", "1"), "GB"),
        (("--plot", "picture.bmp"), ".png"),
        (("--plot", "absent/picture.png"), "absent"),
    ],
)
def test_bad_input(monkeypatch, capsys, change, says):
    code, out, err = run(monkeypatch, capsys, *GOOD, *change)
    assert code == 2 and says in err and "Traceback" not in err and out == ""


def test_frontier_csv(monkeypatch, capsys, tmp_path):
    words = ("frontier", "--model", "llama-3.1-8b", "--accelerator", "h100-sxm", "--csv")
    picture = tmp_path / "frontier.svg"
    code, out, _ = run(monkeypatch, capsys, *words, "--max-accelerators", "16", "--plot", str(picture))
    lines = out.strip().splitlines()
    assert code == 0 and picture.stat().st_size > 0 and len(lines) > 10
    costs = [float(line.split(",")[1]) for line in lines[1:]]
    assert costs == sorted(costs, reverse=True)
