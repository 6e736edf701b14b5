r"""Elasticities of the optimum: d ln speed / d ln of every number in the question.

At the relaxed optimum the envelope theorem gives all of them in one reverse pass over the Lagrangian,

$\frac{d \ln s}{d \ln \theta} = -\theta\, \partial_\theta L(x, \theta), \qquad
   \frac{d \ln c}{d \ln \theta}\Big|_s =
   -\frac{d \ln s}{d \ln \theta} \Big/ \frac{d \ln s}{d \ln \text{budget}},$

the second because the speed stays if the budget moves by that much. Where terms, bounds or layouts tie,
the two sides differ; a tie shows as a bend of the Lagrangian at fixed unknowns, and only then is the
problem solved anew on either side.
"""

import functools

import jax.numpy as jnp
import numpy as np

from .._errors import InfeasibleError, InputError
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ..scenarios import Scenario
from ._distance import Distance, distances
from ._held import HeldElasticities, held_elasticities
from ._parameters import parameter_names, scaled
from ..optimum._relaxed import Solutions
from ._solved import Solved, frozen_differences, limits, slopes, solve

Sided = float | tuple[float, float]
"""A derivative, or the pair (left, right) where the two differ."""

_FROZEN_STEP = 1e-4
_BEND = 2e-3
"""Left and right quotients of the frozen Lagrangian farther apart than this are looked into."""
_JUMP = 1e-3
"""And those whose gap does not close in proportion to the step, by this much of the elasticity."""
_STEP, _LONGEST, _RESOLVED = 3e-4, 1.2e-3, 1e-4
"""Beside a kink, a step in which the sides part by ten temperatures of the smoothing (1e-5), within limits: a
tie is resolved, and another one not reached."""
_BESIDE = ((1.0, -2.0), (2.0, 5.0), (4.0, -2.0))
"""Steps and weights that give a of a + b step + c/step."""
_STRAIGHT, _WORTH_A_LOOK = 2e-2, 0.1
"""What slopes may bend from one to four such steps, relative to them or to the second."""
_LOST = 1e-4
"""Slopes beside a kink are not told from optima whose residual is larger."""
_BETWEEN = (1e-4, 5e-5, 2e-4, 3e-5)
_DIFFERENCE_STEP = 1e-4
_WORTH = 5e-3
"""Differences over that step of speeds that the polish leaves within 3e-7 are off by up to this."""
_AGREE, _SURE = 1e-2, 1e-3
"""Of differences over one step and two: where nothing else tells, and beside sides that slopes tell."""
_EQUAL, _SMALL = 2e-3, 0.01
"""Sides closer than the first, relative to the larger or to the second, are one derivative: their mean
is then within 1e-3 of either."""


class Elasticities(dict[str, Sided]):
    """d ln speed at a fixed budget / d ln of each parameter, and of "budget", at the relaxed optimum.

    A mapping from names such as "accelerator.hbm_bandwidth" to a number, or to the pair (left, right)
    where the two sides differ. Parameters that are 0 have elasticity 0.
    """

    cost: dict[str, Sided]
    """d ln cost at a fixed speed / d ln parameter; nan where the budget does not bind."""
    status: str
    """Of the relaxed optimum: "success", or why the derivatives are taken beside it: in the middle between
    the optima of slightly smaller and larger budgets, or, where those tell none, differences of
    re-solved optima; nan where these tell none either."""

    def __init__(self, question: "_Question", values: dict[str, Sided], cost: dict[str, Sided]) -> None:
        super().__init__(values)
        self._question = question
        self.cost = cost
        self.status = question.solved.status

    @property
    def shadow_price(self) -> Sided:
        """d ln speed / d ln budget."""
        return self["budget"]

    @functools.cached_property
    def max_speed(self) -> dict[str, Sided]:
        """d ln of the speed without any budget / d ln parameter."""
        free = _Question(self._question.scenario, None, *self._question.sizes)
        values = free.speed()
        return {k: v for k, v in values.items() if k != "budget"}

    @functools.cached_property
    def certified(self) -> HeldElasticities:
        """The same at the certified optimum, whose integer degrees are held."""
        q = self._question
        return held_elasticities(q.scenario, q.budget, *q.sizes)

    @functools.cached_property
    def distances(self) -> dict[str, Distance]:
        """How far each parameter may move before the certified layout or its regime changes."""
        q = self._question
        return distances(q.scenario, q.budget, None, *q.sizes)


