"""One solved relaxed problem, and everything that is differentiated at it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError
from .._programs import program
from ..optimum._interior import FINAL_BARRIER, FINAL_TEMPERATURE, extended_log, terms
from ..optimum._max_speed import _unknowns, lagrangian
from ..optimum._relaxation import Limits, rebuilt
from ..optimum._relaxed import TOLERANCE, Solutions
from ..optimum._relaxed_optimum import _solve, best_of, limits_of
from ..optimum._scan import UNFIT
from ..scenarios import Scenario
from ._parameters import scaled, vector

NO_BUDGET = 1e12
"""US dollars per million tokens that never bind."""
_TIE, _ALIKE = 1e-6, 1e-12
"""In ln speed: between rivals, and between one layout's optima in several families."""
_BINDING = 1e-3
"""Slacks above this have multipliers below 1e-4."""
# Of capacity, accelerators, demand and largest batch.
_ALL, _MEMORY_AND_DEMAND = (True, True, True, True), (True, False, True, False)


class Solved(eqx.Module):
    """The best local optimum of one scenario at one budget."""

    scenario: Scenario
    limits: Limits
    solution: Solutions
    """Without a leading axis."""
    rivals: list[Solutions]
    """Other local optima of the same speed to a millionth: other layouts, and the same layout in another
    family, where other degrees are free to follow a parameter."""

    @property
    def log_speed(self) -> float:
        """By the exact arithmetic."""
        return float(self.solution.log_speed)

    @property
    def steady(self) -> Solutions:
        """The solution in the first of the families that hold its layout: others may be found first where
        a number is moved."""
        alike = [r for r in self.rivals if abs(float(r.log_speed) - self.log_speed) <= _ALIKE]
        return min([self.solution, *alike], key=lambda s: int(s.box.family))

    @property
    def status(self) -> str:
        """As in `RelaxedOptimum`."""
        residual = float(self.solution.residual)
        if residual <= TOLERANCE:
            return "success"
        return "no interior" if np.isinf(residual) else "residual above tolerance"


def solve(scenario: Scenario, limits: Limits) -> Solved:
    """Solve, in the compiled program that `relaxed_optimum` uses.

    Raises:
        InfeasibleError: if no relaxed layout meets the budget.
    """
    kinds, firsts = _solve(scenario, limits)
    best = best_of(firsts).solution
    if float(best.log_speed) <= UNFIT:
        raise InfeasibleError(
            f"a budget of ${float(limits.budget):g} per million tokens is unreachable by any real "
            f"degrees up to {float(limits.max_accelerators):g} accelerators"
        )
    rivals = []
    for kind in kinds:
        near = np.asarray(kind.log_speed) >= float(best.log_speed) - _TIE
        near &= np.asarray(kind.residual) <= TOLERANCE
        for i in np.flatnonzero(near):
            one = jax.tree.map(lambda x, i=int(i): x[i], kind)
            apart = abs(float(jnp.log(one.layout.tensor / best.layout.tensor))) > 1e-4
            elsewhere = int(one.box.family) != int(best.box.family)
            if apart or elsewhere or one.layout.partition != best.layout.partition:
                rivals.append(one)
    return Solved(scenario, limits, best, rivals)


def limits(budget: float | None, max_accelerators: float, max_batch: float) -> Limits:
    """Limits as arrays; None for no budget."""
    return limits_of(NO_BUDGET if budget is None else budget, max_accelerators, max_batch)


def unknowns(solution: Solutions) -> Array:
    """(fractions of the box, ln tokens, multiplier) of a local optimum."""
    return _unknowns(solution)


def stationary(scenario: Scenario, limits: Limits, solution: Solutions, x: Array) -> Array:
    """The Lagrangian without the barriers of bounds and constraints that are far from binding, whose
    pull is a few millionths; bounds of a side without width keep theirs."""
    box, start = solution.box, unknowns(solution)
    temperature = jnp.asarray(FINAL_TEMPERATURE)

    def slacks(scenario: Scenario, limits: Limits, x: Array) -> tuple[Array, Array]:
        values = terms(scenario, limits, rebuilt(box, scenario, limits), x[:4], temperature)
        return values, jnp.concatenate([values[3:], x[:3], 1.0 - x[:3]])

    _, far = slacks(scenario, limits, start)
    flat = jnp.tile(box.high <= box.low, 2)
    binds = jax.lax.stop_gradient(far < _BINDING).at[-6:].max(flat)
    values, now = slacks(scenario, limits, x)
    barrier = jnp.where(binds, jnp.log(jnp.where(binds & (now > 0.0), now, 1.0)), 0.0).sum()
    h = -temperature * jax.nn.logsumexp(-values[1:3] / temperature)
    return values[0] - FINAL_BARRIER * barrier - x[4] * h


