r"""An interior-point Newton method for the relaxed problem in one box.

Unknowns are the fractions y of the box and the tokens of a microbatch, at which rooflines tie. The
latter are eliminated: at given degrees the best batch is the smallest that meets the budget and
fills the pipeline, the root of the increasing function h = softmin(price slack, fill slack).
What remains is minimised over the fractions y of the box, for a falling sequence of weights mu,

$\varphi_\mu(y) = \ln(\text{seconds per token})
   - \mu \sum_i \ln g_i(y) - \mu \sum_j (\ln y_j + \ln(1 - y_j)),$

with the other slacks g_i > 0 (ln continued by a parabola below a hundredth of mu, so that a start may
break a constraint) and the smooth arithmetic at a temperature tied to mu. The multiplier
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
from ._relaxation import CONSTRAINTS, Box, Limits, degrees_of, evaluate, spread

FINAL_BARRIER = 1e-7
FINAL_TEMPERATURE = 1e-5
_FIRST_BARRIER = 0.05
_STAGES, _STEPS, _LAST_STEPS = 16, 8, 16
_ASTRAY = 0.1
"""Of the temperature: a batch farther from h = 0 than this is brought there first, since phi is
known there to second order only."""
_EDGE = 1e-2
"""Of the barrier weight: slacks below have a parabola for a barrier."""
_TERMS = 1 + len(CONSTRAINTS)


class Jet(eqx.Module):
    """Objective and slacks with first and second derivatives in w = (y, ln tokens)."""

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
    """ln tokens still to be added to reach h = 0."""
    slope: Float[Array, "3"]
    """d ln tokens / d y."""
    bend: Float[Array, "3 3"]
    multipliers: Array
    broken: Array
    """By how much a slack is negative."""


class Point(eqx.Module):
    """The end of the path."""

    y: Float[Array, "3"]
    log_tokens: Array
    objective: Array
    """ln seconds per token by the smooth arithmetic."""
    multipliers: Array
    residual: Array
    """Largest of the gradient, scaled by the distance to the bounds, |h| and what any slack lacks."""

    def degrees(self, box: Box) -> Array:
        """(ln free degree, ln stages, ln(1 + draft), ln batch)."""
        return degrees_of(jnp.concatenate([self.y, self.log_tokens[..., None]], axis=-1), box)


def temperature_of(weight: Array) -> Array:
    """The smoothing that goes with a barrier weight."""
    return jnp.maximum(weight, FINAL_TEMPERATURE)


def terms(scenario: Scenario, limits: Limits, box: Box, w: Array, temperature: Array) -> Array:
    """(ln seconds per token, slacks...) at w = (y, ln tokens) by the smooth arithmetic."""
    smooth = Smooth(temperature, "above")
    objective, slacks = evaluate(scenario, limits, degrees_of(w, box), box, smooth)
    return jnp.concatenate([objective[..., None], slacks], axis=-1)


def binding(jet: Jet, temperature: Array) -> tuple[Array, Array, Array, Array]:
    """h = -tau log(sum exp(-x/tau)) of the price and fill slacks x: weights, value, derivatives."""
    x, first, second = jet.value[..., 1:3], jet.first[..., 1:3, :], jet.second[..., 1:3, :, :]
    scaled = -x / temperature
    top = jnp.max(scaled, axis=-1, keepdims=True)
    shares = jnp.exp(scaled - top)
    total = jnp.sum(shares, axis=-1, keepdims=True)
    weights, value = shares / total, -temperature * (jnp.log(total) + top)[..., 0]
    slope = _weighted(weights, first)
    spread = jnp.swapaxes(weights[..., None] * first, -1, -2) @ first - _outer(slope, slope)
    return weights, value, slope, _weighted(weights, second) - spread / temperature


def extended_log(slack: Array, weight: Array) -> tuple[Array, Array, Array]:
    """(barrier, minus its first derivative, its second): -weight ln(slack), and below a hundredth of the
    weight its parabola, so that a point that breaks a constraint is pushed back and not refused."""
    edge = _EDGE * weight
    over = jnp.minimum(slack - edge, 0.0) / edge
    held = jnp.maximum(slack, edge)
    value = weight * (-jnp.log(held) - over + 0.5 * over**2)
    return value, weight / held * (1.0 - over), weight / held**2


def reduce(jet: Jet, y: Array, weight: Array) -> Reduced:
    """Eliminate the batch by the implicit function theorem, to second order."""
    value, push, bow = extended_log(jet.value[..., 3:], weight)
    firsts = jet.first[..., 3:, :]
    none = jnp.zeros_like(push[..., :1])
    pull = jnp.concatenate([none + 1.0, -push], axis=-1)
    rows = jnp.concatenate([jet.second[..., :1, :, :], jet.second[..., 3:, :, :]], axis=-3)
    hessian = _weighted(pull, rows) + jnp.swapaxes(bow[..., None] * firsts, -1, -2) @ firsts
    curve = weight * (1.0 / y**2 + 1.0 / (1.0 - y) ** 2)
    hessian = hessian + _diagonal_of(jnp.concatenate([curve, none], axis=-1))
    gradient = _weighted(pull, jnp.concatenate([jet.first[..., :1, :], firsts], axis=-2))
    sides = weight * (1.0 / y - 1.0 / (1.0 - y))
    gradient = gradient - jnp.concatenate([sides, none], axis=-1)
    shares, h, h1, h2 = binding(jet, temperature_of(weight))
    last, tall, full = h1[..., 3], h1[..., 3:], h1[..., 3:, None]
    shift, slope = -h / last, -h1[..., :3] / tall
    mixed, square = _outer(h2[..., :3, 3], slope), _outer(slope, slope)
    bend = -(h2[..., :3, :3] + mixed + jnp.swapaxes(mixed, -1, -2) + h2[..., 3:, 3:] * square) / full
    value = jet.value[..., 0] + value.sum(-1) - weight * (jnp.log(y) + jnp.log1p(-y)).sum(-1)
    merit = value + gradient[..., 3] * shift + 0.5 * hessian[..., 3, 3] * shift**2
    moved = gradient + hessian[..., 3] * shift[..., None]
    cross = _outer(hessian[..., :3, 3], slope)
    total = hessian[..., :3, :3] + cross + jnp.swapaxes(cross, -1, -2) + hessian[..., 3:, 3:] * square
    multipliers = jnp.concatenate([moved[..., 3:] / tall * shares, push], axis=-1)
    return Reduced(
        jet.value[..., 0],
        merit,
        moved[..., :3] + moved[..., 3:] * slope,
        total + moved[..., 3:, None] * bend,
        shift,
        slope,
        bend,
        multipliers,
        jnp.max(jnp.maximum(-jet.value[..., 3:], 0.0), axis=-1),
    )


class _State(eqx.Module):
    w: Array
    trial: Array
    at: Reduced
    damping: Array


def minimise(
    scenario: Scenario, limits: Limits, box: Box, w: Array, begin: Array, free: tuple[int, ...]
) -> Point:
    """Follow the paths from starts w = (y, ln tokens) on a leading axis to the final barrier weight.

    `free` are the sides on which any box has a width.

    A path begins at the first stage whose weight is at most `begin`: a small one stays in the basin
    of its start. Levenberg-Marquardt steps: a trial that lowers phi is taken and the damping relaxed,
    any other is refused and the damping raised. A stage begins by evaluating the current point anew.
    """
    weights, anew = (jnp.asarray(x) for x in _schedule())

    def step(state: _State, now: tuple[Array, Array]) -> tuple[_State, None]:
        weight, fresh = now
        fresh = fresh | (weight > begin)
        at = _reduced(scenario, limits, box, jnp.where(fresh[:, None], state.w, state.trial), weight, free)
        return _advanced(state, at, fresh, weight), None

    state = _State(w, w, _reduced_shape(w), jnp.zeros(w.shape[:1]))
    state, _ = jax.lax.scan(step, state, (weights, anew))
    end, y = state.at, state.w[:, :3]
    scaled = jnp.max(jnp.abs(end.gradient * y * (1.0 - y)), axis=-1)
    residual = jnp.maximum(jnp.maximum(scaled, jnp.abs(end.shift)), end.broken)
    return Point(y, state.w[:, 3] + end.shift, end.objective, end.multipliers, residual)


def _advanced(state: _State, at: Reduced, fresh: Array, weight: Array) -> _State:
    """The state of every start after its query has been evaluated as `at`."""
    astray = jnp.abs(state.at.shift) > _ASTRAY * temperature_of(weight)
    nearer = jnp.abs(at.shift) < 0.5 * jnp.abs(state.at.shift)
    better = jnp.where(astray, nearer, at.merit < state.at.merit)
    taken = fresh | jnp.isfinite(at.merit) & better
    w = jnp.where((taken & ~fresh)[:, None], state.trial, state.w)
    masks = [taken, taken[:, None], taken[:, None, None]]
    at = jax.tree.map(lambda new, old: jnp.where(masks[new.ndim - 1], new, old), at, state.at)
    relaxed = jnp.where(fresh, jnp.minimum(state.damping, 1e-3), 0.1 * state.damping)
    damping = jnp.clip(jnp.where(taken, relaxed, 8.0 * state.damping + 1e-3), 0.0, 1e6)
    return _State(w, _trial(at, w, damping), at, damping)


def _reduced(
    scenario: Scenario, limits: Limits, box: Box, w: Array, weight: Array, free: tuple[int, ...]
) -> Reduced:
    """`reduce` of every start."""
    temperature = temperature_of(weight)
    wide = spread(box)
    jets = _jets(lambda x: terms(scenario, limits, wide, x, temperature), w, temperature, (*free, 3))
    return reduce(jets, w[:, :3], weight)


def _reduced_shape(w: Array) -> Reduced:
    """A placeholder that the first evaluation replaces."""
    zero, three, square = (jnp.zeros((*w.shape[:1], *x)) for x in ((), (3,), (3, 3)))
    prices = jnp.zeros((*w.shape[:1], len(CONSTRAINTS)))
    return Reduced(zero, zero, three, square, zero, three, square, prices, zero)


def _schedule() -> tuple[np.ndarray, np.ndarray]:
    """Barrier weights step by step, and whether a step begins a stage."""
    stages = np.geomspace(_FIRST_BARRIER, FINAL_BARRIER, _STAGES)
    weights = np.concatenate([np.repeat(stages, _STEPS + 1), np.full(_LAST_STEPS, FINAL_BARRIER)])
    count = np.arange(len(weights))
    return weights, (count % (_STEPS + 1) == 0) & (count < _STAGES * (_STEPS + 1))


def _trial(at: Reduced, w: Array, damping: Array) -> Array:
    y = w[:, :3]
    diagonal = jnp.abs(_diagonal(at.hessian)) + 1e-12
    move = -solve(at.hessian + damping[:, None, None] * _diagonal_of(diagonal), at.gradient)
    move = jnp.where(jnp.isfinite(move), move, 0.0)
    room = jnp.where(move > 0, 1.0 - y, y) / jnp.maximum(jnp.abs(move), 1e-300)
    move = move * jnp.minimum(1.0, 0.99 * jnp.min(room, axis=-1, keepdims=True))
    along = jnp.sum(at.slope * move, axis=-1)
    bent = jnp.sum(_weighted(0.5 * move, at.bend) * move, axis=-1)
    batch = w[:, 3] + at.shift + along + bent
    return jnp.concatenate([y + move, batch[:, None]], axis=-1)


def _jets(function: Callable[[Array], Array], w: Array, temperature: Array, free: tuple[int, ...]) -> Jet:
    """Values and exact Jacobians at every w, shape (starts, 4), by forward mode; Hessians by
    differences of Jacobians. Derivatives to unknowns that are not `free` are 0 and cost nothing.

    The differences span a hundredth of the smoothing temperature, below which nothing bends. They
    only steer the steps: gradients, multipliers and the residual are exact. (A second forward mode
    would double the time to compile.)
    """
    units = jnp.eye(w.shape[-1])[np.array(free)]
    step = 1e-2 * temperature
    points = w[:, None] + step * jnp.concatenate([jnp.zeros((1, w.shape[-1])), units])

    def along(unit: Array) -> tuple[Array, Array]:
        return jax.jvp(function, (points,), (jnp.broadcast_to(unit, points.shape),))

    values, firsts = jax.vmap(along, out_axes=(None, -1))(units)
    second = jnp.moveaxis(firsts[:, 1:] - firsts[:, :1], 1, -1) / step
    second = _among(_among(0.5 * (second + jnp.swapaxes(second, -1, -2)), free, -1), free, -2)
    return Jet(values[:, 0], _among(firsts[:, 0], free, -1), second)


def _among(values: Array, free: tuple[int, ...], axis: int) -> Array:
    """Entries of the free unknowns along an axis, with zeros for the others."""
    entries = [jax.lax.index_in_dim(values, i, axis, keepdims=False) for i in range(len(free))]
    known = dict(zip(free, entries, strict=True))
    return jnp.stack([known.get(k, jnp.zeros_like(entries[0])) for k in range(4)], axis)


# In as few operations as may be, and none that scatters or gathers: a command waits for each.


def _weighted(weights: Float[Array, "... n"], values: Array) -> Array:
    """Sum of values, shape (..., n, *rest), by weights."""
    axes = values.ndim - weights.ndim
    return jnp.sum(weights.reshape(*weights.shape, *[1] * axes) * values, axis=-1 - axes)


def _outer(a: Float[Array, "... n"], b: Float[Array, "... m"]) -> Float[Array, "... n m"]:
    return a[..., :, None] * b[..., None, :]


def _diagonal(matrix: Float[Array, "... n n"]) -> Float[Array, "... n"]:
    return matrix.reshape(*matrix.shape[:-2], -1)[..., :: matrix.shape[-1] + 1]


def _diagonal_of(values: Float[Array, "... n"]) -> Float[Array, "... n n"]:
    return jnp.where(np.eye(values.shape[-1], dtype=bool), values[..., None], 0.0)


def solve(matrix: Float[Array, "... n n"], right: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Solve small symmetric systems by elimination, written out so that it vectorises.

    The matrix is scaled to a unit diagonal first; a pivot of zero gives inf or nan.
    """
    n = right.shape[-1]
    scale = 1.0 / jnp.sqrt(jnp.abs(_diagonal(matrix)) + 1e-300)
    scaled = matrix * scale[..., :, None] * scale[..., None, :]
    work = jnp.concatenate([scaled, (right * scale)[..., None]], axis=-1)
    for k in range(n):
        row = work[..., k : k + 1, :] / work[..., k : k + 1, k : k + 1]
        here = (np.arange(n) == k)[:, None]
        work = jnp.where(here, row, work - work[..., k : k + 1] * row)
    return work[..., n] * scale
