"""From real degrees to the best of their neighbours on the lattice."""

import numpy as np

from ..specs import Layout
from ._space import Block, Space

_FACTOR = 2.0
_DRAFTS = 2.0


def neighbours(block: Block, layout: Layout) -> np.ndarray:
    """Indices of the sets of degrees near real ones.

    Near is at most twice or half the tensor and the data degree, and a draft at most two tokens
    longer or shorter; every pipeline and expert degree is tried, since more stages with as much more
    batch cost little and make the batch per stage finer.
    """
    degrees = block.layouts
    tensor = np.abs(np.log(np.asarray(degrees.tensor) / float(layout.tensor)))
    data = np.abs(np.log(np.asarray(degrees.data) / float(layout.data)))
    draft = np.abs(np.asarray(degrees.draft_tokens) - float(layout.draft_tokens))
    near = (np.maximum(tensor, data) <= np.log(_FACTOR) + 1e-9) & (draft <= _DRAFTS)
    if np.any(near) or not len(block):
        return np.flatnonzero(near)
    return np.asarray([int(np.argmin(tensor + data + draft))])


def rounded(space: Space, layout: Layout, budget: float) -> tuple[Layout, float, float] | None:
    """(layout, speed, cost) of the fastest affordable neighbour; None where there is none."""
    best: tuple[float, Block, int, float, float] | None = None
    for block in space.blocks:
        index = neighbours(block, layout)
        if not len(index):
            continue
        batch = space.last(block, index, lambda s, c, fits: c > budget) + 1.0
        inside = batch <= block.high[index]
        if not np.any(inside):
            continue
        index, batch = index[inside], batch[inside]
        speed, cost, _ = space.evaluate(block, index, batch)
        i = int(np.argmax(speed))
        if best is None or speed[i] > best[0]:
            best = float(speed[i]), block, int(index[i]), float(batch[i]), float(cost[i])
    if best is None:
        return None
    speed_, block, i, batch_, cost_ = best
    return block.at(i, batch_), speed_, cost_
