"""Every command on real input, and bad input in one sentence with exit code 2."""

import csv
import io
import json

import pytest

SCENE = ("--model", "llama-3.1-70b", "--accelerator", "h100-sxm")
OPTIMIZE = ("optimize", *SCENE, "--budget", "1.5")
EXPLAIN = ("explain", *SCENE, "--layout", "tensor=8,batch=16")


def test_optimize_json(run, tmp_path):
    picture = tmp_path / "a.png"
    code, out, _ = run(*OPTIMIZE, "--json", "--plot", str(picture))
    answer = json.loads(out)
    assert code == 0 and 0 < picture.stat().st_size < 200_000
    layout = answer["layout"]
    assert layout["accelerators"] == layout["tensor"] * layout["pipeline"] * layout["data"]
    assert answer["cost_usd_per_million_tokens"] <= 1.5
    assert f"--max-num-seqs {layout['batch']}" in answer["launch"]["vllm"]
    memory = answer["memory_bytes"]
    assert sum(v for k, v in memory.items() if k != "capacity") <= memory["capacity"]
    relaxed, rounded = answer["relaxed"], answer["rounded"]
    speeds = [x["speed_tokens_per_s"] for x in (rounded, answer, relaxed)]
    assert speeds == sorted(speeds)
    assert relaxed["binds"]["price"] == pytest.approx(answer["shadow_price"])


def test_explain_agrees_with_optimize(run):
    best = json.loads(run(*OPTIMIZE, "--json")[1])
    words = ",".join(f"{k}={best['layout'][k]}" for k in ("tensor", "pipeline", "batch"))
    same = json.loads(run("explain", *SCENE, "--layout", words, "--json")[1])
    assert same["speed_tokens_per_s"] == pytest.approx(best["speed_tokens_per_s"], rel=1e-12)
    assert same["memory_bytes"] == best["memory_bytes"]
    assert same["collectives"] == best["collectives"] == {"all_reduce": "library LL"}


def test_tables_and_csv(run):
    for words in (OPTIMIZE, EXPLAIN):
        code, out, _ = run(*words)
        assert code == 0 and "tokens/s" in out and "kv cache" in out
        rows = list(csv.DictReader(io.StringIO(run(*words, "--csv")[1])))
        assert len(rows) == 1 and float(rows[0]["speed_tokens_per_s"]) > 0


def test_speculation_on_the_command_line(run):
    words = ("--draft", "llama-3.1-8b", "--acceptance", "0.8", "--max-draft-tokens", "4")
    answer = json.loads(run(*OPTIMIZE, *words, "--json")[1])
    assert answer["layout"]["draft_tokens"] > 0 and answer["memory_bytes"]["draft"] > 0
    assert "num_speculative_tokens" in answer["launch"]["vllm"]


def test_frontier_compares(run, tmp_path):
    picture = tmp_path / "frontier.svg"
    words = ("frontier", "--model", "llama-3.1-8b", "--accelerator", "h100-sxm,h200-sxm")
    code, out, _ = run(*words, "--csv", "--max-accelerators", "8", "--plot", str(picture))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and picture.stat().st_size > 0
    assert {r["accelerator"] for r in rows} == {"h100-sxm", "h200-sxm"}
    costs = [float(r["cost_usd_per_million_tokens"]) for r in rows if r["accelerator"] == "h100-sxm"]
    assert costs == sorted(costs, reverse=True)


def test_evaluate(run, tmp_path):
    path, out = tmp_path / "points.csv", tmp_path / "out.csv"
    path.write_text("model,accelerator,tensor,batch\nllama-3.1-70b,h100-sxm,8,16\n" * 1)
    code, text, _ = run("evaluate", str(path))
    row = next(csv.DictReader(io.StringIO(text)))
    one = json.loads(run(*EXPLAIN, "--json")[1])
    assert code == 0 and row["fits"] == "True"
    assert float(row["speed_tokens_per_s"]) == pytest.approx(one["speed_tokens_per_s"], rel=1e-12)
    assert run("evaluate", str(path), "--out", str(out))[0] == 0 and out.read_text().strip() == text.strip()


