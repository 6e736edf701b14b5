"""Pictures; matplotlib is loaded only here."""

from pathlib import Path

from .._errors import InputError


def step_picture(parts: dict[str, float], title: str, path: Path) -> None:
    """Bars of the parts of a step, in milliseconds, written whole or not at all.

    Raises:
        InputError: for an unknown ending or a path that cannot be written.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture ends in .png, .svg or .pdf, got '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"cannot write '{path}': the folder does not exist")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    names = list(parts)
    values = [1e3 * parts[n] for n in names]
    bars = axes.barh(names, values, color="#3b6ea5")
    axes.bar_label(bars, fmt="%.3g ms", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("milliseconds per step (arithmetic and memory overlap)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        plt.close(figure)
