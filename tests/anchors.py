"""Published measurements of decoding: a setting, the seconds per token, how far off is allowed, a source.

Evaluated with the catalogue's efficiencies and latencies, none of which were fitted to these figures.
Tolerances are relative and one per row; they say how well a model of this kind does without fitting.
"""

import jaxecon as je

FAST = "pytorch-labs/gpt-fast README.md @32971d31"
VLLM = "buildkite.com/vllm/performance-benchmark builds 9515, 9523"


def palm():
    """PaLM 540B (Chowdhery et al. 2022, arXiv:2204.02311, table 1): multi-query, parallel halves."""
    layer = je.LayerGroup(
        118.0, je.GroupedQueryAttention(48.0, 1.0, 256.0, 256.0), je.DenseFeedForward(73728.0), parallel=True
    )
    return je.Model(18432.0, 256000.0, (layer,), je.Precision(weight=1.0), tied=True)


def row(model, machine, measured, tolerance, source, context=105, model_options=None, **degrees):
    loaded = model() if callable(model) else je.load_model(model, **(model_options or {}))
    accelerator = je.load_accelerator(machine, price_per_hour=1.0)
    layout = je.Layout(**{k: float(v) for k, v in degrees.items()})
    return loaded, accelerator, float(context), layout, measured, tolerance, source


INT8 = {"weight_bits": 8.25, "compute_bits": 16}
INT4 = {"weight_bits": 4.5, "compute_bits": 16}


def rows():
    a100, h200 = "a100-sxm-80gb", "h200-sxm"
    return {
        "PaLM 540B, 64 TPU v4, int8, batch 64": row(
            palm, "tpu-v4", 29e-3, 0.3, "Pope et al. 2022, arXiv:2211.05102", 2048, tensor=64, batch=64
        ),
        "DeepSeek-V3, 18 H800 nodes, 14,800 tokens/s a node": row(
            "deepseek-v3",
            "h800-sxm",
            96 * 8 / 14.8e3,
            0.3,
            "open-infra-index day 6 @56d86855",
            4989,
            data=144,
            expert=144,
            batch=144 * 96,
        ),
        "DeepSeek-V3, 72 H100, batch 256 each": row(
            "deepseek-v3",
            "h100-sxm",
            91.797e-3,
            0.3,
            "lm-sys blog 2025-05-05 @2db4e404",
            2050,
            data=72,
            expert=72,
            batch=18432,
        ),
        "Llama-2-70B, A100, int8": row("llama-2-70b", a100, 52.27e-3, 0.3, FAST, model_options=INT8),
        "Llama-2-70B, A100, int4": row("llama-2-70b", a100, 39.60e-3, 0.4, FAST, model_options=INT4),
        "Llama-2-70B, 2 A100": row("llama-2-70b", a100, 46.90e-3, 0.3, FAST, tensor=2),
        "Llama-2-70B, 8 A100": row("llama-2-70b", a100, 16.0e-3, 0.3, FAST, tensor=8),
        "Llama-2-70B, 8 A100, int8": row(
            "llama-2-70b", a100, 12.43e-3, 0.3, FAST, model_options=INT8, tensor=8
        ),
        "Llama-2-7B, A100": row("llama-2-7b", a100, 9.53e-3, 0.3, FAST),
        "Llama-2-7B, A100, int8": row("llama-2-7b", a100, 6.43e-3, 0.3, FAST, model_options=INT8),
        "Llama-2-7B, 2 A100": row("llama-2-7b", a100, 5.92e-3, 0.3, FAST, tensor=2),
        "Llama-3.1-70B, A100, int8": row("llama-3.1-70b", a100, 55.43e-3, 0.3, FAST, model_options=INT8),
        "Llama-3.1-70B, 8 A100": row("llama-3.1-70b", a100, 17.01e-3, 0.3, FAST, tensor=8),
        "Llama-3-70B, 4 A100, batch 8": row("llama-3-70b", a100, 31.17e-3, 0.3, VLLM, 96, tensor=4, batch=8),
        "Llama-3-70B, 4 H200, batch 8": row("llama-3-70b", h200, 16.23e-3, 0.3, VLLM, 96, tensor=4, batch=8),
    }
