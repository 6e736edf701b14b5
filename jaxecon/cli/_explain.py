"""What `jaxecon explain` answers: one layout, whether it is legal, its time and memory."""

from typing import Any

import jax
import numpy as np

from .._errors import InfeasibleError, InputError, nearest
from ..cost._serving_network import taken_names
from ..report._launch import launch_commands
from ..scenarios import Serving, account, inspect_layouts, why_illegal
from ..specs import Layout, Site

DEGREES = ("tensor", "pipeline", "expert", "data", "batch", "draft_tokens")


def layout_of(text: str) -> Layout:
    """A layout from words such as "tensor=8,pipeline=2,batch=32".

    Raises:
        InputError: naming the part that cannot be read.
    """
    chosen: dict[str, float] = {}
    for part in text.replace(" ", "").split(","):
        key, _, value = part.partition("=")
        if key not in DEGREES:
            raise InputError(f"'{part}' in the layout is not known; {nearest(key, DEGREES)}")
        chosen[key] = whole(key, value)
    return Layout(**chosen)


def whole(key: str, value: str) -> float:
    """A whole number of at least 1 (0 for drafted tokens).

    Raises:
        InputError: naming the key and the value.
    """
    least = 0 if key == "draft_tokens" else 1
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise InputError(f"'{key}' must be a whole number of at least {least}, got {value!r}")
    return float(number)


def explain(scenario: Serving, layout: Layout, name: str, site: Site | None = None) -> dict[str, Any]:
    """Speed, cost, step time, ledger and launch commands of one layout.

    Raises:
        InputError: where engines reject the layout.
        InfeasibleError: where it does not fit in memory.
    """
    reason = why_illegal(scenario, layout)
    if reason is not None:
        raise InputError(f"no engine accepts this layout: {reason}")
    ledger = inspect_layouts(scenario, layout).ledger
    if float(ledger.margin) < 0:
        raise InfeasibleError(
            f"this layout needs {float(ledger.used) / 1e9:.4g} GB per accelerator, which has "
            f"{float(ledger.capacity) / 1e9:.4g} GB"
        )
    return described(scenario, layout, name, site)


def described(scenario: Serving, layout: Layout, name: str, site: Site | None = None) -> dict[str, Any]:
    """The figures of a layout that is known to be legal and to fit."""
    seen = inspect_layouts(scenario, layout)
    # On NumPy leaves, so that reading figures compiles nothing.
    time, ledger, plain = seen.time, seen.ledger, jax.tree.map(np.asarray, layout)
    degrees = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
    parts = ("arithmetic", "memory", "network_bandwidth", "network_latency", "launch", "prompts", "total")
    uses = ("weights", "kv_cache", "draft", "activations", "buffers", "reserve", "capacity")
    return {
        "speed_tokens_per_s": float(seen.speed),
        "cost_usd_per_million_tokens": float(seen.cost),
        "layout": {k: int(getattr(plain, k)) for k in degrees},
        "step_time_s": {k: float(getattr(time, k)) for k in parts},
        "collectives": taken_names(seen.collectives or {}, scenario.accelerator.network),
        "memory_bytes": {k: float(getattr(ledger, k)) for k in uses},
        **account(scenario, layout, site),
        "launch": launch_commands(scenario, layout, name),
    }
