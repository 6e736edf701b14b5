"""The legal integer layouts of a scenario, evaluated in batches and counted."""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._numerics import scalar
from .._programs import array_program
from ..scenarios import Scenario
from ..specs import Layout

MAX_ACCELERATORS = 1024
MAX_BATCH = 65536
_LEAST_WIDTH = 128
_BATCHES = 2**24
"""More than any batch, in the number under which an evaluation is recorded."""


@array_program
def _evaluate(scenario: Scenario, layouts: Layout, batch: Array) -> tuple[Array, Array, Array, Array]:
    """(speed, cost, admissible, least batch) of each layout at each batch."""
    at = eqx.tree_at(lambda x: x.batch, layouts, batch)
    speed = scenario.speed(at)
    fits = (scenario.memory_margin(at) >= 0.0) & (scenario.demand_margin(at, speed) >= 0.0)
    least = scenario.least_batch(at)
    return speed, scenario.cost_at_speed(at, speed), fits & (batch >= least), least


class Block:
    """Sets of degrees of one structure, each with the range of batches that is admissible."""

    def __init__(self, layouts: Layout, low: np.ndarray, high: np.ndarray, number: int) -> None:
        self.layouts = jax.tree.map(np.asarray, layouts)
        self.low, self.high, self.number = low, high, number

    def __len__(self) -> int:
        return len(self.low)

    @property
    def size(self) -> int:
        """Layouts in the block."""
        return int((self.high - self.low + 1).sum())

    def take(self, index: np.ndarray) -> Layout:
        """The degrees at `index`."""
        return jax.tree.map(lambda x: x[index], self.layouts)

    def at(self, index: int, batch: float) -> Layout:
        """One layout."""
        one = jax.tree.map(lambda x: scalar(x[index]), self.layouts)
        return eqx.tree_at(lambda x: x.batch, one, scalar(batch))


def _widened(count: int) -> np.ndarray:
    """Numbers of `count` rows, the last one again up to a power of two."""
    width = max(_LEAST_WIDTH, 1 << (count - 1).bit_length())
    return np.minimum(np.arange(width), count - 1)


def prepare_space(scenario: Scenario, max_accelerators: int = MAX_ACCELERATORS) -> None:
    """In a command's process begin to compile what the first look at a `Space` runs."""
    for layouts in scenario.degrees(max_accelerators):
        if count := np.size(layouts.tensor):
            first = Block(layouts, np.ones(count), np.ones(count), 0).take(_widened(count))
            _evaluate.prepare(scenario, first, np.ones(np.size(first.tensor)))


class Space:
    """All legal integer layouts up to a size, in blocks; every evaluation is recorded.

    Memory and demand only tighten as the batch grows, so the admissible batches of each set of
    degrees are a range, whose end is found by bisection.
    """

    def __init__(
        self,
        scenario: Scenario,
        max_accelerators: int = MAX_ACCELERATORS,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self.scenario = scenario
        self.blocks: list[Block] = []
        self._seen: list[np.ndarray] = []
        for number, layouts in enumerate(scenario.degrees(max_accelerators)):
            ones = np.ones(np.size(layouts.tensor))
            if ones.size == 0:
                continue
            everything = np.arange(ones.size)
            low = self._run(Block(layouts, ones, ones, number), everything, ones)[3]
            block = Block(layouts, low, np.full_like(low, float(max_batch)), number)
            high = self.last(block, everything, lambda s, c, fits: fits)
            keep = high >= low
            self.blocks.append(Block(block.take(keep), low[keep], high[keep], number))
        self.size = sum(block.size for block in self.blocks)
        # Locating the ends looks at layouts that do not fit; they are not of the space.
        self._seen.clear()

    @property
    def examined(self) -> int:
        """Distinct layouts of the space whose speed and cost were evaluated."""
        return len(np.unique(np.concatenate(self._seen))) if self._seen else 0

    @property
    def examined_degrees(self) -> int:
        """Distinct sets of degrees among them."""
        return len(np.unique(np.concatenate(self._seen) // _BATCHES)) if self._seen else 0

    def evaluate(
        self, block: Block, index: np.ndarray, batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(speed, cost, admissible) of the degrees at `index`, each at its batch."""
        keys = (block.number * 2**24 + index.astype(np.int64)) * _BATCHES + batch.astype(np.int64)
        self._seen.append(keys)
        speed, cost, fits, _ = self._run(block, index, batch)
        return speed, cost, fits

    def evaluate_real(self, layouts: Layout) -> np.ndarray:
        """Speed of layouts of any real degrees and batches, which need not be of the space."""
        batch = np.asarray(layouts.batch)
        return self._run(Block(layouts, batch, batch, 0), np.arange(len(batch)), batch)[0]

    def _run(self, block: Block, index: np.ndarray, batch: np.ndarray) -> tuple[np.ndarray, ...]:
        """`_evaluate` at widths that are powers of two, so few shapes are compiled."""
        wide = _widened(len(index))
        # NumPy arrays go in as they are: moving them by jnp.asarray compiles a program per shape.
        found = _evaluate(self.scenario, block.take(index[wide]), batch[wide])
        return tuple(np.asarray(x)[: len(index)] for x in found)

    def last(
        self,
        block: Block,
        index: np.ndarray,
        holds: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """The largest admissible batch at which a monotone condition holds; low - 1 where none.

        `holds(speed, cost, fits)` must turn from true to false at most once as the batch grows.
        """
        good, bad = block.low[index] - 1.0, block.high[index] + 1.0
        while True:
            active = np.flatnonzero(bad - good > 1.0)
            if not len(active):
                return good
            middle = np.floor((good[active] + bad[active]) / 2.0)
            ok = holds(*self.evaluate(block, index[active], middle))
            good[active] = np.where(ok, middle, good[active])
            bad[active] = np.where(ok, bad[active], middle)
