"""The relaxed layout space of a served model, in families of one free degree across a stage.

A dense model has one: its tensor degree. With routed experts, tensor and data degrees are real but one
of the two is enumerated, so that the families hold every legal layout whose tensor degree is a power
of two or whose data degree is one of `_DATA`: the free degree counts data ranks beside 1, 2, 4, ...
tensor ranks, or tensor ranks beside 1, 2, 4, ... data ranks. The expert degree is the size of the
stage; beyond as many accelerators as there are experts, their number; or 1, which matters only
where the load is uneven. Whatever lies between is evaluated by the exact search alone.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import scalar
from ..specs import Model
from ._base import Across, Family
from ._legal import largest_expert_degrees, largest_tensor

_TENSOR = (1, 2, 4, 8, 16, 32, 64)
_DATA = (1, 2, 4, 8, 16)
_WHOLE = 8
"""Largest enumerated degree at which experts that are split over all ranks are considered."""


class _Bounds(NamedTuple):
    """Largest legal degrees, as arrays that may be traced."""

    tensor: Array
    accelerators: Array
    experts: Array
    hidden: Array


def serving_families(
    models: tuple[Model, ...], max_accelerators: Array, layers: Array | None, longest: Array | None
) -> tuple[Family, ...]:
    """Families for a model (and its draft): several stages with `layers`, drafts up to `longest`."""
    one, none = jnp.ones(()), jnp.zeros(())
    high = jnp.minimum(scalar(max_accelerators), jnp.stack([largest_tensor(m) for m in models]).min())
    rest = (one, one if layers is None else layers, none, none if longest is None else longest)
    flags = (layers is None, longest is not None)
    limits = [x for x in map(largest_expert_degrees, models) if x is not None]
    if largest_expert_degrees(models[0]) is None:
        return (Family(high, *rest, *flags),)
    experts, hidden = (jnp.stack(column).min() for column in zip(*limits, strict=True))
    bounds = _Bounds(high, scalar(max_accelerators), experts, hidden)
    families = []
    for across, low, top in _across(bounds):
        families.append(Family(top, *rest, *flags, tensor_low=low, across=across))
    return tuple(families)


def _across(bounds: _Bounds) -> list[tuple[Across, Array, Array]]:
    """(degrees, least and largest free degree) of every family with routed experts."""
    found = []
    kinds = [(t, True) for t in _TENSOR] + [(d, False) for d in _DATA]
    for fixed, spread in kinds:
        number = jnp.asarray(float(fixed))
        place = {"tensor": number, "spread": jnp.ones(())} if spread else {"data": number}
        most = bounds.accelerators / number if spread else bounds.tensor
        if spread:  # empty where the tensor degree is too large
            most = jnp.where(number <= bounds.tensor, most, 0.5)
        few = jnp.minimum(most, bounds.experts / number)
        many = jnp.minimum(most, bounds.experts * bounds.hidden / number)
        full = Across(**place, follow=jnp.ones(()))
        found.append((full, jnp.ones(()), few))
        capped = Across(**place, expert=bounds.experts)
        found.append((capped, jnp.maximum(bounds.experts / number, 1.0), many))
        if fixed <= _WHOLE:
            found.append((Across(**place), jnp.ones(()), jnp.minimum(most, bounds.hidden / number)))
    return found
