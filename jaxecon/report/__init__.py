"""Tables, pictures, launch commands and what experiments share. No cost arithmetic of its own."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ._chart import bars_chart as bars_chart, curves_chart as curves_chart
    from ._experiment import (
        Finding as Finding,
        compared as compared,
        paper_specs as paper_specs,
        print_findings as print_findings,
        results_folder as results_folder,
        save_frontiers as save_frontiers,
        save_rows as save_rows,
        settings as settings,
        verdict as verdict,
    )
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "._chart": ("bars_chart", "curves_chart"),
            "._experiment": (
                "Finding",
                "compared",
                "paper_specs",
                "print_findings",
                "results_folder",
                "save_frontiers",
                "save_rows",
                "settings",
                "verdict",
            ),
        },
    )
