"""Pictures; matplotlib is loaded only here."""

from pathlib import Path
from typing import Any

from .._errors import InputError


def step_picture(parts: dict[str, float], title: str, path: Path) -> None:
    """Bars of the parts of a step, in milliseconds, written whole or not at all.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, axes = _canvas(path, (7, 3))
    names = list(parts)
    values = [1e3 * parts[n] for n in names]
    bars = axes.barh(names, values, color="#3b6ea5")
    axes.bar_label(bars, fmt="%.3g ms", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("milliseconds per step (arithmetic and memory overlap)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def frontier_picture(speed: Any, cost: Any, title: str, path: Path) -> None:
    """Speed (tokens/s) against cost (US dollars per million tokens), both logarithmic.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, axes = _canvas(path, (7, 4))
    axes.step(cost, speed, where="pre", color="#3b6ea5")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("US dollars per million output tokens")
    axes.set_ylabel("tokens/s of one request")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _canvas(path: Path, size: tuple[float, float]) -> tuple[Any, Any]:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture ends in .png, .svg or .pdf, got '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"cannot write '{path}': the folder does not exist")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        plt.close(figure)
