"""Exact discrete search over all legal integer layouts.

For a fixed set of degrees, speed falls and cost falls as the batch grows, so the fastest layout
within a budget has the smallest batch that meets it: a bisection over integers. Degrees whose
speed at the least batch, which bounds theirs, is below the best found are removed unexamined.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InfeasibleError, InputError
from ..scenarios import Scenario
from ..specs import Layout

MAX_ACCELERATORS = 1024
MAX_BATCH = 65536
_CHUNK = 128


class Certified(eqx.Module):
    """The best of all legal integer layouts, and how that was established."""

    layout: Layout
    speed: float
    """Tokens/s of one request."""
    cost: float
    """US dollars per million output tokens."""
    examined: int
    """Layouts whose time was evaluated."""
    pruned: int
    """Layouts that monotonicity or a bound excluded."""
    space_size: int
    """Legal integer layouts that fit in memory."""
    gap: float
    """Relative distance between the best known bound and `speed`; 0 when proven."""
    status: str


@eqx.filter_jit
def _evaluate(scenario: Scenario, layouts: Layout, batch: Array) -> tuple[Array, Array, Array]:
    """(speed, cost, admissible) of each layout at each batch."""
    at = eqx.tree_at(lambda x: x.batch, layouts, batch)
    speed = scenario.speed(at)
    fits = (scenario.memory_margin(at) >= 0.0) & (scenario.demand_margin(at, speed) >= 0.0)
    return speed, scenario.cost_at_speed(at, speed), fits & (batch >= scenario.least_batch(at))


@eqx.filter_jit
def _last_true(
    scenario: Scenario, layouts: Layout, low: Array, high: Array, what: Array, limit: Array
) -> Array:
    """Largest batch in [low, high] that is admissible (what = 0) or dearer than the limit
    (what = 1) or at least as fast as it (what = 2); low - 1 where none. All are monotone."""

    def holds(batch: Array) -> Array:
        speed, cost, fits = _evaluate(scenario, layouts, batch)
        return jnp.where(what == 0, fits, jnp.where(what == 1, cost > limit, speed >= limit))

    def body(state: tuple[Array, Array]) -> tuple[Array, Array]:
        good, bad = state
        middle = jnp.floor((good + bad) / 2.0)
        ok = holds(middle)
        return jnp.where(ok, middle, good), jnp.where(ok, bad, middle)

    def unfinished(state: tuple[Array, Array]) -> Array:
        return jnp.any(state[1] - state[0] > 1.0)

    start = (low - 1.0, jnp.maximum(high, low - 1.0) + 1.0)
    return jax.lax.while_loop(unfinished, body, start)[0]


class Space:
    """Legal degrees with the range of batches that fit, in chunks of one shape."""

    def __init__(self, scenario: Scenario, max_accelerators: int, max_batch: int) -> None:
        self.scenario, self.examined = scenario, 0
        self.layouts: list[tuple[Layout, np.ndarray, np.ndarray]] = []
        self.steps = int(np.ceil(np.log2(max_batch + 1))) + 1
        for layouts in scenario.degrees(max_accelerators):
            low = np.asarray(scenario.least_batch(layouts))
            if low.size == 0:
                continue
            high = np.asarray(self.bisect(layouts, low, np.full_like(low, float(max_batch)), 0, 0.0))
            keep = high >= low
            kept = jax.tree.map(lambda x, k=keep: jnp.asarray(np.asarray(x)[k]), layouts)
            self.layouts.append((kept, low[keep], high[keep]))
        self.size = int(sum((h - lo + 1).sum() for _, lo, h in self.layouts))

    def bisect(
        self, layouts: Layout, low: np.ndarray, high: np.ndarray, what: int, limit: float
    ) -> np.ndarray:
        padded, count = _pad(layouts, low, high)
        layouts_, low_, high_ = padded
        found = _last_true(
            self.scenario, layouts_, low_, high_, jnp.asarray(what), jnp.asarray(limit, jnp.float64)
        )
        self.examined += count * self.steps
        return np.asarray(found)[:count]

    def evaluate(self, layouts: Layout, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (layouts_, batch_, _), count = _pad(layouts, batch, batch)
        speed, cost, _ = _evaluate(self.scenario, layouts_, batch_)
        self.examined += count
        return np.asarray(speed)[:count], np.asarray(cost)[:count]


def _pad(layouts: Layout, low: np.ndarray, high: np.ndarray) -> tuple[tuple[Layout, Array, Array], int]:
    """Repeat the last entry up to a power of two, so that few shapes are ever compiled."""
    count = len(low)
    size = max(_CHUNK, 1 << (count - 1).bit_length())
    index = np.minimum(np.arange(size), count - 1)
    wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[index]), layouts)
    return (wide, jnp.asarray(low[index]), jnp.asarray(high[index])), count


def certified_optimum(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Certified:
    """The fastest legal integer layout at no more than `budget` US dollars per million tokens.

    Ties go to the cheaper, then the smaller layout.

    Raises:
        InputError: for a budget that is not a positive number.
        InfeasibleError: if the model fits on no allowed layout, or none meets the budget.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    return _search(scenario, max_accelerators, max_batch, budget=float(budget))


