"""The paper's own frontier: a dense grid of real N and batch, and what nothing on it beats.

Source of the method: Erdil 2025 (arXiv:2506.04645), whose code takes 400 x 400 points.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError, InputError
from ..scenarios import Erdil2025, Toy
from ..specs import Layout


class DenseFrontier(eqx.Module):
    """Points of the grid that no other beats in both speed and cost, fastest first."""

    speed: np.ndarray
    """Tokens/s of one request, falling."""
    cost: np.ndarray
    """US dollars per million output tokens, falling."""
    accelerators: np.ndarray
    batch: np.ndarray

    def speed_at(self, cost: np.ndarray | float) -> np.ndarray:
        """The fastest speed at no more than a cost, log-linear between points; 0 below the least."""
        x, y = np.log(self.cost[::-1]), np.log(self.speed[::-1])
        wanted = np.log(np.asarray(cost, dtype=np.float64))
        return np.where(wanted < x[0], 0.0, np.exp(np.interp(wanted, x, y)))


def dense_frontier(
    scenario: Erdil2025 | Toy,
    *,
    most_accelerators: float = 1024.0,
    most_batch: float = 65536.0,
    points: int = 400,
    pipelines: Sequence[float] | None = None,
) -> DenseFrontier:
    """The frontier over `points` accelerator counts times `points` batches, both from 1 and even in the
    logarithm.

    With `pipelines` only those pipeline degrees are used, in 1-D and in 2-D; a draft is then not used.

    Raises:
        InputError: for fewer than 2 points.
        InfeasibleError: if nothing on the grid fits in memory and demand.
    """
    if points < 2:
        raise InputError(f"a grid needs at least 2 points a side, got {points}")
    grid = np.meshgrid(
        np.geomspace(1.0, most_accelerators, points), np.geomspace(1.0, most_batch, points), indexing="ij"
    )
    n, batch = (x.ravel() for x in grid)
    if pipelines is None:
        seconds = np.asarray(scenario.best_step_time(n, batch))
        gained = scenario.tokens_per_sequence if isinstance(scenario, Erdil2025) else 1.0
        speed = float(gained) / seconds
    else:
        speed = np.max([_speed(scenario, n, batch, p) for p in pipelines], axis=0)
    if scenario.workload.demand is not None:
        speed = np.where(batch * speed <= float(scenario.workload.demand), speed, 0.0)
    good = speed > 0.0
    if not np.any(good):
        raise InfeasibleError("nothing on the grid fits in memory and within the demand")
    n, batch, speed = n[good], batch[good], speed[good]
    cost = 1e6 * n * float(scenario.accelerator.price) / (batch * speed)
    order = np.lexsort((cost, -speed))
    before = np.minimum.accumulate(np.append(np.inf, cost[order][:-1]))
    kept = order[cost[order] < before]
    return DenseFrontier(speed[kept], cost[kept], n[kept], batch[kept])


def _speed(scenario: Erdil2025 | Toy, n: np.ndarray, batch: np.ndarray, pipeline: float) -> np.ndarray:
    """Tokens/s with that pipeline degree, the better partition; 0 where it does not fit."""
    best = np.zeros_like(n)
    for partition in ("1d", "2d"):
        layout = Layout(
            tensor=jnp.asarray(n / pipeline),
            pipeline=jnp.full(n.shape, pipeline),
            batch=jnp.asarray(batch),
            draft_tokens=jnp.zeros(n.shape),
            partition=partition,
        )
        speed, margin = (np.asarray(x) for x in _evaluate(scenario, layout))
        legal = (margin >= 0.0) & (pipeline <= np.minimum(n, batch))
        best = np.maximum(best, np.where(legal, speed, 0.0))
    return best


@eqx.filter_jit
def _evaluate(scenario: Erdil2025 | Toy, layout: Layout) -> tuple[Array, Array]:
    return scenario.speed(layout), scenario.memory_margin(layout)
