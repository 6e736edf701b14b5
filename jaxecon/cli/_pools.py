"""What `jaxecon pools` answers: prompts on one pool of replicas, decoding on another."""

from typing import Any

from rich.console import Console

from ..optimum import audit, disaggregated_optimum
from ..scenarios import Serving
from ._explain import described
from ._optimize import across

_DEGREES = ("accelerators", "tensor", "pipeline", "expert", "data")


def pooled(
    scenario: Serving, name: str, budget: float, first_token: float, max_accelerators: int
) -> dict[str, Any]:
    """The best decode layout and the cheapest prefill layout within a budget for both; audited."""
    found = disaggregated_optimum(
        scenario, budget, first_token=first_token, max_accelerators=max_accelerators
    )
    audit(scenario, found.decode)
    both = found.pools
    return {
        "cost_usd_per_million_tokens": found.cost,
        "decode": described(scenario, found.decode.layout, name),
        "prefill": {k: int(getattr(found.prefill, k)) for k in _DEGREES},
        "prefill_replicas_per_decode_replica": float(both.ratio),
        "time_to_first_token_s": float(both.time_to_first_token),
        "transfer_s": float(both.transfer),
        "output_tokens_per_s_and_accelerator": {
            "of_the_decode_pool": float(both.per_decode_accelerator),
            "of_both_pools": float(both.per_accelerator),
        },
        "input_tokens_per_s_and_accelerator_of_the_prefill_pool": float(both.per_prefill_accelerator),
        "prices_usd_per_million_tokens": {
            k: float(getattr(both.prices, k)) for k in ("input", "output", "blended")
        },
    }


def show_pools(result: dict[str, Any], model: str, accelerator: str) -> None:
    """Print both pools in words."""
    decode, prefill = result["decode"], result["prefill"]
    rate = result["output_tokens_per_s_and_accelerator"]
    price = result["prices_usd_per_million_tokens"]
    place = decode["layout"]
    lines = [
        f"[bold]{model}[/] on pools of {accelerator}: [bold]{decode['speed_tokens_per_s']:.1f} tokens/s[/] "
        f"per request at [bold]${result['cost_usd_per_million_tokens']:.3f}[/] per million output tokens, "
        "prompts included",
        f"decoding: {place['accelerators']} accelerators a replica, {across(place, 'd')}, pipeline "
        f"{place['pipeline']}, batch {place['batch']}",
        f"prompts: {prefill['accelerators']} accelerators a replica, {across(prefill, 'd')}, pipeline "
        f"{prefill['pipeline']}; {result['prefill_replicas_per_decode_replica']:.3g} replicas for each "
        "that decodes",
        f"first token after {result['time_to_first_token_s']:.3g} s, of which moving the cache "
        f"{result['transfer_s']:.3g} s",
        f"output tokens/s per accelerator: {rate['of_the_decode_pool']:.4g} of the decode pool, "
        f"{rate['of_both_pools']:.4g} of both pools",
        f"per million tokens ${price['input']:.3g} in, ${price['output']:.3g} out, "
        f"${price['blended']:.3g} blended",
    ]
    for line in lines:
        Console().print(line, soft_wrap=True, highlight=False)
