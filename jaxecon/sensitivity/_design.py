r"""Inverse design: the smallest change of some numbers that reaches a speed at a price.

$\min_\delta \tfrac12 \sum_i (\delta_i / w_i)^2 \quad \text{such that} \quad
   \ln s^*(\theta e^\delta, \text{budget}) \ge \ln s_{\text{target}},$

with s* the optimal speed. Each step projects the origin on the linearised constraint, whose gradient is
the elasticities at the present point (one reverse pass); at the solution delta is parallel to
w^2 times the elasticities.
"""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._errors import InfeasibleError, InputError
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ..scenarios import Scenario
from ._parameters import parameter_names, parameters, scaled, with_parameters
from ._solved import Solved, limits, slopes, solve

_STEPS = 40
_REACHED = 1e-7
_PARALLEL = 1e-3
_LARGEST = float(np.log(100.0))
"""No step changes a parameter by more than this factor."""


class Design(eqx.Module):
    """A changed scenario and what it reaches."""

    factors: dict[str, float]
    """By how much each free parameter is multiplied."""
    scenario: Scenario
    speed: float
    """Tokens/s of one request at the budget, re-solved."""
    size: float
    """Square root of the sum of (ln factor / weight)**2."""
    elasticities: dict[str, float]
    """Of speed, at the solution."""
    misalignment: float
    """Distance of delta from its projection on w**2 elasticities, relative; 0 at a smooth optimum."""
    status: str
    """"success"; "kink" where the direction cannot be smooth, the target still being reached;
    "not reached"."""


def design(
    scenario: Scenario,
    free: Sequence[str],
    target: tuple[float, float],
    *,
    weights: Mapping[str, float] | None = None,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Design:
    """The smallest change of the `free` parameters that reaches `target`, a pair (speed, budget).

    Args:
        free: names as in `parameters`, such as "accelerator.hbm_bandwidth".
        target: tokens/s of one request, and US dollars per million output tokens.
        weights: how easily each may be changed (1 by default); twice the weight, half the size.

    Raises:
        InputError: for an unknown name, a parameter that is 0, or a target that is not positive.
        InfeasibleError: if no layout meets the budget before any change.
    """
    speed, budget = (float(x) for x in target)
    if not (np.isfinite(speed) and np.isfinite(budget) and speed > 0 and budget > 0):
        raise InputError(f"the target is a positive pair (speed, budget), got {target}")
    values = parameters(scenario)
    with_parameters(scenario, {name: 1.0 for name in (*free, *(weights or {}))})
    if not free or len(set(free)) < len(free):
        raise InputError("name at least one free parameter, each once")
    for name in free:
        if values[name] <= 0:
            raise InputError(f"'{name}' is {values[name]:g}; only positive parameters can be designed")
    index = np.asarray([parameter_names(scenario).index(name) for name in free])
    ease = np.asarray([float((weights or {}).get(name, 1.0)) for name in free])
    if not np.all(ease > 0):
        raise InputError("weights must be positive")
    search = _Search(scenario, index, ease, limits(budget, max_accelerators, max_batch))
    delta = search.run(np.log(speed))
    return _finished(search, free, delta, np.log(speed))


class _Search:
    """Values and gradients of ln speed in delta/w, the free logarithms in units of their weights."""

    def __init__(self, scenario: Scenario, index: np.ndarray, ease: np.ndarray, bounds: object) -> None:
        self.scenario, self.index, self.ease, self.bounds = scenario, index, ease, bounds
        self.count = len(parameter_names(scenario))

    def moved(self, delta: np.ndarray) -> Scenario:
        logs = np.zeros(self.count)
        logs[self.index] = delta * self.ease
        return scaled(self.scenario, jnp.asarray(logs))

    def at(self, delta: np.ndarray) -> tuple[float, np.ndarray, Solved]:
        solved = solve(self.moved(delta), self.bounds)
        by_parameter = np.asarray(slopes(solved.scenario, solved.limits, solved.solution)[0])
        return solved.log_speed, by_parameter[self.index] * self.ease, solved

    def value(self, delta: np.ndarray) -> float:
        try:
            return solve(self.moved(delta), self.bounds).log_speed
        except InfeasibleError:
            return -np.inf

    def run(self, goal: float) -> np.ndarray:
        """delta/w at the end of the projections."""
        delta = np.zeros(len(self.index))
        log_speed, gradient, _ = self.at(delta)
        if log_speed >= goal:
            return delta
        pace, missed = 1.0, np.inf
        for _ in range(_STEPS):
            norm = gradient @ gradient
            if norm <= 1e-12:
                break
            aim = gradient * (goal - log_speed + gradient @ delta) / norm
            move = pace * (aim - delta)
            move *= min(1.0, _LARGEST / max(np.max(np.abs(move)), 1e-300))
            if np.max(np.abs(move)) < _REACHED:
                break
            delta = delta + move
            log_speed, gradient, _ = self.at(delta)
            now = abs(goal - log_speed) + _off(delta, gradient)
            pace = 0.5 * pace if now > 0.9 * missed else pace
            missed = min(missed, now)
        return self._on_target(delta, goal)

    def _on_target(self, delta: np.ndarray, goal: float) -> np.ndarray:
        """delta stretched until the speed is reached: bisection along its ray."""
        low, high = 0.0, 1.0
        for _ in range(20):
            if self.value(high * delta) >= goal:
                break
            low, high = high, 1.3 * high
        else:
            return delta
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.value(middle * delta) >= goal else (middle, high)
        return high * delta


def _off(delta: np.ndarray, gradient: np.ndarray) -> float:
    """Relative distance of delta from its projection on the gradient."""
    norm, size = gradient @ gradient, float(np.linalg.norm(delta))
    if norm <= 0 or size == 0:
        return 0.0
    return float(np.linalg.norm(delta - gradient * (gradient @ delta) / norm)) / size


def _finished(search: _Search, free: Sequence[str], delta: np.ndarray, goal: float) -> Design:
    log_speed, gradient, solved = search.at(delta)
    off = _off(delta, gradient)
    status = "success" if off <= _PARALLEL else "kink"
    if log_speed < goal - 1e-6:
        status = "not reached"
    return Design(
        dict(zip(free, np.exp(delta * search.ease).tolist(), strict=True)),
        solved.scenario,
        float(np.exp(log_speed)),
        float(np.linalg.norm(delta)),
        dict(zip(free, (gradient / search.ease).tolist(), strict=True)),
        off,
        status,
    )
