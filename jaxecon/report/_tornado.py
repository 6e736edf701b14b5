"""Elasticities as horizontal bars, the largest on top."""

from pathlib import Path

from ._picture import _canvas, _save

_BLUE, _ORANGE, _GREY = "#3b6ea5", "#d1782f", "#888888"
Sided = float | tuple[float, float]


def tornado_picture(values: dict[str, Sided], title: str, path: Path) -> None:
    """Bars of d ln speed / d ln parameter from zero; a pair as two bars, downwards and upwards.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, axes = _canvas(path, (8.5, 1.4 + 0.34 * len(values)))
    for row, value in enumerate(values.values()):
        pair = value if isinstance(value, tuple) else (value, value)
        two = isinstance(value, tuple)
        for k, x in enumerate(pair if two else pair[:1]):
            at, height = (row + (k - 0.5) * 0.38, 0.36) if two else (row, 0.72)
            shown = x if abs(x) < 1e6 else 0.0
            color = _ORANGE if shown < 0 else _BLUE
            axes.barh(at, shown, height, color=color, alpha=0.6 if two and k == 0 else 1.0)
            text = f"{x:+.3f}" if abs(x) < 1e6 else "jumps"
            text += (" if it falls", " if it rises")[k] if two else ""
            ends = {"xytext": (4 if shown >= 0 else -4, 0), "textcoords": "offset points"}
            axes.annotate(
                text, (shown, at), ha="left" if shown >= 0 else "right", va="center", fontsize=8, **ends
            )
    axes.set_yticks(range(len(values)), list(values), fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0.0, color=_GREY, lw=0.8)
    axes.margins(x=0.22)
    axes.set_xlabel("percent of speed per percent of the parameter, at a fixed budget")
    figure.suptitle(title, fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _save(figure, path)
