"""What `jaxecon evaluate` does: many layouts at once, CSV to CSV."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import InputError, nearest
from ..scenarios import Serving, evaluate_layouts
from ..specs import Layout
from ._explain import DEGREES, whole
from ._question import question

_TEXT = ("model", "accelerator")
_NUMBERS = {"context": 4096.0, "output": 512.0}
_OPTIONAL = ("weight_bits", "kv_bits", "price_per_hour")
COLUMNS = (*_TEXT, *_NUMBERS, *_OPTIONAL, *DEGREES)
FIGURES = (
    "speed_tokens_per_s",
    "cost_usd_per_million_tokens",
    "step_time_s",
    "free_memory_bytes",
    "fits",
)


def evaluate_file(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with the figures of each layout beside them.

    Raises:
        InputError: naming the line and column, where a row cannot be used.
    """
    rows = _read(path)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[tuple(row.get(k, "") for k in COLUMNS[: -len(DEGREES)])].append(i)
    for key, members in groups.items():
        try:
            scenario = _scenario(dict(zip(COLUMNS, key, strict=False)))
        except InputError as error:
            raise InputError(f"line {members[0] + 2} of '{path}': {error}") from error
        degrees = [_degrees(rows[i], i + 2, path) for i in members]
        for i, figures in zip(members, _figures(scenario, degrees), strict=True):
            rows[i] |= figures
    return rows


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            rows: list[dict[str, Any]] = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read '{path}': {error}") from error
    for name in names:
        if name not in COLUMNS:
            raise InputError(f"'{path}' has an unknown column '{name}'; {nearest(name, COLUMNS)}")
    for name in (*_TEXT, "tensor", "batch"):
        if name not in names:
            raise InputError(f"'{path}' has no column '{name}'")
    if not rows:
        raise InputError(f"'{path}' has no rows")
    for i, row in enumerate(rows):
        if None in row or any(v is None for v in row.values()):
            raise InputError(f"line {i + 2} of '{path}' has not {len(names)} fields")
    return rows


def _scenario(row: dict[str, str]) -> Serving:
    def number(key: str, default: float | None) -> float | None:
        text = row.get(key, "").strip()
        try:
            return float(text) if text else default
        except ValueError:
            raise InputError(f"'{key}' must be a number, got {text!r}") from None

    numbers = {k: number(k, v) for k, v in _NUMBERS.items()}
    optional = {k: number(k, None) for k in _OPTIONAL}
    return question(row["model"], row["accelerator"], **numbers, **optional)


def _degrees(row: dict[str, str], line: int, path: Path) -> list[float]:
    defaults = {"pipeline": "1", "expert": "1", "data": "1", "draft_tokens": "0"}
    try:
        return [whole(k, row.get(k, "").strip() or defaults.get(k, "")) for k in DEGREES]
    except InputError as error:
        raise InputError(f"line {line} of '{path}': {error}") from error


def _figures(scenario: Serving, degrees: list[list[float]]) -> list[dict[str, Any]]:
    count = len(degrees)
    size = max(8, 1 << (count - 1).bit_length())
    table = np.asarray(degrees)[np.minimum(np.arange(size), count - 1)]
    degrees_ = dict(zip(DEGREES, (jnp.asarray(c) for c in table.T), strict=True))
    speed, cost, total, margin = evaluate_layouts(scenario, Layout(**degrees_))
    columns = [np.asarray(x)[:count].tolist() for x in (speed, cost, total, margin)]
    return [
        dict(zip(FIGURES, (*values, values[-1] >= 0), strict=True)) for values in zip(*columns, strict=True)
    ]
