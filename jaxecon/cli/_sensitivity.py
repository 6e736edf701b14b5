"""What `jaxecon sensitivity` and `jaxecon whatif` answer and print."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from .._errors import InputError
from ..scenarios import Serving
from ..sensitivity import Comparison, Elasticities, Sided, distances, parameters

_NEGLIGIBLE = 5e-4


def answer(scenario: Serving, found: Elasticities, budget: float) -> list[dict[str, Any]]:
    """One row per parameter, the largest effect on speed first; `budget` is the last."""
    values = parameters(scenario)
    held = found.certified
    rows = [
        {
            "parameter": name,
            "value": value,
            "d_ln_speed": found[name],
            "d_ln_cost": found.cost[name],
            "d_ln_max_speed": found.max_speed[name],
            "certified_d_ln_speed": held.speed[name],
            "certified_d_ln_cost": held.cost[name],
            "certified_d_ln_max_speed": held.max_speed[name],
        }
        for name, value in values.items()
    ]
    rows.sort(key=lambda row: -_size(row["d_ln_speed"]))
    nothing = dict.fromkeys(list(rows[0])[3:])
    return [*rows, {"parameter": "budget", "value": budget, "d_ln_speed": found["budget"], **nothing}]


def add_distances(
    rows: list[dict[str, Any]], scenario: Serving, budget: float, max_accelerators: int
) -> None:
    """Add to each row the factors at which the certified layout, or its regime, changes."""
    names = [row["parameter"] for row in rows if row["parameter"] != "budget"]
    found = distances(scenario, budget, names, max_accelerators)
    for row in rows:
        far = found.get(row["parameter"])
        row["distance_to_layout"] = None if far is None else far.layout
        row["distance_to_regime"] = None if far is None else far.regime


def top(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The largest `count` rows that matter, and the budget."""
    matter = [row for row in rows[:-1] if _size(row["d_ln_speed"]) > _NEGLIGIBLE]
    return [*matter[:count], rows[-1]]


def plain(rows: list[dict[str, Any]], separator: str | None = None) -> list[dict[str, Any]]:
    """Rows for JSON or CSV: pairs as lists (or joined), infinities as "jump", nan as nothing."""

    def value(x: Any) -> Any:
        if isinstance(x, tuple):
            both = [value(y) for y in x]
            return both if separator is None else separator.join("" if b is None else str(b) for b in both)
        if isinstance(x, float) and math.isnan(x):
            return None
        return "jump" if isinstance(x, float) and math.isinf(x) else x

    def distance(x: Any) -> Any:
        if x is None:
            return None
        both = [None if math.isinf(y) else y for y in x]
        return both if separator is None else separator.join("" if b is None else str(b) for b in both)

    return [
        {k: distance(v) if k.startswith("distance") else value(v) for k, v in row.items()} for row in rows
    ]


def show(rows: list[dict[str, Any]], shown: list[dict[str, Any]], title: str) -> None:
    """Print the table of the largest effects."""
    heads = ["parameter", "value", "speed", "cost", "speed, no budget", "certified speed"]
    far = "distance_to_layout" in shown[0]
    if far:
        heads += ["other layout at", "other regime at"]
    table = Table(title=title, caption=_CAPTION + (_CAPTION_FAR if far else ""))
    for head in heads:
        table.add_column(head, no_wrap=head == "parameter")
    for row in shown:
        cells = [_text(row[k]) for k in list(row)[2:6]]
        if far:
            cells += [_factors(row["distance_to_layout"]), _factors(row["distance_to_regime"])]
        table.add_row(row["parameter"], f"{row['value']:.5g}", *cells)
    console = Console()
    console.print(table)
    left = len(rows) - len(shown)
    if left:
        console.print(f"{left} parameters with less effect are left out; --top shows more, --json all")


