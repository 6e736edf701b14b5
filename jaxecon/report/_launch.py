"""Commands that start a server with a layout."""

import shlex


def launch_commands(model: str, tensor: int, pipeline: int, batch: int, context: int) -> dict[str, str]:
    """Commands for vLLM, SGLang and TensorRT-LLM with the layout's degrees and batch.

    `context` is the longest sequence in tokens, `batch` the most concurrent sequences.
    """
    name = shlex.quote(model)
    return {
        "vllm": f"vllm serve {name} --tensor-parallel-size {tensor} --pipeline-parallel-size {pipeline} "
        f"--max-num-seqs {batch} --max-model-len {context}",
        "sglang": f"python -m sglang.launch_server --model-path {name} --tp-size {tensor} "
        f"--pp-size {pipeline} --max-running-requests {batch} --context-length {context}",
        "tensorrt-llm": f"trtllm-serve {name} --tp_size {tensor} --pp_size {pipeline} "
        f"--max_batch_size {batch} --max_seq_len {context}",
    }
