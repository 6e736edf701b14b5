"""Which point of a frontier is worth most, and which price and speed tiers a provider would offer."""

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from .._errors import InputError


class Choice(eqx.Module):
    """One point of a frontier."""

    index: int
    speed: float
    """Tokens/s of one request."""
    cost: float
    """US dollars per million output tokens."""
    value: float
    """What was maximised, or the US dollars that were minimised."""


class Tier(eqx.Module):
    """One offer, and the users who would take it."""

    index: int
    speed: float
    cost: float
    waiting_from: float
    """Least US dollars per hour of waiting at which a user prefers this tier to the other ones."""
    waiting_to: float


def best_value(speed: ArrayLike, cost: ArrayLike, exponent: float = 4.0) -> Choice:
    """The point that maximises speed**exponent / cost.

    Source: Erdil 2025, whose code takes the exponent 4: a doubling of speed is worth 16 times the
    price.

    Raises:
        InputError: for an empty frontier, or numbers that are not positive.
    """
    speeds, costs = _frontier(speed, cost)
    value = speeds**exponent / costs
    i = int(np.argmax(value))
    return Choice(i, float(speeds[i]), float(costs[i]), float(value[i]))


def least_expense(
    speed: ArrayLike, cost: ArrayLike, dollars_per_hour: float, tokens_per_task: float = 1e6
) -> Choice:
    """The point at which a task costs least, its tokens and the time spent waiting together.

    A task of n tokens generated one after another, as in the loop of an agent, costs
    n (c/1e6 + v/(3600 s)) with c the cost per million tokens, s the speed and v the value of an
    hour; n scales the expense and leaves the choice as it is.

    Raises:
        InputError: for an empty frontier, or numbers that are not positive.
    """
    speeds, costs = _frontier(speed, cost)
    if not dollars_per_hour >= 0 or not tokens_per_task > 0:
        raise InputError("the value of an hour must be at least 0, and a task at least one token")
    expense = tokens_per_task * (costs / 1e6 + dollars_per_hour / (3600.0 * speeds))
    i = int(np.argmin(expense))
    return Choice(i, float(speeds[i]), float(costs[i]), float(expense[i]))


def tiers(
    speed: ArrayLike,
    cost: ArrayLike,
    count: int | None = None,
    *,
    waiting: tuple[float, float] = (0.01, 1000.0),
) -> tuple[Tier, ...]:
    """The tiers of a frontier that somebody would take, slowest first.

    A user whose hour of waiting is worth v chooses the least c/1e6 + v/(3600 s), so only the lower
    convex hull of cost against 1/speed is ever chosen. With a `count`, those tiers are kept for which
    users whose v is spread evenly in the logarithm over `waiting` pay least above the whole hull, by
    dynamic programming over the hull.

    Raises:
        InputError: for an empty frontier, numbers that are not positive, or a count below 1.
    """
    speeds, costs = _frontier(speed, cost)
    low, high = waiting
    if not 0 < low < high:
        raise InputError(f"waiting must be a rising pair of US dollars per hour, got {waiting}")
    if count is not None and count < 1:
        raise InputError(f"there must be at least 1 tier, got {count}")
    users = np.geomspace(low, high, 400)
    kept = _hull(1.0 / speeds, costs)
    expense = costs[kept] / 1e6 + users[:, None] / (3600.0 * speeds[kept])
    wanted = np.unique(np.argmin(expense, axis=1))
    kept, expense = kept[wanted], expense[:, wanted]
    if count is not None and count < len(kept):
        kept = kept[_chosen(expense / expense.min(axis=1, keepdims=True), count)]
    return tuple(_offers(speeds, costs, kept, low, high))


def _frontier(speed: ArrayLike, cost: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    speeds, costs = np.asarray(speed, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    good = speeds.ndim == 1 and speeds.shape == costs.shape and speeds.size > 0
    if not good or not np.all((speeds > 0) & (costs > 0) & np.isfinite(speeds) & np.isfinite(costs)):
        raise InputError("a frontier is two lists of equal length of positive speeds and costs")
    return speeds, costs


def _hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the lower left convex hull, from the largest x down (Andrew 1979)."""
    kept: list[int] = []
    for i in np.lexsort((y, -x)):
        while kept and y[i] <= y[kept[-1]]:
            kept.pop()
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[b] - x[i]) < (y[i] - y[b]) * (x[a] - x[b]):
                break
            kept.pop()
        kept.append(int(i))
    return np.asarray(kept)


def _chosen(excess: np.ndarray, count: int) -> np.ndarray:
    """The `count` columns for which the rows' least entries have the smallest sum.

    Both are in one order: patient users take slow tiers. Between two kept neighbours a < b the rows
    choose between the two, so that sums over rows add up over neighbours.
    """
    n = excess.shape[1]
    between = np.empty((n + 1, n + 1))
    for a in range(n + 1):
        for b in range(n + 1):
            options = [excess[:, i - 1] for i in (a, b) if 0 < i <= n]
            least = np.min(options, axis=0) if options else np.zeros(len(excess))
            between[a, b] = least.sum()
    single = excess.sum(axis=0)
    best: dict[tuple[int, int], tuple[float, tuple[int, ...]]]
    best = {(1, i): (float(single[i]), (i,)) for i in range(n)}
    for k in range(2, count + 1):
        for i in range(k - 1, n):
            # Adding tier i helps the rows that prefer it to the last tier kept before.
            found = [
                (best[k - 1, j][0] + between[j + 1, i + 1] - single[j], (*best[k - 1, j][1], i))
                for j in range(k - 2, i)
            ]
            best[k, i] = min(found)
    return np.asarray(min(best[count, i] for i in range(count - 1, n))[1])


def _offers(speeds: np.ndarray, costs: np.ndarray, kept: np.ndarray, low: float, high: float) -> list[Tier]:
    edges = [low]
    for a, b in zip(kept[:-1], kept[1:], strict=True):
        gained = (1.0 / speeds[a] - 1.0 / speeds[b]) / 3600.0
        edges.append(float((costs[b] - costs[a]) / 1e6 / gained))
    edges.append(high)
    return [
        Tier(int(i), float(speeds[i]), float(costs[i]), max(edges[k], low), min(edges[k + 1], high))
        for k, i in enumerate(kept)
    ]
