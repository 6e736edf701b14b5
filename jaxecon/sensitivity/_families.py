"""Families of scenarios: one question at many sizes, bandwidths, latencies or prices."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from ..scenarios import Scenario
from ._parameters import leaf, parameter_names, with_parameters


class PowerFamily(eqx.Module):
    """A scenario whose named parameters are multiplied by powers of the family's scale.

    Calling it with a scale (1 is the scenario itself) gives a scenario. Any function from a scale to
    a scenario is a family as well, if JAX can trace it.
    """

    scenario: Scenario
    exponents: tuple[tuple[str, float], ...] = eqx.field(static=True)
    size_of: Callable[[Any], Array] | None = eqx.field(static=True, default=None)
    """What the speed is compared with; None for the scale itself."""
    label: str = eqx.field(static=True, default="scale")

    def __call__(self, scale: Array) -> Scenario:
        values = {name: leaf(name)(self.scenario) * scale**power for name, power in self.exponents}
        return with_parameters(self.scenario, values)

    def size(self, scale: Array) -> Array:
        """The abscissa of a power law."""
        return scale if self.size_of is None else self.size_of(self(scale))


def power_family(scenario: Scenario, exponents: Mapping[str, float]) -> PowerFamily:
    """The family in which each named parameter goes as the scale to the given power.

    Raises:
        InputError: for a name that the scenario has not.
    """
    with_parameters(scenario, dict.fromkeys(exponents, 1.0))
    return PowerFamily(scenario, tuple(exponents.items()), label=", ".join(exponents))


_WIDTHS = (
    "width d_model d_ff num_query_heads heads kv_heads hidden norm_parameters other_parameters "
    "vector_parameters kv_rank query_rank nope_dim rope_dim shared_hidden input_columns output_rows"
).split()
_DEPTHS = ("layers", "count")


def size_family(scenario: Scenario, depth_exponent: float = 1.0 / 3.0) -> PowerFamily:
    """The model scaled in depth and width; its abscissa is the number of all parameters.

    Layers go as scale**depth_exponent and every width (model, feed-forward, heads; not the size of a
    head, the vocabulary or the number of experts) as scale**((1 - depth_exponent)/2), so that the
    layers' matrices go as the scale; embeddings grow more slowly.

    Raises:
        InputError: for an exponent outside 0 to 1.
    """
    if not 0.0 <= depth_exponent <= 1.0:
        raise InputError(f"the depth exponent must lie between 0 and 1, got {depth_exponent}")
    exponents = {}
    for name in parameter_names(scenario):
        last = name.rsplit(".", 1)[-1]
        if name.startswith("model.") and last in _DEPTHS:
            exponents[name] = depth_exponent
        elif name.startswith("model.") and last in _WIDTHS:
            exponents[name] = 0.5 * (1.0 - depth_exponent)
    return PowerFamily(scenario, tuple(exponents.items()), _total_parameters, "parameters")


def _total_parameters(scenario: Any) -> Array:
    return jnp.asarray(scenario.model.total_parameters)
