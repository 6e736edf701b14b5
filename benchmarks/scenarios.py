"""Random scenarios from the catalogue, with budgets over their whole feasible range.

`draw(seed)` is deterministic. Models, accelerators, prices, precisions, contexts, drafts and demands
vary; the budget is log-uniform between the cheapest layout's cost and the fastest layout's.
"""

from collections.abc import Iterator

import jax
import numpy as np

import jaxecon as je

MODELS = tuple(
    "codellama-34b gemma-7b-it granite-3.1-2b llama-2-13b llama-2-70b llama-3.1-405b llama-3.1-70b "
    "llama-3.1-8b llama-3.2-1b mistral-large-2407 nemotron-4-340b olmo-2-0325-32b qwen1.5-72b "
    "qwen2.5-14b qwen2.5-72b qwen3-14b qwen3-4b qwen3-32b-fp8 gemma-3-27b-it falcon-40b".split()
)
ACCELERATORS = tuple(
    "a100-sxm-80gb b200-sxm gb200-nvl72 gh200 h100-pcie h100-sxm h20 h200-sxm l40s mi300x mi355x "
    "tpu-v5p v100-sxm2-32gb".split()
)
SPARSE = tuple(
    "deepseek-v3 gpt-oss-120b glm-4.5-air kimi-k2.5 mixtral-8x7b-v0.1 qwen3-235b-a22b qwen3-30b-a3b "
    "qwen3-next-80b-a3b deepseek-moe-16b dbrx".split()
)
MAX_ACCELERATORS = 256


def draw(seed: int, sparse: bool = False) -> tuple[je.Serving, float]:
    """A scenario and a budget; drawn again until the model fits somewhere.

    With `sparse` the model has routed experts, often latent or linear attention; a fifth of them
    draft with a prediction head of their own.
    """
    rng = np.random.default_rng(seed)
    while True:
        scenario = _sparse(rng) if sparse else _scenario(rng)
        options = {"max_accelerators": MAX_ACCELERATORS}
        try:
            cheapest = je.cheapest_at_speed(scenario, 1e-9, **options).cost
            fastest = je.certified_optimum(scenario, 1e12, **options).cost
        except je.InfeasibleError:
            continue
        low, high = np.log(cheapest), np.log(max(fastest, cheapest))
        return scenario, float(np.exp(low + (high - low) * rng.uniform()) * (1 + 1e-12))


def grouped(count: int, first: int, sparse: bool = False) -> Iterator[tuple[int, je.Serving, float]]:
    """(seed, scenario, budget) of all seeds, those of one structure together: their programs are shared;
    the commonest structures first.

    Programs of a structure that is done with are dropped, since each takes address space.
    """
    found: dict = {}
    for seed in range(first, first + count):
        scenario, budget = draw(seed, sparse)
        found.setdefault(jax.tree.structure(scenario), []).append((seed, scenario, budget))
        if seed % 100 == 99:
            jax.clear_caches()
    for group in sorted(found.values(), key=len, reverse=True):
        jax.clear_caches()
        yield from group


def _scenario(rng: np.random.Generator) -> je.Serving:
    bits = {"weight_bits": float(rng.choice([16, 8])), "kv_bits": float(rng.choice([16, 8]))}
    model = je.load_model(str(rng.choice(MODELS)), **bits)
    price = float(np.exp(rng.uniform(np.log(0.5), np.log(8.0))))
    accelerator = je.load_accelerator(str(rng.choice(ACCELERATORS)), price_per_hour=price)
    context = float(round(10 ** rng.uniform(1, 5)))
    demand = float(10 ** rng.uniform(2, 5)) if rng.random() < 0.2 else 1e12
    speculation = None
    if rng.random() < 0.3:
        acceptance = float(rng.uniform(0.3, 0.95))
        speculation = je.Speculation(je.load_model("llama-3.2-1b", **bits), acceptance, 8)
    workload = je.Workload(context, float(rng.integers(1, 2000)), demand)
    return je.Serving(model, accelerator, workload, speculation=speculation)


def _sparse(rng: np.random.Generator) -> je.Serving:
    model = je.load_model(str(rng.choice(SPARSE)), kv_bits=float(rng.choice([16, 8])))
    price = float(np.exp(rng.uniform(np.log(0.5), np.log(8.0))))
    machine = str(rng.choice([a for a in ACCELERATORS if not a.startswith("v100")]))
    accelerator = je.load_accelerator(machine, price_per_hour=price)
    speculation = None
    if rng.random() < 0.2:
        speculation = je.Speculation(je.prediction_head(model), float(rng.uniform(0.3, 0.95)), 4)
    work = je.Workload(float(round(10 ** rng.uniform(1, 5))), float(rng.integers(1, 2000)))
    imbalance = float(rng.choice([1.0, 1.3]))
    return je.Serving(model, accelerator, work, speculation=speculation, expert_imbalance=imbalance)
