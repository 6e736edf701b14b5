"""Charts of experiments: curves and bars with direct labels, units and the source of the data."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._picture import _canvas, _save

_BLUE, _GREY = "#3b6ea5", "#777777"
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


def curves_chart(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    stem: Path,
    *,
    x: str,
    y: str,
    title: str,
    source: str,
    log: str = "xy",
    marks: Sequence[tuple[float, float]] | None = None,
    lines: Mapping[str, float] | None = None,
    endings: Sequence[str] = (".png", ".svg"),
) -> None:
    """Curves labelled at their ends, saved as `stem`.png and `stem`.svg.

    Args:
        curves: label -> (abscissas, ordinates).
        stem: path without an ending.
        x, y: axis labels with units.
        title: what the figure shows.
        source: where the data come from, below the axes.
        log: which axes are logarithmic: "xy", "x", "y" or "".
        marks: single points, drawn as dots.
        lines: label -> the abscissa of a vertical line.
        endings: of the files to write.

    Raises:
        InputError: for a folder that cannot be written to.
    """
    for path in _paths(stem, endings):
        figure, axes = _canvas(path, (8.0, 4.6))
        ends = []
        for label, (xs, ys) in curves.items():
            marker = "o" if len(xs) < 16 else ""
            (line,) = axes.plot(xs, ys, marker=marker, ms=3.5, lw=1.6)
            last = max(range(len(xs)), key=lambda i: xs[i])
            ends.append((float(ys[last]), label, line.get_color()))
        for at, height in marks or ():
            axes.plot([at], [height], "o", ms=5, color="black", zorder=5)
        _scales(axes, log)
        for label, at in (lines or {}).items():
            axes.axvline(at, color=_GREY, lw=0.9, ls="--")
            place = axes.get_xaxis_transform()
            axes.text(at, 0.02, f" {label}", transform=place, fontsize=8, color=_GREY, va="bottom")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.25, which="major")
        axes.spines[["top", "right"]].set_visible(False)
        _labels(axes, sorted(ends), "y" in log)
        _frame(figure, title, source)
        _save(figure, path)


def bars_chart(
    values: Mapping[str, float],
    stem: Path,
    *,
    x: str,
    title: str,
    source: str,
    lines: Mapping[str, float] | None = None,
) -> None:
    """Horizontal bars with their values, saved as `stem`.png and `stem`.svg; `lines` are verticals.

    Raises:
        InputError: for a folder that cannot be written to.
    """
    for path in _paths(stem, (".png", ".svg")):
        figure, axes = _canvas(path, (8.0, 1.7 + 0.36 * len(values)))
        bars = axes.barh(list(values), list(values.values()), color=_BLUE, height=0.66)
        axes.bar_label(bars, fmt=" %.3g", padding=3, fontsize=8, bbox=_PAPER, zorder=4)
        axes.invert_yaxis()
        axes.margins(x=0.16)
        for label, at in (lines or {}).items():
            axes.axvline(at, color="black", lw=0.9, ls="--")
            place = axes.get_xaxis_transform()
            axes.text(at, 1.01, label, transform=place, fontsize=8, ha="center", va="bottom")
        axes.axvline(0.0, color=_GREY, lw=0.8)
        axes.set_xlabel(x)
        axes.spines[["top", "right"]].set_visible(False)
        _frame(figure, title, source)
        _save(figure, path)


def _paths(stem: Path, endings: Sequence[str]) -> list[Path]:
    return [stem.with_name(stem.name + ending) for ending in endings]


def _scales(axes: Any, log: str) -> None:
    from matplotlib import ticker

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name not in log:
            continue
        getattr(axes, f"set_{name}scale")("log")
        low, high = axis.get_view_interval()
        decades = math.log10(high / low)
        subs: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
        if decades < 0.8:
            subs = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
        axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(ticker.FuncFormatter(_plain))
        axis.set_minor_formatter(ticker.NullFormatter())


def _plain(value: float, _: Any = None) -> str:
    return (
        f"{value:g}"
        if 1e-3 <= abs(value) < 1e5
        else f"{value:.0e}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")
    )


def _labels(axes: Any, ends: list[tuple[float, str, Any]], logarithmic: bool) -> None:
    """Names right of the axes at the height of each curve's end, pushed apart."""
    low, high = axes.get_ylim()
    if logarithmic:
        low, high = math.log(low), math.log(high)
    gap, last, heights = 0.055, -1.0, []
    for height, _, _ in ends:
        at = math.log(height) if logarithmic else height
        last = max((at - low) / (high - low), last + gap)
        heights.append(last)
    last = 1.0 + gap
    for i in reversed(range(len(heights))):  # back inside the axes from above
        last = heights[i] = min(heights[i], last - gap)
    for at, (_, label, color) in zip(heights, ends, strict=True):
        place = {"transform": axes.transAxes, "va": "center", "fontsize": 8.5}
        axes.text(1.01, at, label, color=color, **place)


def _frame(figure: Any, title: str, source: str) -> None:
    figure.suptitle(title, fontsize=10.5)
    figure.supxlabel(source, fontsize=7, color=_GREY, x=0.01, ha="left")
