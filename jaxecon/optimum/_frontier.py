"""The whole certified curve of speed against cost.

For fixed degrees both speed and cost fall as the batch grows. A block of batches [b0, b1] can
therefore hold no point better than (speed at b0, cost at b1); a block whose corner is dominated by
a known layout is dropped whole, any other is halved. What survives are all vertices.
"""

import equinox as eqx
import jax
import numpy as np

from ..scenarios import Scenario
from ..specs import Layout
from ._exact import legal_space
from ._space import MAX_ACCELERATORS, MAX_BATCH, Block, Space


class Frontier(eqx.Module):
    """Every layout that no other beats in both speed and cost, fastest first."""

    speed: np.ndarray
    """Tokens/s of one request, falling."""
    cost: np.ndarray
    """US dollars per million output tokens, falling."""
    layout: Layout
    """Layouts with one entry per point (`partition` is that of the first point)."""
    partition: tuple[str, ...] = eqx.field(static=True)
    """Partition of each point."""
    examined: int = eqx.field(static=True)
    space_size: int = eqx.field(static=True)


class _Staircase:
    """Points of which none is at least as fast and as cheap as another."""

    def __init__(self) -> None:
        self.rows = np.empty((0, 5))  # speed, cost, family, index of degrees, batch

    def add(self, rows: np.ndarray) -> None:
        rows = np.concatenate([self.rows, rows])
        order = np.lexsort((rows[:, 4], rows[:, 3], rows[:, 2], rows[:, 1], -rows[:, 0]))
        rows = rows[order]
        lowest = np.minimum.accumulate(np.concatenate([[np.inf], rows[:-1, 1]]))
        self.rows = rows[rows[:, 1] < lowest]

    def beats(self, speed: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """Whether some point is as fast and as cheap as each corner, and better in one."""
        faster = np.searchsorted(-self.rows[:, 0], -speed, side="right")
        costs = np.concatenate([[np.inf], self.rows[:, 1]])[faster]
        speeds = np.concatenate([[np.inf], self.rows[:, 0]])[faster]
        return (costs < cost) | ((costs == cost) & (speeds >= speed))


def certified_frontier(
    scenario: Scenario, *, max_accelerators: int = MAX_ACCELERATORS, max_batch: int = MAX_BATCH
) -> Frontier:
    """All non-dominated legal integer layouts, by branch and bound over blocks of batches.

    Raises:
        InfeasibleError: if the model fits on no allowed layout.
    """
    space = legal_space(scenario, max_accelerators, max_batch)
    stairs = _Staircase()
    for number, block in enumerate(space.blocks):
        _explore(space, stairs, number, block)
    rows = stairs.rows
    points = [space.blocks[int(r[2])].at(int(r[3]), r[4]) for r in rows]
    kinds = tuple(p.partition for p in points)
    fields = zip(*(jax.tree.leaves(p) for p in points), strict=True)
    stacked = Layout(*(np.stack([np.asarray(v) for v in field]) for field in fields))
    return Frontier(rows[:, 0], rows[:, 1], stacked, kinds, space.examined, space.size)


def _explore(space: Space, stairs: _Staircase, number: int, block: Block) -> None:
    index, lo, hi = np.arange(len(block)), block.low, block.high
    while len(index):
        speed_lo, cost_lo, _ = space.evaluate(block, index, lo)
        speed_hi, cost_hi, _ = space.evaluate(block, index, hi)
        for speed, cost, batch in ((speed_lo, cost_lo, lo), (speed_hi, cost_hi, hi)):
            stairs.add(np.stack([speed, cost, np.full_like(speed, number), index, batch], axis=1))
        open_ = (hi - lo > 1) & ~stairs.beats(speed_lo, cost_hi)
        index, lo, hi = index[open_], lo[open_] + 1, hi[open_] - 1
        middle = np.floor((lo + hi) / 2)
        right = middle < hi
        index = np.concatenate([index, index[right]])
        lo, hi = np.concatenate([lo, middle[right] + 1]), np.concatenate([middle, hi[right]])
