"""What `jaxecon calibrate` answers."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .._errors import InputError, nearest
from ..calibration import (
    BadRow,
    Calibration,
    Measurement,
    Point,
    calibrate,
    case_of,
    constants_toml,
    read_measurements,
    shipped,
)
from ..calibration._constants import PRIOR_SPREAD
from ..calibration._table import KINDS

_NEARBY = 0.5
"""Prior spreads around shipped constants, in units of those around physics'."""


def check_out(path: Path | None) -> None:
    """Refuse a file of constants that could not be written, before any work is done."""
    if path is None:
        return
    if path.suffix != ".toml":
        raise InputError(f"fitted constants are written to a .toml file, got '{path.name}'")
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"cannot write '{path}': no such folder, or not permitted")


def answer(
    data: Path,
    on_bad: str,
    prior: str,
    held_out: str,
    kinds: str,
    worst: int,
    out: Path | None,
    plot: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Fit, write what was asked for, and say how good it is."""
    rows, cases, bad = usable(data, on_bad, _names(kinds, KINDS, "kind"))
    left = (
        [] if held_out == "none" else _names(held_out, ("model", "accelerator", "engine"), "held-out group")
    )
    if prior not in ("shipped", "physics"):
        raise InputError(f"the prior is 'shipped' or 'physics', got {prior!r}")
    mean, spread = (shipped().vector, _NEARBY * PRIOR_SPREAD) if prior == "shipped" else (None, None)
    known = dict(zip((r.line for r in rows), cases, strict=True))
    found = calibrate(
        lambda m: known[m.line], rows, held_out=left, prior_mean=mean, prior_spread=spread, progress=say
    )
    if out is not None:
        text = constants_toml(found, datetime.date.today().isoformat(), data.name)
        out.write_text(text, encoding="utf-8")
    if plot is not None:
        from ..report._calibration import fit_picture

        fit_picture(found.points, data.name, plot)
    return summary(found, rows, bad, worst)


def _names(text: str, valid: tuple[str, ...], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in valid:
            raise InputError(f"no {what} '{name}'; {nearest(name, valid)}")
    return names


def usable(data: Path, on_bad: str, kinds: list[str]) -> tuple[list[Measurement], list, list[BadRow]]:
    """(rows, their questions, bad rows), where models and accelerators are known too.

    Raises:
        InputError: for a file without usable rows, or a bad row that is to be refused.
    """
    rows, bad = read_measurements(data, on_bad=on_bad)
    good, cases = [], []
    for row in rows:
        if row.kind not in kinds:
            continue
        try:
            cases.append(case_of(row))
        except InputError as error:
            if on_bad == "refuse":
                raise InputError(f"{data}, line {row.line}: {error}") from error
            bad.append(BadRow(row.line, str(error)))
            continue
        good.append(row)
    if not good:
        first = f"; line {bad[0].line}: {bad[0].reason}" if bad else ""
        raise InputError(f"'{data}' has no usable row of the kinds {', '.join(kinds)}{first}")
    return good, cases, sorted(bad)


def summary(found: Calibration, rows: list[Measurement], bad: list[BadRow], worst: int) -> dict[str, Any]:
    """Errors, constants and worst rows as plain data."""
    order = sorted(found.points, key=lambda p: -abs(p.error))[:worst]
    batches = {r.line: r for r in rows}
    return {
        "rows": len(found.points),
        "bad_rows": [b._asdict() for b in bad],
        "impossible_rows": [p.line for p in found.points if p.impossible],
        "seconds": found.seconds,
        "shared_prompts": _shared_prompts(found),
        "errors": {
            "fitted": found.errors()._asdict(),
            "older_rows": found.errors(older=True)._asdict(),
            **{f"without_{k}": found.errors(None, k)._asdict() for k in found.held_out},
        },
        "coverage_of_90_percent_intervals": {k: v.coverage for k, v in found.held_out.items()},
        "constants": {k: v._asdict() for k, v in found.constants.items()},
        "tangled": [t._asdict() for t in found.tangled],
        "worst_rows": [_row(p, batches[p.line]) for p in order],
    }


def _shared_prompts(found: Calibration) -> dict[str, Any]:
    """Rows proven to share their prompts, and errors of these and of the others."""
    marked = [p for p in found.points if p.shared]
    others = [p.prompt_load for p in found.points if not p.shared]
    left = {"fitted": None, **{f"without_{k}": k for k in found.held_out}}

    def errors(shared: bool) -> dict[str, Any]:
        rows = {k: found.errors(None, v, shared=shared) for k, v in left.items()}
        return {k: e._asdict() for k, e in rows.items() if e.rows}

    return {
        "rows": [{"line": p.line, "prompt_load": p.prompt_load} for p in marked],
        "largest_prompt_load_of_others": max(others, default=0.0),
        "errors": errors(True),
        "errors_of_others": errors(False),
    }


def _row(point: Point, row: Measurement) -> dict[str, Any]:
    return {
        "line": point.line,
        "model": point.model,
        "accelerator": point.accelerator,
        "engine": point.engine,
        "n_gpus": row.n_gpus,
        "batch": row.batch,
        "measured_ms": 1e3 * point.measured,
        "predicted_ms": 1e3 * point.predicted,
        "error": point.error,
        "faster_than_full_rates": point.impossible,
    }


def show(result: dict[str, Any]) -> None:
    """Print a calibration as tables."""
    console = Console()
    for b in result["bad_rows"]:
        console.print(f"line {b['line']} skipped: {b['reason']}", soft_wrap=True, highlight=False)
    fitted = result["errors"]["fitted"]
    console.print(
        f"{fitted['rows']} rows: mean error [bold]{100 * fitted['mean']:.1f} %[/], median "
        f"[bold]{100 * fitted['median']:.1f} %[/], in {result['seconds']:.0f} s",
        soft_wrap=True,
    )
    _show_shared(console, result["shared_prompts"])
    older = result["errors"]["older_rows"]
    if older["rows"]:
        console.print(
            f"{older['rows']} rows of whole batches, which count a tenth: mean {100 * older['mean']:.1f} %, "
            f"median {100 * older['median']:.1f} %",
            soft_wrap=True,
        )
    for key, e in result["errors"].items():
        if key.startswith("without_"):
            name = key.removeprefix("without_")
            covered = 100 * result["coverage_of_90_percent_intervals"][name]
            console.print(
                f"each {name} left out: mean {100 * e['mean']:.1f} %, median {100 * e['median']:.1f} %; "
                f"90 % intervals cover {covered:.0f} %",
                soft_wrap=True,
            )
    console.print(_constants_table(result["constants"]))
    console.print(_worst_table(result["worst_rows"]))


def _show_shared(console: Console, shared: dict[str, Any]) -> None:
    if not shared["rows"]:
        return
    lines = ", ".join(f"{r['line']} ({r['prompt_load']:.2f})" for r in shared["rows"])
    console.print(
        f"requests share their prompts in lines (times all peak FLOP/s that they would need): {lines}; "
        f"at most {shared['largest_prompt_load_of_others']:.2f} elsewhere",
        soft_wrap=True,
        highlight=False,
    )
    for key, e in shared["errors"].items():
        what = "fitted" if key == "fitted" else f"each {key.removeprefix('without_')} left out"
        text = f"  {what}: mean {100 * e['mean']:.1f} % of {e['rows']} such rows"
        if others := shared["errors_of_others"].get(key):
            text += f", {100 * others['mean']:.1f} % of the other {others['rows']}"
        console.print(text, soft_wrap=True)


def _constants_table(constants: dict[str, Any]) -> Table:
    table = Table("constant", "value", "90 % interval", "prior", "informed by data")
    for name, c in constants.items():
        ends = f"{c['low']:.3g} to {c['high']:.3g}"
        table.add_row(name, f"{c['value']:.3g}", ends, f"{c['prior']:.3g}", f"{100 * c['informed']:.0f} %")
    return table


def _worst_table(rows: list[dict[str, Any]]) -> Table:
    table = Table("line", "model", "accelerator", "engine", "batch", "measured ms", "predicted ms", "error")
    for r in rows:
        error = f"{100 * r['error']:+.0f} %" + (
            ", faster than full rates" if r["faster_than_full_rates"] else ""
        )
        machine = f"{r['n_gpus']} x {r['accelerator']}"
        times = (f"{r['measured_ms']:.2f}", f"{r['predicted_ms']:.2f}")
        table.add_row(str(r["line"]), r["model"], machine, r["engine"], f"{r['batch']:g}", *times, error)
    return table
