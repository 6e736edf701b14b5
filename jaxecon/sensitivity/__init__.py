"""What would make serving faster, by how much, and how the best layout moves."""

from ._distance import Distance as Distance, distances as distances
from ._elasticities import Elasticities as Elasticities, elasticities as elasticities
from ._held import HeldElasticities as HeldElasticities, held_elasticities as held_elasticities
from ._parameters import (
    parameter_names as parameter_names,
    parameters as parameters,
    with_parameters as with_parameters,
)
