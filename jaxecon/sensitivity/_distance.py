"""How far a parameter may move before the certified layout, or its regime, is another one."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError, InputError, nearest
from .._programs import program
from ..optimum import certified_optimum
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ..scenarios import Scenario
from ..specs import Layout
from ._parameters import parameter_names, scaled
from ._regime import regime

REACH = float(np.log(4.0))
"""Changes beyond a factor of four are not looked for."""
_FIRST, _GROWTH, _RESOLUTION = 2e-3, 3.0, 0.05
_GRID = 96


class Distance(eqx.Module):
    """|ln| of the factors, downwards and upwards, at which something changes; inf beyond `REACH`."""

    layout: tuple[float, float]
    """Another set of degrees (the batch apart) becomes the certified optimum, or none is left.
    Bracketed by re-solving at growing distances, then halved to 5 %."""
    regime: tuple[float, float]
    """With the layout held: another roofline, protocol, number of domains or replication decides,
    or memory or demand no longer admit it."""


def distances(
    scenario: Scenario,
    budget: float,
    names: Sequence[str] | None = None,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> dict[str, Distance]:
    """Distances of the named parameters, or of all.

    Raises:
        InputError: for a name that the scenario has not.
        InfeasibleError: if no legal layout meets the budget.
    """
    every = parameter_names(scenario)
    for name in names or ():
        if name not in every:
            raise InputError(f"the scenario has no parameter '{name}'; {nearest(name, every)}")
    sizes = {"max_accelerators": max_accelerators, "max_batch": max_batch}
    layout = certified_optimum(scenario, budget, **sizes).layout
    regimes = _regime_distances(scenario, layout)
    found = {}
    for name in names or every:
        i = every.index(name)

        def same(move: float, i: int = i) -> bool:
            logs = np.zeros(len(every))
            logs[i] = move
            try:
                other = certified_optimum(scaled(scenario, jnp.asarray(logs)), budget, **sizes)
            except InfeasibleError:
                return False
            return _degrees(other.layout) == _degrees(layout)

        down, up = _first_change(same, -1.0), _first_change(same, 1.0)
        found[name] = Distance((down, up), (float(regimes[0, i]), float(regimes[1, i])))
    return found


def _degrees(layout: Layout) -> tuple[object, ...]:
    numbers = (layout.tensor, layout.pipeline, layout.expert, layout.data, layout.draft_tokens)
    return (layout.partition, *(float(x) for x in numbers))


def _first_change(same: Callable[[float], bool], sign: float) -> float:
    """The least distance found at which `same` fails."""
    good, bad = 0.0, _FIRST
    while same(sign * bad):
        if bad >= REACH:
            return np.inf
        good, bad = bad, min(_GROWTH * bad, REACH)
    while bad - good > _RESOLUTION * bad and bad > 1e-4:
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if same(sign * middle) else (good, middle)
    return 0.0 if good == 0.0 and bad <= 1e-4 else bad


def _regime_distances(scenario: Scenario, layout: Layout) -> np.ndarray:
    """(side, parameter): where the regime of a held layout first changes, to a relative 1e-9."""
    grid = jnp.asarray(np.geomspace(1e-9, REACH, _GRID))
    return np.asarray(_regime_search(scenario, layout, grid))


@program
def _regime_search(scenario: Scenario, layout: Layout, grid: Array) -> Array:
    count = len(parameter_names(scenario))
    here = regime(scenario, layout)

    def same(unit: Array, distance: Array) -> Array:
        return jnp.all(regime(scaled(scenario, unit * distance), layout) == here)

    def search(unit: Array) -> Array:
        alike = jax.vmap(lambda d: same(unit, d))(grid)
        first = jnp.argmin(alike)
        low = jnp.where(first > 0, grid[first - 1], 0.0)

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            ok = same(unit, middle)
            return jnp.where(ok, middle, ends[0]), jnp.where(ok, ends[1], middle)

        _, end = jax.lax.fori_loop(0, 32, halve, (low, grid[first]))
        end = jnp.where(first > 0, end, 0.0)
        return jnp.where(jnp.all(alike), jnp.inf, end)

    units = jnp.eye(count)
    return jax.vmap(jax.vmap(search))(jnp.stack([-units, units]))
