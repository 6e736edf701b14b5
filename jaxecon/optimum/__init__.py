"""The fastest layout at a price: exact search."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ._audit import audit as audit
    from ._exact import (
        Certified as Certified,
        certified_optimum as certified_optimum,
        cheapest_at_speed as cheapest_at_speed,
    )
    from ._frontier import Frontier as Frontier, certified_frontier as certified_frontier
    from ._many import (
        STATUSES as STATUSES,
        CertifiedMany as CertifiedMany,
        certified_many as certified_many,
    )
    from ._many_relaxed import (
        RelaxedMany as RelaxedMany,
        elasticities_many as elasticities_many,
        relaxed_many as relaxed_many,
    )
    from ._relaxed_optimum import (
        RelaxedOptimum as RelaxedOptimum,
        prepare_relaxed as prepare_relaxed,
        relaxed_optimum as relaxed_optimum,
    )
    from ._max_speed import max_speed as max_speed, one_sided as one_sided
    from ._curves import (
        Frontiers as Frontiers,
        RelaxedFrontier as RelaxedFrontier,
        frontier as frontier,
        relaxed_frontier as relaxed_frontier,
    )
    from ._pools import (
        Disaggregated as Disaggregated,
        cheapest_prefill as cheapest_prefill,
        disaggregated_optimum as disaggregated_optimum,
    )
    from ._binding import binding_shares as binding_shares, prepare_shares as prepare_shares
    from ._rounding import rounded as rounded
    from ._space import Space as Space, prepare_space as prepare_space
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "._audit": ("audit",),
            "._exact": ("Certified", "certified_optimum", "cheapest_at_speed"),
            "._frontier": ("Frontier", "certified_frontier"),
            "._many": ("STATUSES", "CertifiedMany", "certified_many"),
            "._many_relaxed": ("RelaxedMany", "elasticities_many", "relaxed_many"),
            "._relaxed_optimum": ("RelaxedOptimum", "prepare_relaxed", "relaxed_optimum"),
            "._max_speed": ("max_speed", "one_sided"),
            "._curves": ("Frontiers", "RelaxedFrontier", "frontier", "relaxed_frontier"),
            "._pools": ("Disaggregated", "cheapest_prefill", "disaggregated_optimum"),
            "._binding": ("binding_shares", "prepare_shares"),
            "._rounding": ("rounded",),
            "._space": ("Space", "prepare_space"),
        },
    )