_CAPTION = (
    "percent per percent: speed at the budget, cost at the speed; pairs: if it falls / if it rises; "
    "certified: integer degrees held, the batch following"
)
_CAPTION_FAR = "; factors down and up to the next change of the certified layout and of what decides in it"


def _size(value: Sided) -> float:
    sides = value if isinstance(value, tuple) else (value,)
    return max((abs(x) for x in sides if math.isfinite(x)), default=0.0)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"{_text(value[0])} / {_text(value[1])}"
    if math.isnan(value):
        return "-"
    return "jump" if math.isinf(value) else f"{value + 0.0:+.3f}"


def _factors(value: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    down, up = (
        "-" if math.isinf(v) else f"x{math.exp(s * v):.3f}" for s, v in zip((-1, 1), value, strict=True)
    )
    return f"{down}, {up}"


def changes_of(scenario: Serving, texts: list[str]) -> dict[str, float]:
    """New values from words such as "accelerator.hbm_bandwidth=x2", "...=+10%" or "...=3.3e12".

    Raises:
        InputError: naming the word that cannot be read.
    """
    old = parameters(scenario)
    found: dict[str, float] = {}
    for text in texts:
        name, equals, word = text.replace(" ", "").partition("=")
        if name in old and name in found:
            raise InputError(f"'{name}' is set twice")
        try:
            if not equals:
                raise ValueError
            base = old.get(name, math.nan)
            if word[:1] in ("x", "X"):
                new = base * float(word[1:])
            elif word.endswith("%"):
                new = base * (1.0 + float(word[:-1]) / 100.0)
            else:
                new = float(word)
        except ValueError:
            raise InputError(
                f"cannot read '{text}'; write for example accelerator.hbm_bandwidth=x2, =+10% or =3.3e12"
            ) from None
        found[name] = new
    return found


def compared(result: Comparison, old: Mapping[str, float], changes: Mapping[str, float]) -> dict[str, Any]:
    """A comparison as one mapping; speeds in tokens/s of one request."""

    def layout(found: Any) -> dict[str, float] | None:
        if found is None:
            return None
        names = ("tensor", "pipeline", "batch", "draft_tokens")
        return {k: float(getattr(found.layout, k)) for k in names}

    def speed(found: Any) -> float | None:
        return None if found is None else float(found.speed)

    pairs = {
        "relaxed": (result.before, result.predicted, result.after),
        "certified": (result.certified_before, result.certified_predicted, result.certified_after),
    }
    parts = {
        kind: {
            "before": speed(before),
            "predicted": predicted if math.isfinite(predicted) else None,
            "re_solved": speed(after),
            "layout_before": layout(before),
            "layout_re_solved": layout(after),
        }
        for kind, (before, predicted, after) in pairs.items()
    }
    return {"changes": {k: {"from": old[k], "to": v} for k, v in changes.items()}, **parts}


def show_comparison(result: dict[str, Any]) -> None:
    """Print predicted beside re-solved speeds."""
    console = Console()
    for name, change in result["changes"].items():
        factor = change["to"] / change["from"]
        console.print(f"{name}: {change['from']:.6g} to {change['to']:.6g} (x{factor:.4g})", highlight=False)
    table = Table("tokens/s of one request", "before", "by elasticity", "solved anew", "layout solved anew")
    for kind in ("relaxed", "certified"):
        part = result[kind]
        before = part["before"]
        cells = [f"{before:.2f}"]
        for key in ("predicted", "re_solved"):
            x = part[key]
            cells.append("unreachable" if x is None else f"{x:.2f} ({100 * (x / before - 1):+.1f} %)")
        new = part["layout_re_solved"] or {}
        table.add_row(
            kind, *cells, ", ".join(f"{k} {v:.4g}" for k, v in new.items() if v or k != "draft_tokens")
        )
    console.print(table)


def shown_values(rows: list[dict[str, Any]]) -> dict[str, Sided]:
    """What the tornado picture draws."""
    return {row["parameter"]: row["d_ln_speed"] for row in rows}