@pytest.mark.parametrize("command", ["models", "accelerators"])
def test_catalogue(run, command):
    rows = json.loads(run(command, "--json")[1])
    assert len(rows) >= 25 and all(r["name"] and r["source"] for r in rows)
    assert run(command)[0] == 0


def test_context_beyond_the_model_warns(run):
    code, _, err = run(*OPTIMIZE[:-1], "20", "--context", "200000")
    assert code == 0 and "warning" in err and "131072" in err


BAD = [
    (OPTIMIZE, ("--model", "lama-3.1-70b"), "did you mean"),
    (OPTIMIZE, ("--model", "absent/config.json"), "absent/config.json"),
    (OPTIMIZE, ("--accelerator", "h100sxm"), "did you mean"),
    (OPTIMIZE, ("--budget", "0.0001"), "cheapest"),
    (OPTIMIZE, ("--budget", "-1"), "budget"),
    (OPTIMIZE, ("--budget", "nan"), "budget"),
    (OPTIMIZE, ("--budget", "cheap"), "--budget"),
    (OPTIMIZE, ("--context", "-5"), "context"),
    (OPTIMIZE, ("--context", "nan"), "context"),
    (OPTIMIZE, ("--output", "0"), "output"),
    (OPTIMIZE, ("--demand", "-1"), "demand"),
    (OPTIMIZE, ("--demand", "1"), "is below what any layout"),
    (OPTIMIZE, ("--weight-bits", "0"), "weight_bits"),
    (OPTIMIZE, ("--kv-bits", "64"), "kv_bits"),
    (OPTIMIZE, ("--price-per-hour", "-2"), "price_per_hour"),
    (OPTIMIZE, ("--reserve", "1.5"), "reserve"),
    (OPTIMIZE, ("--draft", "nonesuch"), "nonesuch"),
    (OPTIMIZE, ("--draft", "llama-3.1-8b", "--acceptance", "2"), "acceptance"),
    (OPTIMIZE, ("--max-accelerators", "0"), "max-accelerators"),
    (OPTIMIZE, ("--max-accelerators", "1"), "GB"),
    (OPTIMIZE, ("--plot", "picture.bmp"), ".png"),
    (OPTIMIZE, ("--plot", "absent/picture.png"), "absent"),
    (OPTIMIZE, ("--bugdet", "3"), "bugdet"),
    (EXPLAIN, ("--layout", "tensor=3"), "does not split"),
    (EXPLAIN, ("--layout", "tensor=8,pipeline=3,batch=3"), "even stages"),
    (EXPLAIN, ("--layout", "tensor=8,pipeline=2,batch=1"), "does not fill"),
    (EXPLAIN, ("--layout", "tensor=8,batch=0"), "batch"),
    (EXPLAIN, ("--layout", "tensor=8,batch=1.5"), "batch"),
    (EXPLAIN, ("--layout", "tnesor=8"), "tensor"),
    (EXPLAIN, ("--layout", "tensor=8,draft_tokens=2"), "draft"),
    (EXPLAIN, ("--layout", "tensor=1,batch=1"), "GB"),
    (EXPLAIN, ("--layout", "tensor=8,batch=99999"), "GB"),
]


@pytest.mark.parametrize(("good", "change", "says"), BAD)
def test_bad_input(run, good, change, says):
    code, out, err = run(*good, *change)
    assert code == 2 and says in err and "Traceback" not in err and out == ""


POINTS = "model,accelerator,tensor,batch\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column"),
        (POINTS, "no rows"),
        ("model,accelerator,tensor\na,b,1\n", "'batch'"),
        ("model,accelerator,tensor,batch,colour\na,b,1,1,red\n", "colour"),
        (POINTS + "llama-2-7b,h100-sxm,1\n", "line 2"),
        (POINTS + "llama-2-7b,h100-sxm,1,1,1\n", "line 2"),
        (POINTS + "llama-2-7b,h100-sxm,1,0\n", "line 2"),
        (POINTS + "llama-2-7b,h100-sxm,one,1\n", "line 2"),
        (POINTS + "llama-2-7b,h100-sxm,1,1\nllama-2-7c,h100-sxm,1,1\n", "line 3"),
        (POINTS + "llama-2-7b,h100,1,1\n", "h100"),
        ("model,accelerator,tensor,batch,context\nllama-2-7b,h100-sxm,1,1,long\n", "context"),
    ],
)
def test_bad_points(run, tmp_path, text, says):
    path, out = tmp_path / "points.csv", tmp_path / "out.csv"
    path.write_text(text)
    code, printed, err = run("evaluate", str(path), "--out", str(out))
    assert code == 2 and says in err and printed == "" and not out.exists()


