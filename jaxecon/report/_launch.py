"""Commands that start a server with a layout."""

import json
import math
import shlex

from ..scenarios import Serving
from ..specs import Layout, Model

_HUB = "https://huggingface.co/"


def launch_commands(scenario: Serving, layout: Layout, name: str) -> dict[str, str]:
    """Commands for vLLM, SGLang and TensorRT-LLM with the layout's degrees and batch.

    The longest sequence is the full context, the most concurrent sequences the batch, and the
    engine's share of memory what the reserve leaves. `name` is used where the model's source
    is not on the Hugging Face hub.
    """
    tensor, stages = int(layout.tensor), int(layout.pipeline)
    batch, draft = int(layout.batch), int(layout.draft_tokens)
    longest = math.ceil(float(scenario.workload.full_context))
    share = f"{1.0 - float(scenario.reserve):g}"
    model = shlex.quote(repository(scenario.model, name))
    vllm = [
        f"vllm serve {model} --tensor-parallel-size {tensor} --pipeline-parallel-size {stages}",
        f"--max-num-seqs {batch} --max-model-len {longest} --gpu-memory-utilization {share}",
    ]
    sglang = [
        f"python -m sglang.launch_server --model-path {model} --tp-size {tensor} --pp-size {stages}",
        f"--max-running-requests {batch} --context-length {longest} --mem-fraction-static {share}",
    ]
    tensorrt = [
        f"trtllm-serve {model} --tp_size {tensor} --pp_size {stages} --max_batch_size {batch}",
        f"--max_seq_len {longest} --kv_cache_free_gpu_memory_fraction {share}",
    ]
    if float(scenario.model.precision.kv) == 1.0:
        vllm.append("--kv-cache-dtype fp8")
        sglang.append("--kv-cache-dtype fp8_e4m3")
    nodes = math.ceil(tensor * stages / int(scenario.accelerator.network.domain_size))
    if nodes > 1:
        vllm.append("--distributed-executor-backend ray")
        sglang.append(f"--nnodes {nodes} --node-rank $RANK --dist-init-addr $HEAD:5000")
    if draft and scenario.speculation is not None:
        small = repository(scenario.speculation.draft, str(scenario.speculation.draft.name))
        choice = json.dumps({"model": small, "num_speculative_tokens": draft})
        vllm.append(f"--speculative-config {shlex.quote(choice)}")
        sglang.append("--speculative-algorithm STANDALONE")
        sglang.append(f"--speculative-draft-model-path {shlex.quote(small)}")
        sglang.append(f"--speculative-num-steps {draft}")
    commands = {"vllm": vllm, "sglang": sglang, "tensorrt-llm": tensorrt}
    return {engine: " ".join(words) for engine, words in commands.items()}


def repository(model: Model, name: str) -> str:
    """The name under which engines find a model."""
    words = model.source.split()
    return words[0].removeprefix(_HUB) if words and words[0].startswith(_HUB) else name
