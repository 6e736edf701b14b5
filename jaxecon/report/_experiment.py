"""What experiments share: settings, findings, tables of data."""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._errors import InputError, nearest
from ..specs._catalogue import configs_dir
from ._chart import curves_chart

HOLDS, WITHIN, FAILS = "holds", "holds within", "fails"


class Finding(NamedTuple):
    """One claim put to the test."""

    claim: str
    stated: str
    found: str
    """With its range or interval, and units."""
    verdict: str
    """"holds", "holds within ..." or "fails"."""
    why: str
    """Over which range, and what moves it."""

    @property
    def compares(self) -> bool:
        """Whether it is a comparison, about which the paper states no figure."""
        return not self.stated


def settings(name: str) -> dict[str, Any]:
    """The settings of an experiment, from configs/experiments/NAME.toml.

    Raises:
        InputError: for an unknown name or an unreadable file.
    """
    folder = configs_dir() / "experiments"
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = [p.stem for p in folder.glob("*.toml")]
        raise InputError(f"there are no settings for '{name}'; {nearest(name, known)}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error


def paper_specs() -> dict[str, Any]:
    """The models and accelerators of the paper's tables, with the keys of `Erdil2025.from_fields`:
    {"models": {name: fields}, "accelerators": {name: fields}}."""
    tables = settings("specs")
    return {"models": tables["models"], "accelerators": tables["accelerators"]}


def verdict(stated: float, found: float, rough: float, exact: float = 0.05) -> str:
    """ "holds" within the share `exact` of the stated value, "holds within N %" up to `rough`."""
    off = abs(found / stated - 1.0)
    if off <= exact:
        return HOLDS
    return f"{WITHIN} {100 * off:.0f} %" if off <= rough else FAILS


def save_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows with the same keys as a tidy CSV file; numbers to 9 digits.

    Raises:
        InputError: for no rows, or a path that cannot be written.
    """
    if not rows:
        raise InputError(f"there are no rows for '{path}'")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: _short(v) for k, v in row.items()} for row in rows)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error


def _short(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def compared(
    scenarios: Mapping[str, tuple[Any, float]], given: Mapping[str, Any], stem: Path, *, title: str
) -> str:
    """Frontiers on the paper's grid as `stem`.csv, .png and .svg, and in words the fastest point of each
    and the one that maximises speed^k/price.

    `scenarios` holds pairs of scenario and most accelerators, `given` the settings `points`,
    `value_exponent` (k) and `source`.
    """
    from ..sensitivity import best_value, dense_frontier

    curves = {
        name: dense_frontier(scenario, most_accelerators=most, points=given["points"])
        for name, (scenario, most) in scenarios.items()
    }
    best = {name: best_value(f.speed, f.cost, given["value_exponent"]) for name, f in curves.items()}
    chosen = {name: (b.cost, b.speed) for name, b in best.items()}
    save_frontiers(curves, chosen, stem, title=title, source=given["source"])
    return "; ".join(
        f"{name} up to {curves[name].speed[0]:.0f} tokens/s, most value at {b.speed:.0f} and ${b.cost:.2f}"
        for name, b in best.items()
    )


def save_frontiers(
    curves: Mapping[str, Any],
    chosen: Mapping[str, tuple[float, float]],
    stem: Path,
    *,
    title: str,
    source: str,
) -> None:
    """Frontiers as `stem`.csv, .png and .svg; `chosen` marks a (cost, speed) on each.

    The picture leaves out speeds below a hundredth of the largest.

    Raises:
        InputError: for a folder that cannot be written to.
    """
    rows = [
        {
            "name": name,
            "cost_usd_per_million": float(c),
            "speed_tokens_per_s": float(v),
            "accelerators": float(n),
            "batch": float(b),
        }
        for name, f in curves.items()
        for c, v, n, b in zip(f.cost, f.speed, f.accelerators, f.batch, strict=True)
    ]
    save_rows(rows, stem.with_name(stem.name + ".csv"))
    least = max(f.speed.max() for f in curves.values()) / 100.0
    least = min(least, *(speed / 4.0 for _, speed in chosen.values()))
    labels = {name: f"{name}: {speed:.0f} at ${cost:.2f}" for name, (cost, speed) in chosen.items()}
    curves_chart(
        {labels[name]: (f.cost[f.speed > least], f.speed[f.speed > least]) for name, f in curves.items()},
        stem,
        x="US dollars per million tokens",
        y="tokens/s of one request",
        title=title,
        source=source,
        marks=list(chosen.values()),
    )


def results_folder() -> Path:
    """`results` in the working directory, made where it is missing; a script's default."""
    folder = Path("results")
    folder.mkdir(exist_ok=True)
    return folder


def print_findings(findings: Sequence[Finding]) -> None:
    """One line per finding, for a script that is run by itself."""
    for f in findings:
        print(f"{f.claim}: stated {f.stated}; found {f.found}; {f.verdict}. {f.why}")