def cheapest_at_speed(
    scenario: Scenario,
    speed: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Certified:
    """The cheapest legal integer layout of at least `speed` tokens/s per request.

    Raises:
        InputError: for a speed that is not a positive number.
        InfeasibleError: if no allowed layout fits or reaches it.
    """
    if not np.isfinite(speed) or speed <= 0:
        raise InputError(f"the speed must be a positive number of tokens/s, got {speed}")
    return _search(scenario, max_accelerators, max_batch, speed=float(speed))


def _search(
    scenario: Scenario,
    max_accelerators: int,
    max_batch: int,
    budget: float | None = None,
    speed: float | None = None,
) -> Certified:
    space = Space(scenario, max_accelerators, max_batch)
    if space.size == 0:
        raise InfeasibleError(missing_memory(scenario, max_accelerators))
    best: tuple[tuple[float, ...], Layout, float, float] | None = None
    cheapest: tuple[float, float] | None = None
    fastest = 0.0
    for layouts, low, high in space.layouts:
        least_cost_speed, least_cost = space.evaluate(layouts, high)
        bound, _ = space.evaluate(layouts, low)
        fastest = max(fastest, float(bound.max()))
        at = int(np.argmin(least_cost))
        if cheapest is None or least_cost[at] < cheapest[0]:
            cheapest = (float(least_cost[at]), float(least_cost_speed[at]))
        if budget is not None:
            able = least_cost <= budget
            order = np.flatnonzero(able)[np.argsort(-bound[able], kind="stable")]
        else:
            able = bound >= speed
            order = np.flatnonzero(able)
        for start in range(0, len(order), _CHUNK):
            part = order[start : start + _CHUNK]
            if budget is not None and best is not None and bound[part[0]] < -best[0][0]:
                break
            subset = jax.tree.map(lambda x, i=part: jnp.asarray(np.asarray(x)[i]), layouts)
            if budget is not None:
                batch = space.bisect(subset, low[part], high[part], 1, budget) + 1.0
            else:
                assert speed is not None
                batch = space.bisect(subset, low[part], high[part], 2, speed)
            s, c = space.evaluate(subset, batch)
            best = _better(best, subset, batch, s, c, by_speed=budget is not None)
    if best is None:
        assert cheapest is not None
        raise InfeasibleError(_unreachable(budget, speed, cheapest, fastest))
    _, layout, found_speed, found_cost = best
    examined = min(space.examined, space.size)
    return Certified(
        layout, found_speed, found_cost, examined, space.size - examined, space.size, 0.0, "optimal"
    )


def _better(
    best: tuple[tuple[float, ...], Layout, float, float] | None,
    layouts: Layout,
    batch: np.ndarray,
    speed: np.ndarray,
    cost: np.ndarray,
    by_speed: bool,
) -> tuple[tuple[float, ...], Layout, float, float]:
    fields = [np.asarray(x) for x in (layouts.tensor, layouts.pipeline, layouts.draft_tokens)]
    first, second = (-speed, cost) if by_speed else (cost, -speed)
    keys = (first, second, fields[0] * fields[1], *fields, batch)
    i = int(np.lexsort(keys[::-1])[0])
    key = tuple(float(k[i]) for k in keys)
    if best is not None and best[0] <= key:
        return best
    one = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[i]), layouts)
    one = eqx.tree_at(lambda x: x.batch, one, jnp.asarray(batch[i]))
    return key, one, float(speed[i]), float(cost[i])


def _unreachable(
    budget: float | None, speed: float | None, cheapest: tuple[float, float], fastest: float
) -> str:
    if budget is not None:
        return (
            f"a budget of ${budget:g} per million tokens is unreachable: the cheapest layout costs "
            f"${cheapest[0]:.4g} at {cheapest[1]:.4g} tokens/s"
        )
    return f"a speed of {speed:g} tokens/s is unreachable: the fastest layout gives {fastest:.4g}"


def missing_memory(scenario: Scenario, max_accelerators: int) -> str:
    """How far the roomiest allowed layout is from fitting."""
    margins = []
    for layouts in scenario.degrees(max_accelerators):
        if layouts.tensor.size:
            margins.append(float(jnp.max(scenario.memory_margin(layouts))))
    size = float(scenario.accelerator.hbm_size)
    if not margins:
        return f"no legal layout exists on up to {max_accelerators} accelerators"
    return (
        f"the model fits on no allowed layout of up to {max_accelerators} accelerators: the "
        f"roomiest needs {(size - max(margins)) / 1e9:.4g} GB per accelerator, which has "
        f"{size / 1e9:.4g} GB; allow more accelerators or fewer bits"
    )
