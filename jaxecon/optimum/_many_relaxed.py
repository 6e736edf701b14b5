"""Relaxed optima and elasticities of many scenarios of one structure, in compiled calls."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ..scenarios import Scenario
from ..specs import Layout
from ._max_speed import log_max_speed
from ._relaxation import Limits
from ._relaxed import TOLERANCE, Solutions, solve_relaxed
from ._scan import UNFIT
from ._space import MAX_ACCELERATORS, MAX_BATCH

_TILE = 64


class RelaxedMany(eqx.Module):
    """Relaxed optima of S scenarios; nan where a budget is unreachable. Fields have shape (S,)."""

    layout: Layout
    """Degrees; `partition` is "1d", see `RelaxedMany.partition`."""
    partition: np.ndarray
    speed: np.ndarray
    """Tokens/s of one request, by the exact arithmetic."""
    cost: np.ndarray
    """US dollars per million output tokens."""
    shadow_price: np.ndarray
    """d ln speed / d ln budget; nan where the status is not "success"."""
    residual: np.ndarray
    """Of the Karush-Kuhn-Tucker conditions."""
    status: np.ndarray
    """"success", "residual above tolerance" or "budget unreachable", as text."""


@eqx.filter_jit
def _solve_tile(varying: Scenario, fixed: Scenario, budget: Array, sizes: Array) -> tuple[Solutions, ...]:
    """The best local optimum of each partition, for every scenario of a tile."""

    def one(varying: Scenario, budget: Array) -> tuple[Solutions, ...]:
        found = solve_relaxed(eqx.combine(varying, fixed), Limits(budget, sizes[0], sizes[1]))
        return tuple(jax.tree.map(lambda x, k=k: x[jnp.argmax(k.rank)], k) for k in found)

    return jax.vmap(one)(varying, budget)


@eqx.filter_jit
def _slope_tile(
    varying: Scenario, fixed: Scenario, budget: Array, sizes: Array, places: tuple[int | None, ...]
) -> Array:
    """d ln speed / d ln of leaves number `places` (None: the budget), shape (tile, leaves)."""

    def one(varying: Scenario, budget: Array) -> Array:
        leaves, structure = jax.tree.flatten(eqx.combine(varying, fixed))

        def log_speed(logs: Array) -> Array:
            moved, price = list(leaves), budget
            for log, place in zip(logs, places, strict=True):
                if place is None:
                    price = budget * jnp.exp(log)
                else:
                    moved[place] = moved[place] * jnp.exp(log)
            limits = Limits(price, sizes[0], sizes[1])
            return log_max_speed(jax.tree.unflatten(structure, moved), limits)

        value, slopes = jax.value_and_grad(log_speed)(jnp.zeros(len(places)))
        return jnp.where(value > UNFIT, slopes, jnp.nan)

    return jax.vmap(one)(varying, budget)


def relaxed_many(
    varying: Scenario,
    fixed: Scenario,
    budget: np.ndarray,
    *,
    max_accelerators: float = MAX_ACCELERATORS,
    max_batch: float = MAX_BATCH,
    mesh: Mesh | None = None,
) -> RelaxedMany:
    """`relaxed_optimum` of S scenarios.

    Args:
        varying: leaves of shape (S,) that differ among the scenarios, None elsewhere.
        fixed: the other leaves.
        budget: US dollars per million output tokens, shape (S,).
        max_accelerators: the largest replica.
        max_batch: the largest batch.
        mesh: devices along an axis "pairs" over which scenarios are sharded; None for one device.
    """
    sizes = np.array([max_accelerators, max_batch], float)
    kinds = _tiled(lambda v, b: _solve_tile(v, fixed, b, sizes), varying, budget, mesh)
    ranks = np.stack([k.rank for k in kinds])
    choice = np.argmax(ranks, axis=0)
    rows = np.arange(len(budget))

    def chosen(field: Any) -> np.ndarray:
        return np.stack([np.asarray(field(k), float) for k in kinds])[choice, rows]

    log_speed = chosen(lambda k: k.log_speed)
    able = log_speed > UNFIT
    residual = chosen(lambda k: k.residual)
    good = able & (residual <= TOLERANCE)

    def kept(x: np.ndarray, where: np.ndarray = able) -> np.ndarray:
        return np.where(where, x, np.nan)

    degrees = ("tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
    status = np.where(good, "success", np.where(able, "residual above tolerance", "budget unreachable"))
    return RelaxedMany(
        layout=Layout(*(kept(chosen(lambda k, d=d: getattr(k.layout, d))) for d in degrees)),
        partition=np.where(able, np.array([k.layout.partition for k in kinds])[choice], ""),
        speed=kept(np.exp(np.where(able, log_speed, 0.0))),
        cost=kept(chosen(lambda k: k.cost)),
        shadow_price=kept(chosen(lambda k: k.point.multipliers[:, 0]), good),
        residual=kept(residual),
        status=status,
    )


def elasticities_many(
    varying: Scenario,
    fixed: Scenario,
    budget: np.ndarray,
    places: Sequence[int | None],
    *,
    max_accelerators: float = MAX_ACCELERATORS,
    max_batch: float = MAX_BATCH,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """d ln `max_speed` / d ln leaf of S scenarios, shape (S, number of leaves).

    `places` are indices into the leaves of a scenario in JAX's order, None for the budget. Where two
    layouts tie, the derivative is that of the first one found; nan where the budget is unreachable.
    Other arguments as in `relaxed_many`.
    """
    sizes, chosen = np.array([max_accelerators, max_batch], float), tuple(places)
    return _tiled(lambda v, b: _slope_tile(v, fixed, b, sizes, chosen), varying, budget, mesh)


def _tiled(solve: Any, varying: Scenario, budget: np.ndarray, mesh: Mesh | None) -> Any:
    """Results of all scenarios, a tile of fixed width at a time."""
    count, devices = len(budget), 1 if mesh is None else mesh.size
    width = min(_TILE, 1 << (count - 1).bit_length()) * devices
    parts = []
    for start in range(0, count, width):
        index = np.minimum(np.arange(start, start + width), count - 1)
        tile = jax.tree.map(lambda x, i=index: np.asarray(x)[i], (varying, budget))
        if mesh is not None:
            tile = jax.device_put(tile, NamedSharding(mesh, PartitionSpec("pairs")))
        parts.append(jax.tree.map(np.asarray, solve(*tile)))
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)
