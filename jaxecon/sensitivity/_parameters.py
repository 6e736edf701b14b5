"""The numbers of a scenario by name, as a vector, and changed."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import InputError, nearest
from ..scenarios import Scenario

S = TypeVar("S", bound=eqx.Module)


def parameter_names(scenario: eqx.Module) -> tuple[str, ...]:
    """Names such as "accelerator.hbm_bandwidth" of all array leaves, in the order of the leaves."""
    numbers = eqx.filter(scenario, eqx.is_inexact_array)
    paths = jax.tree_util.tree_flatten_with_path(numbers)[0]
    return tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths)


def parameters(scenario: eqx.Module) -> dict[str, float]:
    """Every number of the question by name, SI units (prices in US dollars per second).

    Raises:
        InputError: for a scenario whose leaves are not single numbers.
    """
    return dict(zip(parameter_names(scenario), np.asarray(vector(scenario)).tolist(), strict=True))


def with_parameters(scenario: S, values: Mapping[str, Any]) -> S:
    """The same scenario with some numbers replaced; values may be traced.

    Raises:
        InputError: for a name that the scenario has not; the message gives the nearest.
    """
    names = parameter_names(scenario)
    for name in values:
        if name not in names:
            raise InputError(f"the scenario has no parameter '{name}'; {nearest(name, names)}")
    leaves, structure = jax.tree.flatten(eqx.filter(scenario, eqx.is_inexact_array))
    changed = [
        jnp.asarray(values[name], jnp.float64) if name in values else leaf
        for name, leaf in zip(names, leaves, strict=True)
    ]
    rest = eqx.filter(scenario, eqx.is_inexact_array, inverse=True)
    return eqx.combine(jax.tree.unflatten(structure, changed), rest)


def leaf(name: str) -> Callable[[Any], Array]:
    """A function from a scenario, or a gradient shaped like one, to the leaf of that name."""

    def get(scenario: Any) -> Array:
        return jax.tree.leaves(eqx.filter(scenario, eqx.is_inexact_array))[
            parameter_names(scenario).index(name)
        ]

    return get


def vector(scenario: eqx.Module) -> Float[Array, " parameters"]:
    """All numbers as one array.

    Raises:
        InputError: for a scenario whose leaves are not single numbers.
    """
    leaves = jax.tree.leaves(eqx.filter(scenario, eqx.is_inexact_array))
    if any(jnp.ndim(x) for x in leaves):
        raise InputError("sensitivities need a scenario of single numbers; take one of the stack")
    return jnp.stack(leaves)


def rebuilt(scenario: Scenario, numbers: Float[Array, " parameters"]) -> Scenario:
    """The scenario with all its numbers taken from an array in the order of `parameter_names`."""
    dynamic, static = eqx.partition(scenario, eqx.is_inexact_array)
    structure = jax.tree.structure(dynamic)
    return eqx.combine(jax.tree.unflatten(structure, list(numbers)), static)


def scaled(scenario: Scenario, logs: Float[Array, " parameters"]) -> Scenario:
    """The scenario with each number multiplied by the exponential of an entry of `logs`."""
    return rebuilt(scenario, vector(scenario) * jnp.exp(logs))