@eqx.filter_jit
def refined(scenario: Scenario, limits: Limits, solution: Solutions) -> tuple[Array, Array]:
    """(unknowns, Hessian of `stationary`) after Newton steps, as long as they lower the gradient.

    Hessians are central differences of exact gradients over a hundredth of the smoothing temperature
    or less, so that one graph of the gradient is compiled.
    """
    start = unknowns(solution)

    def gradient(x: Array) -> Array:
        return jax.grad(lambda z: stationary(scenario, limits, solution, z))(x)

    def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        x, at, jacobian, trial = state
        room = jnp.minimum(trial[:3], 1.0 - trial[:3])
        delta = jnp.append(1e-3 * jnp.minimum(room, 1e-4), jnp.full(2, 1e-7))
        moves = jnp.concatenate([jnp.zeros((1, 5)), jnp.diag(delta), -jnp.diag(delta)])
        found = jax.vmap(gradient)(trial + moves)
        better = jnp.all(jnp.isfinite(found)) & (jnp.max(jnp.abs(found[0])) < jnp.max(jnp.abs(at)))
        jacobian = jnp.where(better, (found[1:6] - found[6:]).T / (2.0 * delta), jacobian)
        x, at = jnp.where(better, trial, x), jnp.where(better, found[0], at)
        trial = x - jnp.linalg.solve(jacobian, at)
        inside = jnp.all((trial[:3] > 0.0) & (trial[:3] < 1.0) & jnp.isfinite(trial[:3]))
        return (x, at, jacobian, jnp.where(inside, trial, x)), None

    nowhere = (start, jnp.full(5, jnp.inf), jnp.eye(5), start)
    x, _, hessian, _ = jax.lax.scan(step, nowhere, length=6)[0]
    return x, 0.5 * (hessian + hessian.T)


def _held(
    scenario: Scenario, limits: Limits, solution: Solutions, straight: tuple[bool, ...] = _ALL
) -> Array:
    """The Lagrangian at the solution, as a function of the scenario and the limits.

    Constraints of which `straight` is true enter as multiplier times slack, with the multipliers that
    the solution has. That has the derivatives of the barrier and does not depend on the slack: one of
    1e-7 is known to 1e-4 only (the smooth arithmetic rounds at 1e-11), and its barrier bends wherever
    a parameter moves the constraint.
    """
    box, x = solution.box, unknowns(solution)
    values = terms(scenario, limits, rebuilt(box, scenario, limits), x[:4], jnp.asarray(FINAL_TEMPERATURE))
    barrier, _, _ = extended_log(values[3:], jnp.asarray(FINAL_BARRIER))
    tangent = -solution.point.multipliers[2:] * values[3:]
    h = -FINAL_TEMPERATURE * jax.nn.logsumexp(-values[1:3] / FINAL_TEMPERATURE)
    return values[0] + jnp.where(jnp.asarray(straight), tangent, barrier).sum() - x[4] * h


@program
def slopes(
    scenario: Scenario, limits: Limits, solution: Solutions, x: Array | None = None
) -> tuple[Array, Array]:
    """d ln speed / d ln of every parameter, and of (budget, largest replica, largest batch).

    The envelope theorem: the derivative of the Lagrangian at fixed unknowns and multipliers (those
    of the solution unless `x` gives refined ones), in one reverse pass.
    """

    def at(numbers: tuple[Scenario, Limits]) -> Array:
        if x is None:
            return -_held(*numbers, solution)
        return -lagrangian(*numbers, solution.box, x)

    by_scenario, by_limits = eqx.filter_grad(at)((scenario, limits))
    bounds = [by_limits.budget, by_limits.max_accelerators, by_limits.max_batch]
    values = [limits.budget, limits.max_accelerators, limits.max_batch]
    return vector(by_scenario) * vector(scenario), jnp.stack(bounds) * jnp.stack(values)


@program
def value(scenario: Scenario, limits: Limits, solution: Solutions) -> Array:
    """The Lagrangian at the solution: what one evaluation without derivatives costs."""
    return _held(scenario, limits, solution)


@program
def frozen_differences(
    scenario: Scenario, limits: Limits, solution: Solutions, step: Array
) -> tuple[Array, Array]:
    """(left, right) difference quotients of -Lagrangian in ln of each parameter and of the budget,
    unknowns held. They disagree where a max, min or bound ties at the solution.

    Memory and demand are straight: they meet other kinks only by coincidence. The most accelerators
    and the largest batch are integers, as full domains are, and keep the barrier, which bends.
    """
    count = vector(scenario).shape[0] + 1

    def at(logs: Array) -> Array:
        budget = limits.budget * jnp.exp(logs[-1])
        moved = eqx.tree_at(lambda z: z.budget, limits, budget)
        return -_held(scaled(scenario, logs[:-1]), moved, solution, _MEMORY_AND_DEMAND)

    here = at(jnp.zeros(count))
    ends = jax.vmap(at)(jnp.concatenate([-step * jnp.eye(count), step * jnp.eye(count)]))
    return (here - ends[:count]) / step, (ends[count:] - here) / step
