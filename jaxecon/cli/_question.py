"""From options to a scenario, with warnings on standard error."""

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
import typer
from rich.console import Console

from .._errors import InputError
from ..calibration import load_accelerator
from ..scenarios import Serving
from ..specs import (
    Model,
    Ownership,
    Site,
    Speculation,
    Workload,
    load_model,
    load_speculation,
)
from ._cache import one_question


def question(
    model: str,
    accelerator: str,
    *,
    context: float,
    output: float,
    demand: float | None = None,
    weight_bits: float | None = None,
    kv_bits: float | None = None,
    price_per_hour: float | None = None,
    draft: str | None = None,
    acceptance: float = 0.7,
    max_draft_tokens: int = 8,
    reserve: float = 0.1,
    engine: str | None = None,
    speculation: str | None = None,
    prompt: float | None = None,
    hit_rate: float = 0.0,
    chunk_tokens: float | None = None,
    overlap: float = 0.0,
    expert_imbalance: float = 1.0,
    engine_overhead_s: float | None = None,
    dispatch_bits: float | None = None,
    purchase: float | None = None,
    life_years: float = 4.0,
    utilisation: float = 0.7,
    power_price: float = 0.08,
    pue: float = 1.25,
) -> Serving:
    """A `Serving` scenario from what was typed.

    Raises:
        InputError: where a name, number or file cannot be used.
    """
    one_question()
    bits = {"weight_bits": weight_bits, "kv_bits": kv_bits}
    target = load_model(model, **bits, dispatch_bits=dispatch_bits)
    workload = Workload(context, output, demand, prompt, hit_rate)
    # On NumPy leaves, so that reading a question compiles nothing.
    warn_of_context(target, float(jax.tree.map(np.asarray, workload).full_context))
    drafting = None
    if speculation is not None:
        if draft is not None:
            raise InputError("--draft and --speculation both say what drafts; give one of them")
        drafting = load_speculation(speculation, target)
    elif draft is not None:
        drafting = Speculation(load_model(draft, **bits), acceptance, max_draft_tokens)
    if purchase is None:
        hardware = load_accelerator(accelerator, price_per_hour=price_per_hour, engine=engine)
    elif price_per_hour is not None:
        raise InputError("--purchase and --price-per-hour both set the price; give one of them")
    else:
        owner = Ownership(purchase, life_years, utilisation, power_price)
        hardware = owner.owned(load_accelerator(accelerator, price_per_hour=1.0, engine=engine), Site(pue))
    return Serving(
        target,
        hardware,
        workload,
        speculation=drafting,
        reserve=reserve,
        chunk_tokens=chunk_tokens,
        overlap=overlap,
        expert_imbalance=expert_imbalance,
        **({} if engine_overhead_s is None else {"engine_overhead": engine_overhead_s}),
    )


def site_of(pue: float, grid_intensity: float) -> Site:
    """The site from what was typed.

    Raises:
        InputError: where a number is out of range.
    """
    return Site(pue, grid_intensity)


def warn_of_context(model: Model, full: float) -> None:
    """Say on standard error that sequences grow beyond what the model is made for."""
    longest = model.max_context
    if longest is not None and full > float(longest):
        typer.echo(
            f"warning: sequences reach {full:g} tokens, beyond the {int(longest)} that "
            f"'{model.name}' is made for",
            err=True,
        )


def working(what: str) -> AbstractContextManager[Any]:
    """A progress line on standard error, where that is a terminal."""
    return Console(stderr=True).status(what)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as CSV with a header line."""
    if not rows:
        raise InputError("there are no rows to write")
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")
