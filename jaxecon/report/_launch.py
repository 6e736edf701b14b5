"""Commands that start a server with a layout."""

import json
import math
import shlex

import jax
import numpy as np

from ..scenarios import Serving
from ..specs import Layout, Model

_HUB = "https://huggingface.co/"


def launch_commands(scenario: Serving, layout: Layout, name: str) -> dict[str, str]:
    """Commands for those of vLLM, SGLang and TensorRT-LLM that take the layout's degrees.

    The longest sequence is the full context, the most concurrent sequences the batch (of one data
    rank where the engine counts so), and the engine's share of memory what the reserve leaves. vLLM
    splits experts over all ranks of a stage or over none; TensorRT-LLM has data-parallel attention
    on all ranks or on none. `name` is used where the model's source is not on the Hugging Face hub.
    """
    degrees = (layout.tensor, layout.data, layout.expert, layout.pipeline)
    tensor, data, expert, stages = (int(x) for x in degrees)
    stage, batch = tensor * data, int(layout.batch)
    each = math.ceil(batch / data)
    longest = math.ceil(float(jax.tree.map(np.asarray, scenario.workload).full_context))
    share = f"{1.0 - float(scenario.reserve):g}"
    model = shlex.quote(repository(scenario.model, name))
    vllm = [
        f"vllm serve {model} --tensor-parallel-size {tensor} --pipeline-parallel-size {stages}",
        f"--max-num-seqs {each} --max-model-len {longest} --gpu-memory-utilization {share}",
    ]
    sglang = [
        f"python -m sglang.launch_server --model-path {model} --tp-size {stage} --pp-size {stages}",
        f"--max-running-requests {batch} --context-length {longest} --mem-fraction-static {share}",
    ]
    tensorrt = [
        f"trtllm-serve {model} --tp_size {stage} --pp_size {stages} --max_batch_size {each}",
        f"--max_seq_len {longest} --kv_cache_free_gpu_memory_fraction {share}",
    ]
    if data > 1:
        vllm.append(f"--data-parallel-size {data}")
        sglang.append(f"--dp-size {data} --enable-dp-attention")
        tensorrt.append("--extra_llm_api_options <(echo 'enable_attention_dp: true')")
    if expert > 1:
        vllm.append("--enable-expert-parallel")
        sglang.append(f"--ep-size {expert}")
        tensorrt.append(f"--ep_size {expert}")
    if float(scenario.model.precision.kv) == 1.0:
        vllm.append("--kv-cache-dtype fp8")
        sglang.append("--kv-cache-dtype fp8_e4m3")
    if scenario.chunk_tokens is not None:
        chunk = int(scenario.chunk_tokens)
        vllm.append(f"--enable-chunked-prefill --max-num-batched-tokens {chunk + each}")
        sglang.append(f"--chunked-prefill-size {chunk}")
        tensorrt.append(f"--max_num_tokens {chunk + each}")
    nodes = math.ceil(stage * stages / int(scenario.accelerator.network.domain_size))
    if nodes > 1:
        vllm.append("--distributed-executor-backend ray")
        sglang.append(f"--nnodes {nodes} --node-rank $RANK --dist-init-addr $HEAD:5000")
    commands = {"sglang": sglang}
    if expert in (1, stage):
        commands = {"vllm": vllm} | commands
    if data in (1, stage):
        commands |= {"tensorrt-llm": tensorrt}
    _add_drafting(commands, scenario, int(layout.draft_tokens))
    return {engine: " ".join(words) for engine, words in commands.items()}


def _add_drafting(commands: dict[str, list[str]], scenario: Serving, draft: int) -> None:
    """Options for a draft model, or for the model's own prediction head."""
    if not draft or scenario.speculation is None:
        return
    head = scenario.speculation.draft
    if head.borrowed:
        choice = json.dumps({"method": "mtp", "num_speculative_tokens": draft})
        sglang = f"--speculative-algorithm NEXTN --speculative-num-steps {draft}"
    else:
        small = repository(head, str(head.name))
        choice = json.dumps({"model": small, "num_speculative_tokens": draft})
        sglang = f"--speculative-algorithm STANDALONE --speculative-draft-model-path {shlex.quote(small)} "
        sglang += f"--speculative-num-steps {draft}"
    if "vllm" in commands:
        commands["vllm"].append(f"--speculative-config {shlex.quote(choice)}")
    commands["sglang"].append(sglang)


def repository(model: Model, name: str) -> str:
    """The name under which engines find a model."""
    words = model.source.split()
    return words[0].removeprefix(_HUB) if words and words[0].startswith(_HUB) else name
