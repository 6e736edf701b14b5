"""Commands name every degree of a layout, for the engines that take it."""

import pytest

import jaxecon as je
from jaxecon.report._launch import launch_commands


def commands(model="deepseek-v3", options=None, **degrees):
    accelerator = je.load_accelerator("h100-sxm")
    scenario = je.Serving(je.load_model(model), accelerator, je.Workload(1000, 100), **(options or {}))
    return launch_commands(scenario, je.Layout(**{k: float(v) for k, v in degrees.items()}), model)


def test_dense_degrees():
    found = commands("llama-3.1-70b", tensor=4, pipeline=2, batch=16)
    assert set(found) == {"vllm", "sglang", "tensorrt-llm"}
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2" in found["vllm"]
    assert all("expert" not in words and "data-parallel" not in words for words in found.values())


def test_experts_over_all_ranks():
    found = commands(data=32, expert=32, batch=640)
    assert "--data-parallel-size 32 --enable-expert-parallel" in found["vllm"]
    assert "--max-num-seqs 20 " in found["vllm"] and "--max-running-requests 640" in found["sglang"]
    assert "--tp-size 32" in found["sglang"] and "--dp-size 32 --enable-dp-attention" in found["sglang"]
    assert "--ep-size 32" in found["sglang"] and "--nnodes 4" in found["sglang"]
    assert "--tp_size 32" in found["tensorrt-llm"] and "enable_attention_dp" in found["tensorrt-llm"]


@pytest.mark.parametrize(
    ("degrees", "engines"),
    [
        ({"data": 8, "expert": 4}, {"sglang", "tensorrt-llm"}),
        ({"tensor": 2, "data": 8, "expert": 16}, {"vllm", "sglang"}),
        ({"tensor": 2, "data": 8, "expert": 8}, {"sglang"}),
    ],
)
def test_engines_that_refuse_a_layout_are_left_out(degrees, engines):
    assert set(commands(batch=64, **degrees)) == engines


def test_drafting_and_chunks():
    model = je.load_model("deepseek-v3")
    head = je.Speculation(je.prediction_head(model), 0.8, max_draft_tokens=3)
    options = {"speculation": head, "chunk_tokens": 2048.0}
    found = commands(options=options, tensor=8, batch=8, draft_tokens=2)
    assert '"method": "mtp", "num_speculative_tokens": 2' in found["vllm"]
    assert "--max-num-batched-tokens 2056" in found["vllm"] and "NEXTN" in found["sglang"]
    small = je.Speculation(je.load_model("llama-3.2-1b"), 0.8)
    found = commands(options={"speculation": small}, tensor=8, batch=8, draft_tokens=2)
    assert "Llama-3.2-1B" in found["vllm"] and "STANDALONE" in found["sglang"]
