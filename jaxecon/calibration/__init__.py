"""Constants of the cost model from measurements: fit, intervals, held-out error, shipped values."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ._cases import Case as Case, case_of as case_of
    from ._constants import CONSTANTS as CONSTANTS
    from ._fit import Calibration as Calibration, Errors as Errors, Point as Point, calibrate as calibrate
    from ._posterior import Estimate as Estimate, Spread as Spread, Tangle as Tangle
    from ._predict import (
        Interval as Interval,
        load_accelerator as load_accelerator,
        predict_interval as predict_interval,
    )
    from ._shipped import Shipped as Shipped, constants_toml as constants_toml, shipped as shipped
    from ._table import (
        COLUMNS as COLUMNS,
        BadRow as BadRow,
        Measurement as Measurement,
        read_measurements as read_measurements,
    )
    from ._collectives import (
        CollectiveFit as CollectiveFit,
        fit_collectives as fit_collectives,
        read_collectives as read_collectives,
    )
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "._cases": ("Case", "case_of"),
            "._constants": ("CONSTANTS",),
            "._fit": ("Calibration", "Errors", "Point", "calibrate"),
            "._posterior": ("Estimate", "Spread", "Tangle"),
            "._predict": ("Interval", "load_accelerator", "predict_interval"),
            "._shipped": ("Shipped", "constants_toml", "shipped"),
            "._table": ("COLUMNS", "BadRow", "Measurement", "read_measurements"),
            "._collectives": ("CollectiveFit", "fit_collectives", "read_collectives"),
        },
    )