def test_absent_points(run):
    code, _, err = run("evaluate", "absent.csv")
    assert code == 2 and "absent.csv" in err


def test_sparse_layouts_on_the_command_line(run):
    scene = ("--model", "deepseek-v3", "--accelerator", "h100-sxm")
    words = ("explain", *scene, "--layout", "tensor=8,expert=8,data=8,batch=64", "--json")
    plain = json.loads(run(*words)[1])
    assert plain["layout"]["accelerators"] == 64 and plain["layout"]["expert"] == 8
    memory = plain["memory_bytes"]
    assert memory["buffers"] > 0 and memory["draft"] == 0 and plain["step_time_s"]["prompts"] == 0
    mixed = json.loads(run(*words, "--chunk-tokens", "2048", "--overlap", "0.5", "--hit-rate", "0.5")[1])
    assert mixed["step_time_s"]["prompts"] > 0 and mixed["energy"]["joules_per_output_token"] > 0
    prices = mixed["prices_usd_per_million_tokens"]
    assert prices["input"] < prices["blended"] < prices["output"]
    owned = json.loads(run(*words, "--purchase", "30000", "--utilisation", "0.5")[1])
    assert owned["cost_usd_per_million_tokens"] != plain["cost_usd_per_million_tokens"]
    assert list(plain["collectives"]) == ["all_reduce", "dispatch", "combine"]
    text = run(*words[:-1])[1]
    assert "collectives of a step: all-reduce library" in text
    assert "data 8, expert 8" in text and "first token after" in text and "buffers" in text
    measured = ("--speculation", "deepseek-r1-mtp-thinking")
    drafted = "tensor=8,expert=8,data=8,batch=64,draft_tokens=2"
    answer = json.loads(run("explain", *scene, "--layout", drafted, *measured, "--json")[1])
    assert answer["memory_bytes"]["draft"] > 0
    assert answer["speed_tokens_per_s"] > 1.5 * plain["speed_tokens_per_s"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--layout", "data=3,expert=3,batch=3"), "256 experts"),
        (("--layout", "tensor=8", "--purchase", "1", "--price-per-hour", "1"), "--purchase"),
        (("--layout", "tensor=8", "--draft", "llama-3.2-1b", "--speculation", "glm-5.2-mtp"), "--draft"),
        (("--layout", "tensor=8", "--speculation", "nonesuch"), "speculation"),
        (("--layout", "tensor=8", "--hit-rate", "2"), "hit_rate"),
        (("--layout", "tensor=8", "--overlap", "2"), "overlap"),
    ],
)
def test_absurd_sparse_questions(run, words, says):
    code, out, err = run("explain", "--model", "deepseek-v3", "--accelerator", "h100-sxm", *words)
    assert code == 2 and out == "" and says in err and "Traceback" not in err


def test_pools_on_the_command_line(run):
    scene = ("--model", "llama-3.1-70b", "--accelerator", "h100-sxm", "--max-accelerators", "16")
    answer = json.loads(run("pools", *scene, "--budget", "3", "--json")[1])
    assert answer["cost_usd_per_million_tokens"] <= 3
    rates = answer["output_tokens_per_s_and_accelerator"]
    assert rates["of_both_pools"] < rates["of_the_decode_pool"]
    text = run("pools", *scene, "--budget", "3", "--first-token", "0.5")[1]
    assert "replicas for each that decodes" in " ".join(text.split()) and "of both pools" in text
    code, out, err = run("pools", *scene, "--budget", "0.01")
    assert code == 2 and out == "" and "prompts alone cost" in err
