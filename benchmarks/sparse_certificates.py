"""How long a certificate takes for models with routed experts, over all degrees up to 256 accelerators.

Run: python benchmarks/sparse_certificates.py
Prints the legal layouts that fit, those examined, and seconds: cold (compilation included) and warm.
"""

import time

import jaxecon as je

QUESTIONS = (
    ("deepseek-v3", "h100-sxm", 0.5, None),
    ("deepseek-v3", "gb200-nvl72", 1.0, None),
    ("deepseek-v3", "h200-sxm", 1.0, "deepseek-r1-mtp-thinking"),
    ("kimi-k2.5", "b200-sxm", 1.0, None),
    ("qwen3-235b-a22b", "h200-sxm", 1.0, None),
    ("gpt-oss-120b", "h100-sxm", 0.3, None),
)


def main() -> None:
    """Print one line per question."""
    for name, machine, budget, setting in QUESTIONS:
        model = je.load_model(name)
        speculation = None if setting is None else je.load_speculation(setting, model)
        accelerator = je.load_accelerator(machine, price_per_hour=2.0)
        scenario = je.Serving(model, accelerator, je.Workload(4096.0), speculation=speculation)
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            found = je.certified_optimum(scenario, budget, max_accelerators=256)
            seconds.append(time.perf_counter() - began)
        degrees = ("tensor", "data", "expert", "pipeline", "batch", "draft_tokens")
        layout = ", ".join(f"{k} {int(getattr(found.layout, k))}" for k in degrees)
        print(
            f"{name} on {machine} at ${budget:g}: {found.speed:.1f} tokens/s with {layout}; "
            f"{found.space_size:,} layouts, {found.examined:,} examined, gap {found.gap:g}; "
            f"{seconds[0]:.1f} s cold, {seconds[1]:.2f} s warm",
            flush=True,
        )


if __name__ == "__main__":
    main()