def elasticities(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Elasticities:
    """All elasticities of the optimal speed at a budget, US dollars per million output tokens.

    Integers of the model (layers, heads) are differentiated like real numbers. The result's `cost`,
    `max_speed`, `certified` and `distances` hold the other questions; the last three are computed
    when first read.

    Raises:
        InputError: for a budget that is not a positive number, or a scenario of arrays.
        InfeasibleError: if no relaxed layout meets the budget.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    question = _Question(scenario, budget, max_accelerators, max_batch)
    speed = question.speed()
    cost = {name: question.cost(name, speed) for name in speed if name != "budget"}
    return Elasticities(question, speed, cost)


class _Question:
    """One scenario and budget, solved, and solved anew with parameters moved."""

    def __init__(
        self, scenario: Scenario, budget: float | None, max_accelerators: float, max_batch: float
    ) -> None:
        self.scenario, self.budget = scenario, budget
        self.sizes = (max_accelerators, max_batch)
        self.names = (*parameter_names(scenario), "budget")
        self.steps = np.full(len(self.names), _STEP)
        self.solved = self._moved(np.zeros(len(self.names)))

    def _moved(self, logs: np.ndarray) -> Solved:
        bounds = limits(self.budget, *self.sizes)
        budget = float(bounds.budget) * np.exp(logs[-1])
        return solve(scaled(self.scenario, jnp.asarray(logs[:-1])), limits(budget, *self.sizes))

    def _slopes(self, solved: Solved, solution: Solutions | None = None) -> np.ndarray:
        at = solved.solution if solution is None else solution
        by_parameter, by_limit = slopes(solved.scenario, solved.limits, at)
        return np.append(np.asarray(by_parameter), float(by_limit[0]))

    def speed(self) -> dict[str, Sided]:
        """d ln speed / d ln of each parameter and the budget."""
        if self.solved.status != "success":
            middles, sure = self._between()
            found = [float(x) if sure[i] else self._judged(i, x) for i, x in enumerate(middles)]
            return dict(zip(self.names, found, strict=True))
        plain = self._slopes(self.solved)
        values: dict[str, Sided] = dict(zip(self.names, plain.tolist(), strict=True))
        for i in np.flatnonzero(self._bends(plain)):
            sides = tuple(self._side(int(i), sign) for sign in (-1.0, 1.0))
            if np.isnan(sides).all() and not any(self._feasible(int(i), sign) for sign in (-1.0, 1.0)):
                continue  # nothing beside: keep the envelope's
            values[self.names[i]] = _merged(sides, plain[i])
        return values

    def _side(self, i: int, sign: float) -> float:
        """The derivative on one side of parameter i: the slope there, or, where the optimum does not
        converge, a difference that is sure."""
        found = float(self._extrapolated(i, sign)[i])
        return self._told(i, sign, _SURE) if np.isnan(found) else found

    def _feasible(self, i: int, sign: float) -> bool:
        """Whether anything is, with parameter i moved."""
        try:
            self._moved(sign * _STEP * np.eye(len(self.names))[i])
        except InfeasibleError:
            return False
        return True

    def _bends(self, plain: np.ndarray) -> np.ndarray:
        """Whether each parameter may have two sides: the gap between the left and right quotients of
        the frozen Lagrangian is large, or stays as the step shrinks, where curvature's would halve."""
        gap, jump = self._gaps(self.solved, plain)
        self.steps = np.clip(_RESOLVED / np.maximum(gap, 1e-12), _STEP, _LONGEST)
        smooth = gap <= _BEND * np.maximum(1.0, np.abs(plain))
        return ~(smooth & (jump <= _JUMP * np.maximum(_SMALL, np.abs(plain))))

    def _gaps(self, s: Solved, plain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """That gap, and how much of it stays."""
        gaps = []
        for step in (_FROZEN_STEP, 2.0 * _FROZEN_STEP):
            left, right = frozen_differences(s.scenario, s.limits, s.solution, jnp.asarray(step))
            gaps.append(np.asarray(left) - np.asarray(right))
        gap, jump = np.abs(gaps[0]), np.abs(2.0 * gaps[0] - gaps[1])
        for rival in s.rivals:
            apart = np.abs(self._slopes(s, rival) - plain)
            gap, jump = np.maximum(gap, apart), np.maximum(jump, apart)
        return gap, jump

    def _beside(self, i: int, step: float, budget: float = 0.0) -> np.ndarray:
        """Slopes of the problem solved anew with parameter i, and the budget, moved; nan where
        nothing is feasible, or the optimum is far from stationary."""
        logs = np.zeros(len(self.names))
        logs[-1] = budget
        logs[i] += step
        try:
            solved = self._moved(logs)
        except InfeasibleError:
            return np.full(len(logs), np.nan)
        if not solved.solution.residual <= _LOST:
            return np.full(len(logs), np.nan)
        # Of one family at every step, since what a bound's barrier adds is extrapolated.
        return self._slopes(solved, solved.steady)

    def _extrapolated(self, i: int, sign: float, along: float = 0.0) -> np.ndarray:
        """Slopes just beside the present value of parameter i, from one, two and four steps away; the
        budget moves by `along` per unit.

        A bound that is left behind (a full domain, while the optimum stays on another tie) still pulls
        by barrier weight/distance, which is 3e-4 at a step as long: hence the term in 1/step. Where another
        tie lies between, slopes are not straight in the step, and shorter ones are taken.
        """
        long = float(self.steps[i])
        for step in (long, _STEP) if long > 2.0 * _STEP else (long,):
            moves = [sign * multiple * step for multiple, _ in _BESIDE]
            near, middle, far = (self._beside(i, move, move * along) for move in moves)
            bend = abs(far[i] - 3.0 * middle[i] + 2.0 * near[i])
            if bend <= _STRAIGHT * max(_WORTH_A_LOOK, abs(near[i])):
                break
        return np.asarray([weight for _, weight in _BESIDE]) @ np.stack([near, middle, far])

    def cost(self, name: str, speed: dict[str, Sided]) -> Sided:
        """d ln cost at a fixed speed, from the ratio; at kinks on the path along which speed stays."""
        own, price = speed[name], speed["budget"]
        if not isinstance(own, tuple) and not isinstance(price, tuple):
            return _ratio(own, price)
        i = self.names.index(name)
        guess = _ratio(np.mean(own), np.mean(price))
        if np.isnan(guess):
            return np.nan
        sides = []
        for sign in (-1.0, 1.0):
            along = float(guess)
            for _ in range(2):  # the direction in which the budget must move depends on the ratio
                there = self._extrapolated(i, sign, along)
                along = _ratio(there[i], there[-1])
            sides.append(along)
        return _merged((sides[0], sides[1]), guess)

    def _between(self) -> tuple[np.ndarray, np.ndarray]:
        """(slopes in the middle between budgets a little smaller and larger, whether neither problem may
        have two sides). Nan unless such problems converge for two steps, and where the gap of their
        slopes does not close with the step."""
        middles, bends, sure = [], [], np.ones(len(self.names), bool)
        for step in _BETWEEN:
            (left, one), (right, other) = (self._converged(sign * step) for sign in (-1.0, 1.0))
            if np.isnan(left + right).all():
                continue
            middles.append((left + right) / 2.0)
            bends.append((right - left) / step)
            sure &= one & other
            if len(middles) > 1:
                break
        if len(middles) < 2:
            return np.full(len(self.names), np.nan), np.zeros(len(self.names), bool)
        allowed = _JUMP * np.maximum(_SMALL, np.abs(middles[0]))
        smooth = np.abs(bends[0] - bends[1]) * _BETWEEN[0] <= allowed
        smooth &= np.abs(middles[0] - middles[1]) <= allowed
        return np.where(smooth, middles[0], np.nan), sure & smooth

    def _converged(self, log_budget: float) -> tuple[np.ndarray, np.ndarray]:
        """(slopes where the budget is moved, whether each has one side only); nan where nothing is
        feasible or the optimum does not converge."""
        logs = np.zeros(len(self.names))
        logs[-1] = log_budget
        nothing = np.full(len(logs), np.nan), np.zeros(len(logs), bool)
        try:
            solved = self._moved(logs)
        except InfeasibleError:
            return nothing
        if solved.status != "success":
            return nothing
        plain = self._slopes(solved)
        _, jump = self._gaps(solved, plain)
        return plain, jump <= _JUMP * np.maximum(_SMALL, np.abs(plain))

    def _judged(self, i: int, middle: float) -> Sided:
        """`middle` where differences bear it out, to what they are worth; else the differences."""
        found = self._difference(i)
        apart = np.max(np.abs(np.asarray(found) - middle))
        return float(middle) if apart <= _WORTH * max(1.0, abs(middle)) else found

    def _difference(self, i: int) -> Sided:
        """(left, right) difference quotients of re-solved optima, merged where they agree; nan where
        one and two steps disagree, because the optimum is not located well enough."""
        left, right = self._told(i, -1.0, _AGREE), self._told(i, 1.0, _AGREE)
        return _merged((left, right), 0.5 * (left + right))

    def _told(self, i: int, sign: float, agree: float) -> float:
        """The difference quotient on one side; nan unless that of twice the step agrees."""

        def quotient(step: float) -> float:
            logs = np.zeros(len(self.names))
            logs[i] = step
            try:
                return (self._moved(logs).log_speed - self.solved.log_speed) / step
            except InfeasibleError:
                return np.nan

        near, far = (quotient(k * sign * _DIFFERENCE_STEP) for k in (1.0, 2.0))
        return near if abs(near - far) <= agree * max(0.1, abs(near)) else np.nan


def _ratio(speed: float, price: float) -> float:
    """-speed/price, nan where the price is 0: no budget restores the speed."""
    return -speed / price if abs(price) > 1e-6 else np.nan


def _merged(sides: tuple[float, ...], plain: float) -> Sided:
    """`plain` where the known sides bear it out, their mean where they agree on another number, else both.

    The second is where the optimum lies on a kink in a family that holds the degree which would follow
    it, and to either side another family, in which that degree is free, is the quicker.
    """
    left, right = (float(x) for x in sides)
    if np.isnan(left) and np.isnan(right):
        return np.nan
    if np.isnan(left + right):
        known = right if np.isnan(left) else left
        return float(plain) if abs(plain - known) <= _EQUAL * max(_SMALL, abs(known)) else (left, right)
    allowed, middle = _EQUAL * max(_SMALL, abs(left), abs(right)), 0.5 * (left + right)
    if not abs(left - right) <= allowed:
        return left, right
    return float(plain) if abs(plain - middle) <= allowed else middle


def mean(value: Sided) -> float:
    """The number, or the mean of the two sides, a missing one left out."""
    if not isinstance(value, tuple):
        return value
    finite = [x for x in value if np.isfinite(x)]
    return float(np.mean(finite)) if finite else np.nan


def side(value: Sided, change: float) -> float:
    """The derivative that holds for a move in the direction of `change`."""
    return value[int(change > 0)] if isinstance(value, tuple) else value
