r"""The optimal speed as a differentiable function of every number in the question.

At the optimum of the smoothed problem, with unknowns x = (y, ln tokens, nu) and the Lagrangian
L(x, theta) = phi(y, ln tokens; theta) - nu h(y, ln tokens; theta), stationarity dL/dx = 0 gives

$d \ln s = -\partial_\theta L\, d\theta, \qquad
   dx = -(\partial_{xx} L)^{-1} \partial_{x\theta} L\, d\theta,$

the envelope theorem and the implicit function theorem (Fiacco 1983, chapter 3). The first rule
does not differentiate the solver, and uses the multipliers of tied terms and active constraints; the
second makes a derivative of the first right as well.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..scenarios import Scenario
from ._interior import FINAL_BARRIER, FINAL_TEMPERATURE, extended_log, solve, terms
from ._relaxation import Box, Limits, rebuilt
from ._relaxed import Solutions, solve_relaxed
from ._relaxed_optimum import limits_of
from ._scan import UNFIT
from ._space import MAX_ACCELERATORS, MAX_BATCH


def lagrangian(scenario: Scenario, limits: Limits, box: Box, x: Array) -> Array:
    """L at x = (y, ln tokens, nu), with the box's bounds following from the scenario."""
    y, w, nu = x[:3], x[:4], x[4]
    values = terms(scenario, limits, rebuilt(box, scenario, limits), w, jnp.asarray(FINAL_TEMPERATURE))
    barrier, _, _ = extended_log(values[3:], jnp.asarray(FINAL_BARRIER))
    sides = FINAL_BARRIER * (jnp.log(y) + jnp.log1p(-y)).sum()
    h = -FINAL_TEMPERATURE * jax.nn.logsumexp(-values[1:3] / FINAL_TEMPERATURE)
    return values[0] + barrier.sum() - sides - nu * h


def _unknowns(solution: Solutions) -> Array:
    """x of one local optimum; nu is the sum of the price and fill multipliers."""
    point = solution.point
    nu = point.multipliers[..., 0] + point.multipliers[..., 1]
    x = jnp.concatenate([point.y, point.log_tokens[..., None], nu[..., None]], axis=-1)
    known = jnp.isfinite(solution.residual) & (solution.log_speed > UNFIT)
    return jnp.where(known[..., None], x, 0.5)


def log_max_speed(scenario: Scenario, limits: Limits) -> Array:
    """ln of the optimal relaxed speed; `UNFIT` or less where the budget is unreachable."""
    frozen = jax.lax.stop_gradient
    solutions = solve_relaxed(_map(frozen, scenario), _map(frozen, limits))
    values = []
    for kind in solutions:
        best = jnp.argmax(kind.rank)
        one = jax.tree.map(lambda x, i=best: frozen(x[i]), kind)
        values.append(_value(scenario, limits, one))
    return jnp.max(jnp.stack(values))


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    return jax.tree.map(lambda x: function(x) if eqx.is_array(x) else x, tree)


def _value(scenario: Scenario, limits: Limits, solution: Solutions) -> Array:
    """ln speed of one local optimum with its derivatives in scenario and limits."""
    numbers, structure = eqx.partition((scenario, limits), eqx.is_inexact_array)
    box = solution.box

    def at(numbers: Any, x: Array) -> Array:
        scenario, limits = eqx.combine(numbers, structure)
        return lagrangian(scenario, limits, box, x)

    @jax.custom_jvp
    def optimum(numbers: Any) -> Array:
        return _unknowns(solution)

    @optimum.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
        x = optimum(*primals)
        matrix = jax.hessian(at, argnums=1)(*primals, x)
        _, change = jax.jvp(lambda numbers: jax.grad(at, argnums=1)(numbers, x), primals, tangents)
        inverse = jax.vmap(solve, in_axes=(None, 1), out_axes=1)(matrix, jnp.eye(len(x)))
        return x, -jax.lax.stop_gradient(inverse) @ change

    @jax.custom_jvp
    def value(numbers: Any) -> Array:
        return solution.log_speed

    @value.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
        x = optimum(*primals)
        _, change = jax.jvp(lambda numbers: at(numbers, x), primals, tangents)
        reachable = solution.log_speed > UNFIT
        return value(*primals), jnp.where(reachable, -change, 0.0)

    return value(numbers)


def max_speed(
    scenario: Scenario,
    budget: float | Array,
    *,
    max_accelerators: float = MAX_ACCELERATORS,
    max_batch: float = MAX_BATCH,
) -> Array:
    """The relaxed optimum's speed, tokens/s of one request, as an array.

    Works under `jax.jit` (`eqx.filter_jit`), `jax.vmap` and `jax.grad`, to second order, in the
    scenario's numbers and in the budget. Where two layouts tie, the derivative is that of the first
    one found; `one_sided` gives both. An unreachable budget gives speed 0 with derivative 0.
    """
    log_speed = log_max_speed(scenario, limits_of(budget, max_accelerators, max_batch))
    return jnp.where(log_speed > UNFIT, jnp.exp(log_speed), 0.0)


@eqx.filter_jit
def _log_slopes(scenario: Scenario, limits: Limits) -> tuple[Scenario, Limits]:
    return eqx.filter_grad(lambda pair: log_max_speed(*pair))((scenario, limits))


def one_sided(
    scenario: Scenario,
    budget: float,
    where: Callable[[Scenario], Array],
    *,
    step: float = 2e-4,
    max_accelerators: float = MAX_ACCELERATORS,
    max_batch: float = MAX_BATCH,
) -> tuple[float, float]:
    """(left, right) derivatives d ln speed / d ln parameter, which differ at a kink.

    The problem is solved anew with the parameter `where(scenario)` moved by a relative `step` to
    either side, and the derivative taken there: at a change of layout or of the binding term each
    side has its own. `step` is well above the smoothing temperature (1e-5), so that a tie is resolved;
    away from kinks the two agree to the order of `step`.
    """
    limits = limits_of(budget, max_accelerators, max_batch)
    sides = []
    for sign in (-1.0, 1.0):
        moved = eqx.tree_at(where, scenario, where(scenario) * jnp.exp(sign * step))
        slopes, _ = _log_slopes(moved, limits)
        sides.append(float(where(slopes) * where(moved)))
    return sides[0], sides[1]
