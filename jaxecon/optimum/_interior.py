r"""An interior-point Newton method for the relaxed problem in one box.

The batch is eliminated: at given degrees the best one is the smallest that meets the budget and
fills the pipeline, the root of the increasing function h = softmin(price slack, fill slack).
What remains is minimised over the fractions y of the box, for a falling sequence of weights mu,

$\varphi_\mu(y) = \ln(\text{seconds per token})
   - \mu \sum_i \ln g_i(y) - \mu \sum_j (\ln y_j + \ln(1 - y_j)),$

with the other slacks g_i > 0 and the smooth arithmetic at a temperature tied to mu. The multiplier
of constraint i is mu/g_i (Boyd and Vandenberghe 2004, sections 11.2 and 11.3); those of price and
fill follow from stationarity in the batch. As mu and the temperature fall together (from above, so
that a feasible point stays feasible), tied terms of a max take weights that tend to their
multipliers.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics import Smooth
from ..scenarios import Scenario
from ._relaxation import CONSTRAINTS, Box, Limits, evaluate

FINAL_BARRIER = 1e-7
FINAL_TEMPERATURE = 1e-5
_FIRST_BARRIER = 0.05
_STAGES, _STEPS, _LAST_STEPS = 16, 8, 16
_TERMS = 1 + len(CONSTRAINTS)


class Jet(eqx.Module):
    """Objective and slacks with first and second derivatives in w = (y, ln batch)."""

    value: Array
    first: Float[Array, "terms 4"]
    second: Float[Array, "terms 4 4"]


class Reduced(eqx.Module):
    """phi as a function of y alone, to second order, the batch following along h = 0."""

    objective: Array
    """ln seconds per token."""
    merit: Array
    """phi where the batch has followed."""
    gradient: Float[Array, "3"]
    hessian: Float[Array, "3 3"]
    shift: Array
    """ln batch still to be added to reach h = 0."""
    slope: Float[Array, "3"]
    """d ln batch / d y."""
    bend: Float[Array, "3 3"]
    multipliers: Array


class Point(eqx.Module):
    """The end of the path."""

    y: Float[Array, "3"]
    log_batch: Array
    objective: Array
    """ln seconds per token by the smooth arithmetic."""
    multipliers: Array
    residual: Array
    """Largest of the gradient, scaled by the distance to the bounds, and |h|."""


def temperature_of(weight: Array) -> Array:
    """The smoothing that goes with a barrier weight."""
    return jnp.maximum(weight, FINAL_TEMPERATURE)


def terms(scenario: Scenario, limits: Limits, box: Box, w: Array, temperature: Array) -> Array:
    """(ln seconds per token, slacks...) at w by the smooth arithmetic."""
    z = jnp.concatenate([box.z(w[:3]), w[3:]])
    objective, slacks = evaluate(scenario, limits, z, box, Smooth(temperature, "above"))
    return jnp.concatenate([objective[None], slacks])


def binding(jet: Jet, temperature: Array) -> tuple[Array, Array, Array, Array]:
    """h = -tau log(sum exp(-x/tau)) of the price and fill slacks x: weights, value, derivatives."""
    x, first, second = jet.value[1:3], jet.first[1:3], jet.second[1:3]
    weights = jax.nn.softmax(-x / temperature)
    value = -temperature * jax.nn.logsumexp(-x / temperature)
    slope = weights @ first
    spread = jnp.einsum("i,ij,ik->jk", weights, first, first) - jnp.outer(slope, slope)
    return weights, value, slope, jnp.einsum("i,ijk->jk", weights, second) - spread / temperature


def reduce(jet: Jet, y: Array, weight: Array) -> Reduced:
    """Eliminate the batch by the implicit function theorem, to second order."""
    slacks, firsts = jet.value[3:], jet.first[3:]
    pull = jnp.concatenate([jnp.ones(1), -weight / slacks])
    rows = jnp.asarray([0, *range(3, _TERMS)])
    relative = firsts / slacks[:, None]
    gradient = pull @ jet.first[rows]
    hessian = jnp.einsum("i,ijk->jk", pull, jet.second[rows]) + weight * relative.T @ relative
    sides = weight * (1.0 / y - 1.0 / (1.0 - y))
    gradient = gradient.at[:3].add(-sides)
    curve = weight * (1.0 / y**2 + 1.0 / (1.0 - y) ** 2)
    hessian = hessian.at[jnp.arange(3), jnp.arange(3)].add(curve)
    shares, h, h1, h2 = binding(jet, temperature_of(weight))
    shift, slope = -h / h1[3], -h1[:3] / h1[3]
    mixed = jnp.outer(h2[:3, 3], slope)
    bend = -(h2[:3, :3] + mixed + mixed.T + h2[3, 3] * jnp.outer(slope, slope)) / h1[3]
    value = jet.value[0] - weight * (jnp.log(slacks).sum() + (jnp.log(y) + jnp.log1p(-y)).sum())
    merit = value + gradient[3] * shift + 0.5 * hessian[3, 3] * shift**2
    moved = gradient + hessian[:, 3] * shift
    cross = jnp.outer(hessian[:3, 3], slope)
    total = hessian[:3, :3] + cross + cross.T + hessian[3, 3] * jnp.outer(slope, slope)
    multipliers = jnp.concatenate([moved[3] / h1[3] * shares, weight / slacks])
    return Reduced(
        jet.value[0],
        merit,
        moved[:3] + moved[3] * slope,
        total + moved[3] * bend,
        shift,
        slope,
        bend,
        multipliers,
    )


class _State(eqx.Module):
    w: Array
    trial: Array
    at: Reduced
    damping: Array


def minimise(scenario: Scenario, limits: Limits, box: Box, y: Array, log_batch: Array) -> Point:
    """Follow the path from a strictly feasible start to the final barrier weight.

    Levenberg-Marquardt steps: a trial that lowers phi is taken and the damping relaxed, any other
    is refused and the damping raised. A stage begins by evaluating the current point anew.
    """
    weights, anew = (jnp.asarray(x) for x in _schedule())

    def step(state: _State, now: tuple[Array, Array]) -> tuple[_State, None]:
        weight, fresh = now
        w = jnp.where(fresh, state.w, state.trial)
        temperature = temperature_of(weight)
        jet = _jet(lambda x: terms(scenario, limits, box, x, temperature), w, temperature)
        at = reduce(jet, w[:3], weight)
        taken = fresh | (at.merit < state.at.merit)
        w, at = jax.tree.map(lambda new, old: jnp.where(taken, new, old), (w, at), (state.w, state.at))
        relaxed = jnp.where(fresh, jnp.minimum(state.damping, 1e-3), 0.1 * state.damping)
        damping = jnp.clip(jnp.where(taken, relaxed, 8.0 * state.damping + 1e-3), 0.0, 1e6)
        return _State(w, _trial(at, w, damping), at, damping), None

    w = jnp.concatenate([y, log_batch[None]])
    state, _ = jax.lax.scan(step, _State(w, w, _nowhere(), jnp.zeros(())), (weights, anew))
    end, y = state.at, state.w[:3]
    scaled = jnp.max(jnp.abs(end.gradient * y * (1.0 - y)))
    residual = jnp.maximum(scaled, jnp.abs(end.shift))
    return Point(y, state.w[3] + end.shift, end.objective, end.multipliers, residual)


def _nowhere() -> Reduced:
    """A placeholder that the first evaluation replaces."""
    zero, three, square = jnp.zeros(()), jnp.zeros(3), jnp.zeros((3, 3))
    return Reduced(zero, zero, three, square, zero, three, square, jnp.zeros(len(CONSTRAINTS)))


def _schedule() -> tuple[np.ndarray, np.ndarray]:
    """Barrier weights step by step, and whether a step begins a stage."""
    stages = np.geomspace(_FIRST_BARRIER, FINAL_BARRIER, _STAGES)
    weights = np.concatenate([np.repeat(stages, _STEPS + 1), np.full(_LAST_STEPS, FINAL_BARRIER)])
    count = np.arange(len(weights))
    return weights, (count % (_STEPS + 1) == 0) & (count < _STAGES * (_STEPS + 1))


def _trial(at: Reduced, w: Array, damping: Array) -> Array:
    y = w[:3]
    diagonal = jnp.abs(jnp.diagonal(at.hessian)) + 1e-12
    move = -solve(at.hessian + damping * jnp.diag(diagonal), at.gradient)
    move = jnp.where(jnp.isfinite(move), move, 0.0)
    room = jnp.where(move > 0, 1.0 - y, y) / jnp.maximum(jnp.abs(move), 1e-300)
    move = move * jnp.minimum(1.0, 0.99 * jnp.min(room))
    batch = w[3] + at.shift + at.slope @ move + 0.5 * move @ at.bend @ move
    return jnp.concatenate([y + move, batch[None]])


def _jet(function: Callable[[Array], Array], w: Array, temperature: Array) -> Jet:
    """Value and exact Jacobian by forward mode; Hessians by differences of Jacobians.

    The differences span a hundredth of the smoothing temperature, below which nothing bends. They
    only steer the steps: gradients, multipliers and the residual are exact. (A second forward mode
    would double the time to compile.)
    """
    units = jnp.eye(w.shape[0])
    step = 1e-2 * temperature

    def jacobian(x: Array) -> tuple[Array, Array]:
        value, first = jax.vmap(lambda unit: jax.jvp(function, (x,), (unit,)))(units)
        return value[0], first.T

    points = jnp.concatenate([w[None], w + step * units])
    values, firsts = jax.vmap(jacobian)(points)
    second = jnp.moveaxis(firsts[1:] - firsts[0], 0, -1) / step
    return Jet(values[0], firsts[0], 0.5 * (second + jnp.swapaxes(second, 1, 2)))


def solve(matrix: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve a small symmetric system by elimination, written out so that it vectorises.

    The matrix is scaled to a unit diagonal first; a pivot of zero gives inf or nan.
    """
    n = right.shape[0]
    scale = 1.0 / jnp.sqrt(jnp.abs(jnp.diagonal(matrix)) + 1e-300)
    scaled = matrix * scale[:, None] * scale[None, :]
    work = jnp.concatenate([scaled, (right * scale)[:, None]], axis=1)
    for k in range(n):
        row = work[k] / work[k, k]
        column = work[:, k].at[k].set(0.0)
        work = (work - column[:, None] * row[None, :]).at[k].set(row)
    return work[:, n] * scale
