"""The rows of a sweep: which combination of names, and which point on the axes, each row is.

Rows run over combinations of names, then over sampled points, then over listed values, the last
axis fastest. Any range of rows can be computed on its own.
"""

import math
import warnings

import numpy as np

from ._config import Axis, SweepConfig


class Points:
    """Axis values by row number."""

    def __init__(self, config: SweepConfig, combinations: int) -> None:
        self.listed = [a for a in config.axes if not a.sampled]
        self.sampled = [a for a in config.axes if a.sampled]
        self.seed = config.seed
        self.samples = 1 if config.samples is None else config.samples
        self.grid = math.prod(len(a.values) for a in self.listed)
        self.per_combination = self.samples * self.grid
        self.rows = combinations * self.per_combination

    def at(self, start: int, stop: int) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
        """(combination, {axis: (number, whether it is a factor)}) of rows start to stop."""
        row = np.arange(start, stop)
        combination, point = np.divmod(row, self.per_combination)
        sample, place = np.divmod(point, self.grid)
        values = self._samples(sample)
        shape = [len(a.values) for a in self.listed] or [1]
        for axis, index in zip(self.listed, np.unravel_index(place, shape), strict=False):
            numbers, relative = (np.array(x) for x in zip(*axis.values, strict=True))
            values[axis.name] = numbers[index], relative[index]
        return combination, values

    def _samples(self, sample: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Values of the sampled axes: a scrambled Sobol sequence (Owen 1998) of the seed."""
        if not self.sampled:
            return {}
        # The range of rows may wrap round into the sample of the next combination.
        needed, where = np.unique(sample, return_inverse=True)
        unit = self._sobol(int(needed[0]), int(needed[-1]) + 1)[needed - needed[0]][where]
        relative = np.zeros(len(sample), bool)
        values = {}
        for axis, t in zip(self.sampled, unit.T, strict=True):
            values[axis.name] = _between(axis, t), relative | axis.values[0].relative
        return values

    def _sobol(self, start: int, stop: int) -> np.ndarray:
        from scipy.stats import qmc  # a second to import, and only samples need it

        engine = qmc.Sobol(len(self.sampled), scramble=True, rng=np.random.default_rng(self.seed))
        if start:
            engine.fast_forward(start)
        with warnings.catch_warnings():
            # A sample need not be a power of two long, as SciPy would have it.
            warnings.simplefilter("ignore", UserWarning)
            return engine.random(stop - start)


def _between(axis: Axis, t: np.ndarray) -> np.ndarray:
    low, high = (v.number for v in axis.values)
    if axis.log:
        return np.exp(np.log(low) + (np.log(high) - np.log(low)) * t)
    return low + (high - low) * t
