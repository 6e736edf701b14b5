"""Tables, pictures, launch commands and what experiments share. No cost arithmetic of its own."""

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
