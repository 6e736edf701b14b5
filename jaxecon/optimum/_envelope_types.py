"""What the search for the continuous frontier passes from part to part."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..scenarios import Family
from ..specs import Layout
from ._scan import UNFIT

T = TypeVar("T")

FIT = -1e-12
PARTITIONS = ("1d", "2d")
WIDE = {"xla_cpu_prefer_vector_width": 512}
"""Options of the compiler: the widest vectors that the processor has."""


class Spaces(eqx.Module):
    """The families of a scenario with a fixed pipeline degree, one entry each."""

    low: Float[Array, " f"]
    high: Float[Array, " f"]
    stages: Float[Array, " f"]
    partition: Array
    """Index into `PARTITIONS`."""


class Envelope(eqx.Module):
    """The best point at each budget."""

    layout: Layout
    partition: Array
    """Index into `PARTITIONS`."""
    log_speed: Array
    """By the exact arithmetic; `UNFIT` or less where nothing admissible was found."""
    cost: Array
    gain: Array
    """Relative speed that the last round of the search added."""


class Found(NamedTuple):
    """What is said of an `Envelope`."""

    tensor: np.ndarray
    stages: np.ndarray
    batch: np.ndarray
    drafts: np.ndarray
    partition: np.ndarray
    log_speed: np.ndarray
    cost: np.ndarray
    gain: np.ndarray


def rows_of(best: Envelope) -> Array:
    """The rows of `Found` in one array: each array that leaves the device takes a while."""
    at = best.layout
    rows = (at.tensor, at.pipeline, at.batch, at.draft_tokens, best.partition, best.log_speed, best.cost)
    return jnp.stack(jnp.broadcast_arrays(*rows, best.gain))


class Candidates(eqx.Module):
    """Where each budget may be fastest: ranges of x = ln N within a box, and what is known in their middles.

    Axes: candidate, best first; budget.
    """

    stages: Array
    partition: Array
    low: Array
    """Bounds of the box."""
    high: Array
    first: Array
    """ln N at the bounds."""
    last: Array
    x: Array
    width: Array
    """Half of the range's."""
    log_batch: Array
    """Least affordable batch."""
    left: Array
    """d log_batch/dx below the middle."""
    right: Array
    value: Array
    """`score` there."""
    drafts: Array | None = None
    """Drafted tokens, a whole number."""
    structure: Array | None = None
    """`Erdil2025.draft_structure` there."""


def spaces(families: tuple[Family, ...]) -> Spaces:
    """Families without routed experts: the free degree is the tensor degree. Each partition has the same
    degrees, in the same order."""

    def column(name: str) -> Array:
        return jnp.stack([getattr(f, name) for f in families])

    names = ("tensor_low", "tensor_high", "pipeline_low")
    index = jnp.asarray([float(PARTITIONS.index(f.partition)) for f in families])
    return Spaces(*map(column, names), index)


def layout_of(tensor: Array, stages: Array, batch: Array, drafts: Array | float = 0.0) -> Layout:
    one = jnp.ones(())
    return Layout(tensor, stages, one, one, batch, drafts * one)


def score(log_speed: Array, slack: Array) -> Array:
    """ln speed where admissible; else below `UNFIT`, by how much a limit is missed."""
    return jnp.where(slack >= FIT, log_speed, 2.0 * UNFIT + jnp.clip(slack, -50.0, 0.0))


def kept(function: Callable[[], T], positive: Array) -> T:
    """The result behind a condition that holds: else the compiler would repeat it in all that reads it."""
    shapes = jax.eval_shape(function)
    return jax.lax.cond(
        positive > 0.0, function, lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    )
