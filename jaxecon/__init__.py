"""jaxecon: how fast a language model can be served at a price, and on which layout."""

import os
import sys
from typing import TYPE_CHECKING

from ._lazy import lazily

__version__ = "0.1.0"

# float64 is chosen before JAX is imported where that is still possible; an explicit
# JAX_ENABLE_X64=0 is respected, and the entry points then refuse to run.
if os.environ.setdefault("JAX_ENABLE_X64", "1") not in ("0", "false", "False") and "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)

if TYPE_CHECKING:
    from ._errors import InfeasibleError as InfeasibleError, InputError as InputError
    from .calibration import (
        Calibration as Calibration,
        calibrate as calibrate,
        case_of as case_of,
        load_accelerator as load_accelerator,
        predict_interval as predict_interval,
        read_measurements as read_measurements,
    )
    from .cost import StepTime as StepTime, collective_time as collective_time
    from .optimum import (
        certified_frontier as certified_frontier,
        certified_many as certified_many,
        certified_optimum as certified_optimum,
        cheapest_at_speed as cheapest_at_speed,
        cheapest_prefill as cheapest_prefill,
        disaggregated_optimum as disaggregated_optimum,
        frontier as frontier,
        max_speed as max_speed,
        one_sided as one_sided,
        relaxed_frontier as relaxed_frontier,
        relaxed_optimum as relaxed_optimum,
    )
    from .scenarios import (
        Erdil2025 as Erdil2025,
        Serving as Serving,
        Toy as Toy,
        energy as energy,
        pools as pools,
        prices as prices,
    )
    from .sensitivity import (
        DenseFrontier as DenseFrontier,
        Elasticities as Elasticities,
        ScalingExponent as ScalingExponent,
        best_value as best_value,
        dense_frontier as dense_frontier,
        design as design,
        distances as distances,
        elasticities as elasticities,
        least_expense as least_expense,
        parameters as parameters,
        power_family as power_family,
        responses as responses,
        scaling_exponent as scaling_exponent,
        size_family as size_family,
        tiers as tiers,
        whatif as whatif,
        with_parameters as with_parameters,
    )
    from .specs import (
        Accelerator as Accelerator,
        DenseFeedForward as DenseFeedForward,
        Efficiencies as Efficiencies,
        GroupedQueryAttention as GroupedQueryAttention,
        LatentAttention as LatentAttention,
        LayerGroup as LayerGroup,
        Layout as Layout,
        MixtureOfExperts as MixtureOfExperts,
        Model as Model,
        Network as Network,
        Ownership as Ownership,
        PeakRates as PeakRates,
        Precision as Precision,
        RecurrentMixer as RecurrentMixer,
        Site as Site,
        Speculation as Speculation,
        Workload as Workload,
        eagle_head as eagle_head,
        list_accelerators as list_accelerators,
        list_models as list_models,
        list_speculations as list_speculations,
        load_model as load_model,
        load_speculation as load_speculation,
        prediction_head as prediction_head,
    )

# Public name -> module that defines it. Names are resolved on first use, so that
# `import jaxecon` and `jaxecon --help` do not import JAX.
_HOMES = {
    "._errors": ("InputError", "InfeasibleError"),
    ".scenarios": ("Erdil2025", "Serving", "Toy", "energy", "pools", "prices"),
    ".calibration": (
        "Calibration",
        "calibrate",
        "case_of",
        "load_accelerator",
        "predict_interval",
        "read_measurements",
    ),
    ".cost": ("StepTime", "collective_time"),
    ".optimum": (
        "certified_frontier",
        "certified_many",
        "certified_optimum",
        "cheapest_at_speed",
        "cheapest_prefill",
        "disaggregated_optimum",
        "frontier",
        "max_speed",
        "one_sided",
        "relaxed_frontier",
        "relaxed_optimum",
    ),
    ".sensitivity": (
        "DenseFrontier",
        "Elasticities",
        "ScalingExponent",
        "best_value",
        "dense_frontier",
        "design",
        "distances",
        "elasticities",
        "least_expense",
        "parameters",
        "power_family",
        "responses",
        "scaling_exponent",
        "size_family",
        "tiers",
        "whatif",
        "with_parameters",
    ),
    ".specs": (
        "Accelerator",
        "DenseFeedForward",
        "Efficiencies",
        "GroupedQueryAttention",
        "LatentAttention",
        "LayerGroup",
        "Layout",
        "MixtureOfExperts",
        "Model",
        "Network",
        "Ownership",
        "PeakRates",
        "Precision",
        "RecurrentMixer",
        "Site",
        "Speculation",
        "Workload",
        "eagle_head",
        "load_model",
        "load_speculation",
        "prediction_head",
        "list_accelerators",
        "list_models",
        "list_speculations",
    ),
}
__getattr__, __dir__, __all__ = lazily(__name__, _HOMES)
