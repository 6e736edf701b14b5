r"""Elasticities of a legal integer layout, whose degrees are held while the batch may follow.

With s(theta, b) and c(theta, b) the speed and cost of the layout at a real batch b, by the exact
arithmetic, and subscripts for logarithmic derivatives,

$\frac{d \ln s}{d \ln \theta}\Big|_c = s_\theta - s_b\, c_\theta / c_b, \qquad
   \frac{d \ln c}{d \ln \theta}\Big|_s = c_\theta - c_b\, s_\theta / s_b .$

Derivatives are taken a billionth to either side, where no max, min or ceil ties.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from ..optimum import Certified, certified_optimum
from ..scenarios import Scenario
from ..specs import Layout
from ._parameters import parameter_names, scaled
from ._solved import NO_BUDGET

_BESIDE = 1e-9
_JUMP = 1e-6
_EQUAL = 1e-7
Sided = float | tuple[float, float]


class HeldElasticities(eqx.Module):
    """At the certified optimum, degrees held; each a number, or (left, right) where they differ.

    A side on which the value jumps (a full domain that shrinks) is infinite. Memory and demand are
    not looked at: how long the layout stays the best is a question of `distances`.
    """

    found: Certified
    """The layout, at whose own cost (a little below the budget) or speed all is held."""
    speed: dict[str, Sided]
    """d ln speed at a fixed cost, the batch following as a real number, though not below the least."""
    cost: dict[str, Sided]
    """d ln cost at a fixed speed, the batch following; nan where no batch restores the speed."""
    speed_at_batch: dict[str, Sided]
    """d ln speed with the batch held as well; the cost moves by its own."""
    cost_at_batch: dict[str, Sided]
    """d ln cost with the batch held; the speed moves by its own."""
    max_speed: dict[str, Sided]
    """d ln speed of the fastest legal layout without a budget, whose batch is the least."""


@program
def _sides(scenario: Scenario, layout: Layout) -> tuple[Array, Array, Array]:
    """(values, values beside, derivatives) of (ln speed, ln cost) in ln of every parameter and of
    the batch: shapes (2,), (2 sides, parameters + 1, 2) twice."""
    count = len(parameter_names(scenario)) + 1

    def at(logs: Array) -> Array:
        moved = eqx.tree_at(lambda x: x.batch, layout, layout.batch * jnp.exp(logs[-1]))
        question = scaled(scenario, logs[:-1])
        speed = question.speed(moved)
        return jnp.log(jnp.stack([speed, question.cost_at_speed(moved, speed)]))

    units = jnp.eye(count)

    def beside(sign: Array) -> tuple[Array, Array]:
        return jax.vmap(lambda unit: jax.jvp(at, (sign * _BESIDE * unit,), (unit,)))(units)

    values, derivatives = jax.vmap(beside)(jnp.asarray([-1.0, 1.0]))
    return at(jnp.zeros(count)), values, derivatives


def held_elasticities(
    scenario: Scenario, budget: float, max_accelerators: int, max_batch: int
) -> HeldElasticities:
    """Elasticities of the certified optimum with its degrees held.

    Raises:
        InfeasibleError: if no legal layout meets the budget.
    """
    sizes = {"max_accelerators": max_accelerators, "max_batch": max_batch}
    found = certified_optimum(scenario, budget, **sizes)
    fastest = certified_optimum(scenario, NO_BUDGET, **sizes)
    names = parameter_names(scenario)
    at_batch = _raw(scenario, found.layout)
    least = float(found.layout.batch) <= float(scenario.least_batch(found.layout))
    speed, cost = _following(at_batch, least)
    return HeldElasticities(
        found,
        _named(names, speed),
        _named(names, cost),
        _named(names, at_batch[:, :-1, 0]),
        _named(names, at_batch[:, :-1, 1]),
        _named(names, _raw(scenario, fastest.layout)[:, :-1, 0]),
    )


def _raw(scenario: Scenario, layout: Layout) -> np.ndarray:
    """Derivatives (side, parameter, speed or cost), infinite where the value jumps."""
    here, beside, derivatives = (np.asarray(x) for x in _sides(scenario, layout))
    jump = beside - here
    signs = np.asarray([-1.0, 1.0])[:, None, None]
    return np.where(np.abs(jump) > _JUMP, np.copysign(np.inf, jump * signs), derivatives)


def _following(raw: np.ndarray, least: bool) -> tuple[np.ndarray, np.ndarray]:
    """(d ln speed at fixed cost, d ln cost at fixed speed), each (side, parameter)."""
    speed, cost = np.empty(raw[:, :-1, 0].shape), np.empty(raw[:, :-1, 0].shape)
    for k, sign in enumerate((-1.0, 1.0)):
        for i, (s, c) in enumerate(raw[k, :-1]):
            if not np.isfinite(s) or not np.isfinite(c):
                speed[k, i], cost[k, i] = s, c
                continue
            up = sign * c > 0  # costs rise: a larger batch restores them
            s_b, c_b = raw[int(up), -1]
            speed[k, i] = s if least and not up else s - s_b * c / c_b
            up = sign * s > 0  # speed is gained: a larger batch gives it back
            s_b, c_b = raw[int(up), -1]
            stuck = (least and not up and s != 0.0) or s_b == 0.0
            cost[k, i] = np.nan if stuck else c - c_b * s / s_b
    return speed, cost


def _named(names: tuple[str, ...], sides: np.ndarray) -> dict[str, Sided]:
    return {name: _sided(*sides[:, i]) for i, name in enumerate(names)}


def _sided(left: float, right: float) -> Sided:
    if left == right or (np.isnan(left) and np.isnan(right)):
        return float(left)
    finite = np.isfinite(left) and np.isfinite(right)
    close = finite and abs(left - right) <= _EQUAL * max(1.0, abs(left), abs(right))
    return float(0.5 * (left + right)) if close else (float(left), float(right))
