"""Layouts per second of the exact evaluation, warm, and of a whole certified search.

Run: python benchmarks/evaluations.py
"""

import time

import jax
import jax.numpy as jnp

import jaxecon as je
from jaxecon.scenarios import evaluate_layouts


def main() -> None:
    """Print evaluations per second at several widths, and searches per second."""
    model, accelerator = je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm")
    scenario = je.Serving(model, accelerator, je.Workload(4096))
    for width in (128, 4096, 131072):
        batch = 1.0 + jnp.arange(width) % 512
        one = jnp.ones(width)
        layouts = je.Layout(8.0 * one, one, one, one, batch, 0.0 * one)
        jax.block_until_ready(evaluate_layouts(scenario, layouts))
        start, repeats = time.perf_counter(), max(3, 400_000 // width)
        for _ in range(repeats):
            jax.block_until_ready(evaluate_layouts(scenario, layouts))
        rate = repeats * width / (time.perf_counter() - start)
        print(f"{width:7d} layouts a call: {rate / 1e6:8.3f} million layouts/s")
    je.certified_optimum(scenario, 1.5)
    start = time.perf_counter()
    found = je.certified_optimum(scenario, 1.4)
    took = time.perf_counter() - start
    print(f"certified search of {found.space_size:,} layouts: {1e3 * took:.1f} ms warm")


if __name__ == "__main__":
    main()
