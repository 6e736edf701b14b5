"""What would make serving faster, by how much, and how the best layout moves."""

from ._distance import Distance as Distance, distances as distances
from ._elasticities import (
    Elasticities as Elasticities,
    Sided as Sided,
    elasticities as elasticities,
    mean as mean,
    side as side,
)
from ._held import HeldElasticities as HeldElasticities, held_elasticities as held_elasticities
from ._parameters import (
    parameter_names as parameter_names,
    parameters as parameters,
    with_parameters as with_parameters,
)
from ._whatif import Comparison as Comparison, whatif as whatif
from ._dense import DenseFrontier as DenseFrontier, dense_frontier as dense_frontier
from ._design import Design as Design, design as design
from ._exponents import ScalingExponent as ScalingExponent, scaling_exponent as scaling_exponent
from ._families import (
    PowerFamily as PowerFamily,
    power_family as power_family,
    size_family as size_family,
)
from ._responses import Responses as Responses, responses as responses
from ._value import (
    Choice as Choice,
    Tier as Tier,
    best_value as best_value,
    least_expense as least_expense,
    tiers as tiers,
)
