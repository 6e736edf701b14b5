"""From real degrees to the best of their neighbours on the lattice.

The relaxed optimum is no slower than any legal layout it holds, so that a neighbour close to its speed is
close to the best of all. Where none is, the reason is one of three, and wider looks are shaped by them:

- the lattice is coarse: the next legal degree is farther than twice or half the real one;
- degrees across a stage must multiply to those of the experts, so that a lattice point as large and as
  quick splits tensor and data degrees otherwise;
- few sequences are served at once, and a whole number of them is up to one sequence dearer. More data
  ranks, or more stages, with as many more sequences cost little and make the batch finer.
"""

from typing import NamedTuple

import numpy as np

from ..specs import Layout
from ._space import Block, Space

_FACTOR = 2.0
"""Of the first look, and by which each later one is wider."""
_CLOSE = 0.01
"""A neighbour that is slower than the relaxed optimum by no more than this ends the search."""
_DEGREES = ("tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
_PART = 128
_ROUNDING = 1e-9


class _Best(NamedTuple):
    """The fastest affordable neighbour so far."""

    speed: float
    layout: Layout
    cost: float


def neighbours(block: Block, layout: Layout, factor: float = _FACTOR) -> np.ndarray:
    """Whether each set of degrees is near real ones, shape (sets,).

    Near is a tensor degree, a data degree and a product of both within `factor` of the real ones,
    and a draft longer or shorter by at most that many tokens; of a factor above 2 also every larger
    data degree beside tensor degrees and drafts that are within 2. Every pipeline and expert degree is tried.
    """
    degrees = block.layouts
    tensor = np.log(np.asarray(degrees.tensor) / float(layout.tensor))
    data = np.log(np.asarray(degrees.data) / float(layout.data))
    draft = np.abs(np.asarray(degrees.draft_tokens) - float(layout.draft_tokens))
    reach = np.log(factor) + _ROUNDING
    farthest = np.max(np.abs([tensor, data, tensor + data]), axis=0)
    near = (farthest <= reach) & (draft <= factor)
    if factor > _FACTOR:
        least = np.log(_FACTOR) + _ROUNDING
        near |= (np.abs(tensor) <= least) & (data >= -least) & (draft <= _FACTOR)
    return near


def rounded(space: Space, layout: Layout, budget: float) -> tuple[Layout, float, float] | None:
    """(layout, speed, cost) of the fastest affordable neighbour of the relaxed optimum `layout`.

    The first look goes to twice and half the degrees. As long as nothing within a hundredth of the speed
    at `layout` is known, the factor is doubled, until that finds nothing better or, where no neighbour
    meets the budget, all degrees are tried. Sets of degrees whose speed at their least batch, which
    bounds theirs, is below the best found, or that are too dear at their largest, are not searched
    further. None where no layout of `space` meets the budget.
    """
    enough = (1.0 - _CLOSE) * _speed(space, layout)
    tried = [np.zeros(len(block), bool) for block in space.blocks]
    best, factor = None, _FACTOR
    while True:
        before = best
        for block, old in zip(space.blocks, tried, strict=True):
            near = neighbours(block, layout, factor)
            best = _better(space, block, np.flatnonzero(near & ~old), budget, best)
            old |= near
        if best is not None:
            unmoved = factor > _FACTOR and best is before
            if unmoved or best.speed >= enough:
                break
        if all(np.all(old) for old in tried):
            break
        factor *= _FACTOR
    return None if best is None else (best.layout, best.speed, best.cost)


def _speed(space: Space, layout: Layout) -> float:
    """Tokens/s at real degrees, by the program that evaluates the lattice."""
    one = Layout(*(np.full(1, float(getattr(layout, k))) for k in _DEGREES), partition=layout.partition)
    return float(space.evaluate_real(one)[0])


def _better(space: Space, block: Block, index: np.ndarray, budget: float, best: _Best | None) -> _Best | None:
    """The fastest affordable of the sets of degrees at `index` and of `best`."""
    bound, _ = _ends(space, block, index, block.low)
    if best is not None:
        index, bound = index[bound > best.speed], bound[bound > best.speed]
    _, least = _ends(space, block, index, block.high)
    index, bound = index[least <= budget], bound[least <= budget]
    order = np.argsort(-bound, kind="stable")
    for i in range(0, len(order), _PART):
        at = order[i : i + _PART]
        part = index[at if best is None else at[bound[at] > best.speed]]
        if not len(part):
            break
        batch = space.last(block, part, lambda s, c, fits: c > budget) + 1.0
        inside = batch <= block.high[part]
        if not np.any(inside):
            continue
        part, batch = part[inside], batch[inside]
        speed, cost, _ = space.evaluate(block, part, batch)
        k = int(np.argmax(speed))
        if best is None or speed[k] > best.speed:
            best = _Best(float(speed[k]), block.at(int(part[k]), float(batch[k])), float(cost[k]))
    return best


def _ends(space: Space, block: Block, index: np.ndarray, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(speed, cost) of the sets of degrees at `index`, each at its entry of `batch`."""
    parts = [index[i : i + _PART] for i in range(0, len(index), _PART)]
    found = [space.evaluate(block, part, batch[part])[:2] for part in parts]
    speed, cost = np.concatenate([np.zeros((2, 0)), *found], axis=1)
    return speed, cost
