"""Pictures of a calibration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ._picture import _canvas, _save


class Predicted(Protocol):
    """A measured point beside its prediction, seconds."""

    accelerator: str
    measured: float
    predicted: float


def fit_picture(points: Sequence[Predicted], title: str, path: Path) -> None:
    """Predicted against measured milliseconds per output token, a colour for each accelerator.

    The line is equality, the band 15 % on either side.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    figure, axes = _canvas(path, (6.2, 5.6))
    measured = 1e3 * np.asarray([p.measured for p in points])
    predicted = 1e3 * np.asarray([p.predicted for p in points])
    names = np.asarray([p.accelerator for p in points])
    ends = np.asarray(
        [min(measured.min(), predicted.min()) / 1.3, max(measured.max(), predicted.max()) * 1.3]
    )
    axes.fill_between(ends, ends / 1.15, ends * 1.15, color="0.9", label="within 15 %")
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    for name in sorted(set(names.tolist())):
        own = names == name
        axes.scatter(
            measured[own], predicted[own], s=9, alpha=0.6, linewidths=0, label=f"{name} ({own.sum()})"
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured ms per output token")
    axes.set_ylabel("predicted ms per output token")
    error = 100.0 * np.abs(predicted / measured - 1.0)
    axes.set_title(
        f"{title}: {len(points)} rows, error {error.mean():.1f} %, median {np.median(error):.1f} %",
        fontsize=10,
    )
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)
