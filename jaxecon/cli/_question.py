"""From options to a scenario, with warnings on standard error."""

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import typer
from rich.console import Console

from .._errors import InputError
from ..calibration import load_accelerator
from ..scenarios import Serving
from ..specs import Model, Speculation, Workload, load_model


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
) -> Serving:
    """A `Serving` scenario from what was typed.

    Raises:
        InputError: where a name, number or file cannot be used.
    """
    target = load_model(model, weight_bits=weight_bits, kv_bits=kv_bits)
    workload = Workload(context=context, output=output, demand=demand)
    warn_of_context(target, float(workload.full_context))
    speculation = None
    if draft is not None:
        small = load_model(draft, weight_bits=weight_bits, kv_bits=kv_bits)
        speculation = Speculation(small, acceptance, max_draft_tokens)
    hardware = load_accelerator(accelerator, price_per_hour=price_per_hour, engine=engine)
    return Serving(target, hardware, workload, speculation=speculation, reserve=reserve)


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
