"""The TOML file of a sweep, checked.

    outputs = ["certified"]             # also "relaxed", "elasticities"
    budget = [0.5, 1.0, 2.0]            # US dollars per million output tokens; any form of an axis

    [scenario]                          # each a value or a list; lists are crossed
    model = ["llama-3.1-8b", "llama-3.1-70b"]
    accelerator = "h100-sxm"
    context = 4096

    [axes]                              # leaves of a scenario, by their key paths
    "accelerator.hbm_bandwidth" = ["x0.5", "x1", "x2"]
    "workload.context" = { low = 1000, high = 100000, points = 5, scale = "log" }

    [sample]                            # ranges are sampled instead of divided into points
    method = "sobol"
    count = 4096

A number is a value; a text such as "x2" is a factor on the scenario's own value.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .._errors import InputError, nearest
from ..specs._catalogue import read_mapping

OUTPUTS = ("certified", "relaxed", "elasticities")
SCENARIO = (
    "cost_model model accelerator context output demand weight_bits kv_bits price_per_hour draft "
    "acceptance max_draft_tokens reserve revision"
).split()
_TEXTS = ("cost_model", "model", "accelerator", "draft", "revision")
_TOP = (
    "outputs elasticities budget scenario axes sample seed max_accelerators max_batch rows_per_chunk"
).split()
_RANGE = ("low", "high", "points", "scale")
_MOST_ROWS = 10**9


class Value(NamedTuple):
    """A number, or a factor on the scenario's own number."""

    number: float
    relative: bool


class Axis(NamedTuple):
    """The values of one leaf or of the budget: a list, or a range to be sampled."""

    name: str
    values: tuple[Value, ...]
    """Of a list, or the two ends of a range."""
    sampled: bool
    log: bool


class SweepConfig(NamedTuple):
    """A sweep as its file states it."""

    scenario: dict[str, tuple[Any, ...]]
    axes: tuple[Axis, ...]
    outputs: tuple[str, ...]
    elasticities: tuple[str, ...] | None
    """Leaves whose elasticities are wanted; None for those that are swept."""
    samples: int | None
    """Points of a Sobol sequence; None for a grid."""
    seed: int
    max_accelerators: int
    max_batch: int
    rows_per_chunk: int
    text: str
    """The same as canonical JSON, for the hash."""


def read_config(path: Path) -> SweepConfig:
    """A sweep from its file.

    Raises:
        InputError: naming the key, where the file cannot be used.
    """
    table = read_mapping(path)
    try:
        return parse_config(table)
    except InputError as error:
        raise InputError(f"'{path}': {error}") from error


def parse_config(table: Mapping[str, Any]) -> SweepConfig:
    """A sweep from its parsed TOML.

    Raises:
        InputError: naming the key, where it cannot be used.
    """
    _known(table, "the sweep", _TOP)
    samples, seed = _sample(table)
    axes = dict(_table(table, "axes"))
    if "budget" in axes:
        raise InputError("'budget' belongs at the top of the file, not into [axes]")
    if "budget" not in table:
        raise InputError("no 'budget': give US dollars per million output tokens, such as budget = 1.5")
    axes["budget"] = table["budget"]
    return SweepConfig(
        scenario=_scenario(_table(table, "scenario")),
        axes=tuple(_axis(name, given, samples is not None) for name, given in axes.items()),
        outputs=_outputs(table.get("outputs", ["certified"])),
        elasticities=_elasticities(table),
        samples=samples,
        seed=seed,
        max_accelerators=_whole(table, "max_accelerators", 1024, 1),
        max_batch=_whole(table, "max_batch", 65536, 1),
        rows_per_chunk=_whole(table, "rows_per_chunk", 8192, 1),
        text=json.dumps(table, sort_keys=True, separators=(",", ":"), default=str),
    )


