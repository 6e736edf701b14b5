"""Fitted constants as TOML: written by a calibration, read by `load_accelerator(engine=...)`."""

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._errors import InputError
from ..specs._catalogue import configs_dir
from ._constants import CONSTANTS, NAMES

if TYPE_CHECKING:
    from ._fit import Calibration
    from ._posterior import Spread

SHIPPED = "serving.toml"
_QUANTILES = ("nothing", "model", "accelerator", "engine")


class Shipped(NamedTuple):
    """Constants with their covariance, and what they were fitted to."""

    vector: np.ndarray
    spread: "Spread"
    date: str
    data: str
    rows: int
    engines: dict[str, int]
    """Engine -> rows."""
    accelerators: dict[str, int]
    """Accelerator -> rows."""
    error: dict[str, float]
    """Mean and median absolute relative errors, fitted and held out."""


def constants_toml(found: "Calibration", date: str, data: str) -> str:
    """A calibration as the text of a TOML file.

    Values are rounded to six digits, the covariance (lower triangle by rows) to three.
    """
    engines = _counts([p.engine for p in found.points])
    accelerators = _counts([p.accelerator for p in found.points])
    lines = [
        "# jaxecon calibrate DATA.csv --out FILE.toml",
        "# Constants of the serving cost model. low and high: 90 % interval; informed: share of the prior",
        "# variance that the data removed, 0 where a constant is still what was assumed.",
        f'date = "{date}"',
        f'data = "{data}"',
        f"rows = {sum(p.weight >= 1.0 for p in found.points)}",
        f"older_rows = {sum(p.weight < 1.0 for p in found.points)}",
        f"shared_prompt_rows = {sum(p.shared for p in found.points)}",
        "",
        "[error]",
    ]
    for name in (None, *found.held_out):
        for dense, label in ((None, "all"), (True, "dense"), (False, "sparse")):
            error = found.errors(dense, name)
            prefix = f"{label}_{'fitted' if name is None else 'without_' + name}"
            if error.rows:
                lines += [f"{prefix}_mean = {error.mean:.4f}", f"{prefix}_median = {error.median:.4f}"]
    lines += _shared_errors(found)
    older = found.errors(older=True)
    if older.rows:
        lines += [f"older_fitted_mean = {older.mean:.4f}", f"older_fitted_median = {older.median:.4f}"]
    lines += [f"coverage_without_{k} = {v.coverage:.4f}" for k, v in found.held_out.items()]
    lines += ["", "[engines]", *(f'"{k}" = {v}' for k, v in engines.items())]
    lines += ["", "[accelerators]", *(f'"{k}" = {v}' for k, v in accelerators.items())]
    lines += ["", "[interval]", f"noise = {found.spread.noise:.6g}"]
    lines += [f"{k} = {found.spread.quantiles[k]:.5g}" for k in _QUANTILES if k in found.spread.quantiles]
    for constant in CONSTANTS:
        e = found.constants[constant.name]
        lines += [
            "",
            f'[constants."{constant.name}"]',
            f"value = {e.value:.6g}",
            f"low = {e.low:.4g}",
            f"high = {e.high:.4g}",
            f"informed = {e.informed:.2f}",
            f'meaning = "{constant.meaning}"',
        ]
    lines += ["", "[covariance]"]
    for i, name in enumerate(NAMES):
        row = ", ".join(f"{x:.3g}" for x in found.spread.covariance[i, : i + 1])
        lines.append(f'"{name}" = [{row}]')
    return "\n".join(lines) + "\n"


def _shared_errors(found: "Calibration") -> list[str]:
    """Mean errors of rows with shared prompts, and of all others, where there are such rows."""
    lines = []
    for name in (None, *found.held_out):
        suffix = "fitted" if name is None else f"without_{name}"
        shared = found.errors(None, name, shared=True)
        if not shared.rows:
            continue
        lines.append(f"shared_{suffix}_mean = {shared.mean:.4f}")
        for dense, label in ((None, "all"), (True, "dense")):
            others = found.errors(dense, name, shared=False)
            if others.rows:
                lines.append(f"{label}_unshared_{suffix}_mean = {others.mean:.4f}")
    return lines


def _counts(names: list[str]) -> dict[str, int]:
    return {name: names.count(name) for name in sorted(set(names))}


@functools.cache
def shipped(path: Path | None = None) -> Shipped:
    """The constants that come with the library, or those of a file.

    Raises:
        InputError: for an unreadable file, or one whose constants are not those of this version.
    """
    path = configs_dir() / "calibration" / SHIPPED if path is None else path
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read fitted constants from '{path}': {error}") from error
    try:
        return _read(table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"'{path}' does not hold the {len(NAMES)} constants of this version ({error}); "
            "fit anew with 'jaxecon calibrate'"
        ) from error


def _read(table: dict[str, Any]) -> Shipped:
    # The fit is not imported for accelerators without fitted constants.
    from ._posterior import Spread

    if set(table["constants"]) != set(NAMES):
        raise KeyError(", ".join(sorted(set(table["constants"]) ^ set(NAMES))))
    vector = [c.inner(float(table["constants"][c.name]["value"])) for c in CONSTANTS]
    covariance = np.zeros((len(NAMES), len(NAMES)))
    for i, name in enumerate(NAMES):
        covariance[i, : i + 1] = table["covariance"][name]
    covariance = covariance + np.tril(covariance, -1).T
    interval = table["interval"]
    quantiles = {k: float(interval[k]) for k in _QUANTILES if k in interval}
    return Shipped(
        np.asarray(vector),
        Spread(covariance, float(interval["noise"]), quantiles),
        str(table["date"]),
        str(table["data"]),
        int(table["rows"]),
        dict(table["engines"]),
        dict(table["accelerators"]),
        {k: float(v) for k, v in table["error"].items()},
    )
