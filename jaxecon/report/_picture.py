"""Pictures; matplotlib is loaded only here."""

import math
import os
from pathlib import Path
from typing import Any

from .._errors import InputError


def check_path(path: Path) -> None:
    """Refuse a picture that could not be written, before any work is done.

    Raises:
        InputError: for an unknown ending, a missing folder, or one that cannot be written to.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture ends in .png, .svg or .pdf, got '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"cannot write '{path}': the folder does not exist")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"cannot write '{path}': not permitted")


def step_picture(result: dict[str, Any], title: str, path: Path) -> None:
    """Parts of a step in milliseconds beside the uses of memory in GB.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, (left, right) = _canvas(path, (10, 3.2), 2)
    parts = {k: 1e3 * v for k, v in result["step_time_s"].items() if k != "total"}
    total = 1e3 * result["step_time_s"]["total"]
    _bars(left, parts, "ms", f"one step: {total:.3g} ms (arithmetic and memory overlap)")
    uses = {k: v / 1e9 for k, v in result["memory_bytes"].items() if k != "capacity"}
    capacity = result["memory_bytes"]["capacity"] / 1e9
    _bars(right, uses, "GB", f"memory of one accelerator: {capacity:.4g} GB")
    speed, cost = result["speed_tokens_per_s"], result["cost_usd_per_million_tokens"]
    figure.suptitle(f"{title}: {speed:.1f} tokens/s at ${cost:.2f} per million tokens", fontsize=11)
    _save(figure, path)


def _bars(axes: Any, values: dict[str, float], unit: str, title: str) -> None:
    bars = axes.barh([k.replace("_", " ") for k in values], list(values.values()), color="#3b6ea5")
    axes.bar_label(bars, fmt=f"%.3g {unit}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def frontier_picture(curves: dict[str, tuple[Any, Any]], path: Path) -> None:
    """Curves of (cost, speed), both axes logarithmic, each labelled at its end.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, axes = _canvas(path, (7.5, 4.2))
    from matplotlib import ticker

    ends = []
    for name, (cost, speed) in curves.items():
        (line,) = axes.step(cost, speed, where="pre")
        ends.append((float(speed[0]), name, line.get_color()))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("US dollars per million output tokens")
    axes.set_ylabel("tokens/s of one request")
    axes.set_title("the fastest legal layout at each cost", fontsize=10)
    axes.grid(alpha=0.3, which="both")
    _label_ends(axes, sorted(ends))
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _label_ends(axes: Any, ends: list[tuple[float, str, Any]]) -> None:
    """Names beside the axes at the height of each curve's fast end, pushed apart."""
    low, high = (math.log(y) for y in axes.get_ylim())
    last = -1.0
    for speed, name, color in ends:
        last = max((math.log(speed) - low) / (high - low), last + 0.05)
        place = {"transform": axes.transAxes, "va": "center", "fontsize": 9}
        axes.text(1.01, last, name, color=color, **place)


def _canvas(path: Path, size: tuple[float, float], columns: int = 1) -> tuple[Any, Any]:
    check_path(path)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, columns, figsize=size, layout="constrained")


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        plt.close(figure)