def _scenario(table: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    _known(table, "[scenario]", SCENARIO)
    for key in ("model", "accelerator"):
        if key not in table:
            raise InputError(f"[scenario] has no '{key}'")
    lists = {}
    for key, given in table.items():
        values = tuple(given) if isinstance(given, list) else (given,)
        if not values:
            raise InputError(f"[scenario]: '{key}' is an empty list")
        for value in values:
            if key in _TEXTS and not isinstance(value, str):
                raise InputError(f"[scenario]: '{key}' must be a text, got {value!r}")
            if key not in _TEXTS and not _is_number(value):
                raise InputError(f"[scenario]: '{key}' must be a number, got {value!r}")
        if len(set(values)) < len(values):
            raise InputError(f"[scenario]: '{key}' lists a value twice")
        lists[key] = values
    return lists


def _axis(name: str, given: Any, sampling: bool) -> Axis:
    if isinstance(given, Mapping):
        return _range(name, given, sampling)
    values = tuple(_value(name, v) for v in (given if isinstance(given, list) else [given]))
    if not values:
        raise InputError(f"'{name}' is an empty list")
    return Axis(name, values, False, False)


def _range(name: str, given: Mapping[str, Any], sampling: bool) -> Axis:
    _known(given, f"'{name}'", _RANGE)
    for key in ("low", "high"):
        if key not in given:
            raise InputError(f"'{name}' has no '{key}'")
    low, high = (_value(name, given[key]) for key in ("low", "high"))
    scale = given.get("scale", "log" if low.relative else "lin")
    if scale not in ("lin", "log"):
        raise InputError(f'\'{name}\': scale must be "lin" or "log", got {scale!r}')
    if low.relative != high.relative:
        raise InputError(f"'{name}': low and high must both be numbers or both be factors such as \"x2\"")
    if not low.number < high.number:
        raise InputError(f"'{name}': low must be below high")
    if scale == "log" and low.number <= 0:
        raise InputError(f"'{name}': a log scale needs a low above 0, got {low.number:g}")
    if sampling:
        if "points" in given:
            raise InputError(f"'{name}': 'points' is for grids; with [sample] leave it out")
        return Axis(name, (low, high), True, scale == "log")
    points = _whole(given, "points", None, 2, f"'{name}': ")
    steps = [i / (points - 1) for i in range(points)]
    if scale == "log":
        ratio = high.number / low.number
        numbers = [low.number * ratio**t for t in steps]
    else:
        numbers = [low.number + (high.number - low.number) * t for t in steps]
    numbers[-1] = high.number
    return Axis(name, tuple(Value(n, low.relative) for n in numbers), False, False)


def _value(name: str, given: Any) -> Value:
    factor = isinstance(given, str) and given.startswith("x")
    try:
        number = float(given[1:]) if factor else given
    except ValueError:
        number = None
    if number is None or not _is_number(number):
        raise InputError(f"'{name}' takes numbers and factors such as \"x2\", got {given!r}")
    if name == "budget":
        if factor:
            raise InputError(f"'budget' takes numbers, not factors, got {given!r}")
        if number <= 0:
            raise InputError(f"'budget' must be a positive number of US dollars, got {given!r}")
    return Value(float(number), factor)


def _outputs(given: Any) -> tuple[str, ...]:
    chosen = given if isinstance(given, list) else [given]
    for name in chosen:
        if name not in OUTPUTS:
            raise InputError(f"'outputs' has {name!r}; {nearest(str(name), OUTPUTS)}")
    if not chosen:
        raise InputError("'outputs' is empty; valid: " + ", ".join(OUTPUTS))
    return tuple(name for name in OUTPUTS if name in chosen)


def _elasticities(table: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "elasticities" not in table:
        return None
    given = table["elasticities"]
    if not isinstance(given, list) or not all(isinstance(x, str) for x in given) or not given:
        raise InputError(f"'elasticities' must be a list of leaves, got {given!r}")
    if "elasticities" not in table.get("outputs", []):
        raise InputError("'elasticities' lists leaves, but outputs do not have \"elasticities\"")
    return tuple(given)


def _sample(table: Mapping[str, Any]) -> tuple[int | None, int]:
    """(points of the sample, seed)."""
    seed = _whole(table, "seed", 0, 0)
    if "sample" not in table:
        return None, seed
    sample = _table(table, "sample")
    _known(sample, "[sample]", ("method", "count"))
    if sample.get("method", "sobol") != "sobol":
        raise InputError(f'[sample]: method must be "sobol", got {sample["method"]!r}')
    return _whole(sample, "count", None, 1, "[sample]: "), seed


def _whole(table: Mapping[str, Any], key: str, default: int | None, least: int, where: str = "") -> int:
    value = table.get(key, default)
    if value is None:
        raise InputError(f"{where}no '{key}'")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_ROWS:
        raise InputError(f"{where}'{key}' must be a whole number of at least {least}, got {value!r}")
    return value


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise InputError(f"'{key}' must be a table [{key}], got {value!r}")
    return value


def _known(table: Mapping[str, Any], where: str, keys: Any) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"{where} has an unknown key '{key}'; {nearest(key, keys)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
