r"""Exact discrete search for many scenarios of one structure at once.

The unit of work is a pair of a scenario and a set of degrees. For a pair, speed and cost fall as the
batch grows, so the best layout has the smallest batch b* whose cost is within the budget; it is
legal if it fits, since memory and demand only tighten with the batch. Every evaluation at a batch b
that is still too dear proves three things:

- b* > b; with speed at most s(b) from there on, even $b^* \ge b\, c(b)/\text{budget}$,
  since $b\,c(b)\,s(b)$ does not depend on b;
- no layout of the pair is faster than s(b), so that the pair is dropped where another layout of the
  same scenario is known to be affordable and faster;
- if b does not fit, none of the pair does.

All open pairs of all scenarios advance together, one evaluation each per round, by secants on
b (1 - c(b)/budget), which is nearly piecewise linear, kept inside a bracket of integers and replaced
by bisection from time to time. Closed pairs leave the arrays after each round.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._errors import InputError
from ..scenarios import Scenario
from ..specs import Layout
from ._space import MAX_ACCELERATORS, MAX_BATCH

STATUSES = ("optimal", "budget unreachable", "does not fit")
"""What a scenario's search can end with; `CertifiedMany.status` holds indices into it."""

# Pairs per compiled call (benchmarks/README.md).
_TILE = 4096
# Figures of one layout may differ in the last bits between two widths of a compiled program.
_SLACK = 1e-12


class CertifiedMany(eqx.Module):
    """The best legal integer layout of each of S scenarios; nan where there is none.

    Figures and degrees have shape (S,).
    """

    layout: Layout
    """Degrees; `partition` is "1d", see `CertifiedMany.partition`."""
    partition: np.ndarray
    """Partition of each layout, as text."""
    speed: np.ndarray
    """Tokens/s of one request."""
    cost: np.ndarray
    """US dollars per million output tokens."""
    examined: np.ndarray
    """Layouts that were evaluated."""
    status: np.ndarray
    """Index into `STATUSES`."""


class _Pairs(eqx.Module):
    """Open pairs, one entry each."""

    which: Array
    """Index of the scenario."""
    row: Array
    """Index of the degrees."""
    low: Array
    """b* is above this; nan before the first evaluation."""
    high: Array
    """b* is at most this, the last affordable batch seen; above the largest batch if none was."""
    batch: Array
    """Where to evaluate next."""
    dear: Array
    """The last two batches found too dear, shape (..., 2)."""
    dear_slack: Array
    """b (1 - c(b)/budget) there."""
    slack: Array
    """The same at `high`."""
    bound: Array
    """Speed that no layout of the pair exceeds."""
    speed: Array
    """Speed at `high`; -inf if that does not fit or is unknown."""
    cost: Array
    """Cost at `high`."""
    fits: Array
    """Whether the pair may have a layout that fits."""


class _Table(eqx.Module):
    """What pairs refer to: scenarios (varying leaves along an axis), budgets and degrees."""

    varying: Scenario
    fixed: Scenario
    budget: Array
    degrees: Layout
    most: Array

    def at(self, pairs: _Pairs) -> tuple[Scenario, Array, Layout]:
        """(varying leaves, budget, degrees) of each pair."""
        varying = jax.tree.map(lambda x: x[pairs.which], self.varying)
        degrees = jax.tree.map(lambda x: x[pairs.row], self.degrees)
        return varying, self.budget[pairs.which], degrees


@eqx.filter_jit
def _advance(table: _Table, pairs: _Pairs, round_number: Array) -> _Pairs:
    """One evaluation of every pair, and where to look next."""

    def one(varying: Scenario, budget: Array, degrees: Layout, pair: _Pairs) -> _Pairs:
        scenario = eqx.combine(varying, table.fixed)
        first = jnp.isnan(pair.batch)
        batch = jnp.where(first, scenario.least_batch(degrees), pair.batch)
        at = eqx.tree_at(lambda x: x.batch, degrees, batch)
        speed = scenario.speed(at)
        cost = scenario.cost_at_speed(at, speed)
        fits = (scenario.memory_margin(at) >= 0.0) & (scenario.demand_margin(at, speed) >= 0.0)
        able, fits = cost <= budget, fits & (batch <= table.most)
        low = jnp.where(first, batch - 1.0, pair.low)
        pair = eqx.tree_at(lambda p: (p.low, p.batch), pair, (low, batch))
        pair = _narrowed(pair, speed, cost, able, fits, budget)
        return _next(pair, table.most, round_number)

    return jax.vmap(one)(*table.at(pairs), pairs)


def _narrowed(pair: _Pairs, speed: Array, cost: Array, able: Array, fits: Array, budget: Array) -> _Pairs:
    """The bracket after an evaluation at `pair.batch`, which is affordable if `able`."""
    b = pair.batch
    slack = b * (1.0 - cost / budget)
    least = jnp.ceil(b * cost / budget * (1.0 - _SLACK)) - 1.0
    return _Pairs(
        which=pair.which,
        row=pair.row,
        low=jnp.where(able, pair.low, jnp.maximum(b, least)),
        high=jnp.where(able, b, pair.high),
        batch=b,
        dear=jnp.where(able, pair.dear, jnp.stack([pair.dear[1], b])),
        dear_slack=jnp.where(able, pair.dear_slack, jnp.stack([pair.dear_slack[1], slack])),
        slack=jnp.where(able, slack, pair.slack),
        bound=jnp.where(able, jnp.maximum(pair.bound, speed), speed),
        speed=jnp.where(able, jnp.where(fits, speed, -jnp.inf), pair.speed),
        cost=jnp.where(able, cost, pair.cost),
        fits=pair.fits & (able | fits),
    )


def _next(pair: _Pairs, most: Array, round_number: Array) -> _Pairs:
    """Where to evaluate next: a secant's root, sometimes the middle."""
    (before, last), (slack_before, slack_last) = pair.dear, pair.dear_slack
    known = pair.high <= most
    rise = jnp.where(known, pair.slack - slack_last, slack_last - slack_before)
    run = jnp.where(known, pair.high - last, last - before)
    root = last - slack_last * run / jnp.where(rise > 0.0, rise, 1.0)
    root = jnp.where(rise > 0.0, root, jnp.where(jnp.isnan(before), pair.low + 1.0, most))
    often = round_number % 4.0 == 3.0
    middle = jnp.floor((pair.low + pair.high) / 2.0)
    root = jnp.where(often, jnp.where(known, middle, most), jnp.ceil(root))
    batch = jnp.maximum(jnp.minimum(root, jnp.minimum(pair.high - 1.0, most)), pair.low + 1.0)
    return eqx.tree_at(lambda p: p.batch, pair, batch)


class _Search:
    """The state of a search over all pairs of S scenarios."""

    def __init__(self, count: int, most: float, mesh: Mesh | None) -> None:
        self.most, self.mesh = most, mesh
        self.best = np.full(count, -np.inf)
        self.fitted = np.zeros(count, bool)
        self.examined = np.zeros(count, np.int64)
        none = np.zeros(0)
        whole = none.astype(np.int64)
        self.solved: list[tuple[np.ndarray, ...]] = [(whole, whole, none, none, none, whole)]

    def run(self, table: _Table, which: np.ndarray, row: np.ndarray, block: int) -> None:
        """Close every pair of one block of degrees."""
        pairs = _unseen(which, row, self.most)
        number = 0
        while len(pairs.which):
            pairs = self._advance(table, pairs, number)
            self.examined += np.bincount(pairs.which, minlength=len(self.best))
            if number == 0:
                seen = np.where(pairs.high <= self.most, pairs.speed > -np.inf, pairs.fits)
                self.fitted[pairs.which[seen]] = True
            np.maximum.at(self.best, pairs.which, pairs.speed)
            done = (pairs.high - pairs.low <= 1.0) & (pairs.speed > -np.inf)
            ahead = pairs.bound >= self.best[pairs.which] * (1.0 - _SLACK)
            at = np.flatnonzero(done & ahead)
            one = [x[at] for x in (pairs.which, pairs.row, pairs.high, pairs.speed, pairs.cost)]
            self.solved.append((*one, np.full(len(at), block)))
            open_ = pairs.fits & ahead & (pairs.high - pairs.low > 1.0) & (pairs.low < self.most)
            keep = np.flatnonzero(open_)
            pairs = jax.tree.map(lambda x, keep=keep: x[keep], pairs)
            number += 1

    def _advance(self, table: _Table, pairs: _Pairs, number: int) -> _Pairs:
        count, parts = len(pairs.which), []
        devices = 1 if self.mesh is None else self.mesh.size
        for start in range(0, count, _TILE * devices):
            part = min(_TILE * devices, count - start)
            index = start + np.minimum(np.arange(_TILE * devices), part - 1)
            tile = jax.tree.map(lambda x, index=index: x[index], pairs)
            if self.mesh is not None:
                tile = jax.device_put(tile, NamedSharding(self.mesh, PartitionSpec("pairs")))
            found = _advance(table, tile, jnp.asarray(float(number)))
            parts.append((found, part))
        trimmed = [jax.tree.map(lambda x, n=n: np.asarray(x)[:n], p) for p, n in parts]
        return jax.tree.map(lambda *x: np.concatenate(x), *trimmed)


def _unseen(which: np.ndarray, row: np.ndarray, most: float) -> _Pairs:
    """Pairs before their first evaluation."""

    def full(value: float) -> np.ndarray:
        return np.full(len(which), value)

    two = np.full((len(which), 2), np.nan)
    unknown = (full(np.nan), full(most + 1.0), full(np.nan), two, two.copy(), full(np.nan))
    figures = (full(-np.inf), full(-np.inf), full(np.nan), np.ones(len(which), bool))
    return _Pairs(which, row, *unknown, *figures)


def certified_many(
    scenario: Scenario,
    budget: float | np.ndarray | Array,
    *,
    degrees: Sequence[tuple[Layout, ...]] | None = None,
    table: np.ndarray | None = None,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
    mesh: Mesh | None = None,
) -> CertifiedMany:
    """`certified_optimum` of S scenarios at once, with the same layouts; ties likewise.

    Args:
        scenario: leaves are scalars, or arrays of shape (S,) where they vary.
        budget: US dollars per million output tokens, a scalar or of shape (S,).
        degrees: lists of legal degrees, each as `Scenario.degrees` gives them. None for the one of
            the first scenario: then leaves that shape it (heads, layers, widths) must not vary.
        table: which of `degrees` each scenario has, shape (S,); None where there is one.
        max_accelerators: the largest replica, where `degrees` is None.
        max_batch: the largest batch.
        mesh: devices along an axis "pairs" over which evaluations are sharded; None for one device.

    Raises:
        InputError: for a budget that is not positive, or leaves of unequal lengths.
    """
    budgets = np.atleast_1d(np.asarray(budget, np.float64))
    if not np.all(np.isfinite(budgets) & (budgets > 0)):
        raise InputError("budgets must be positive numbers of US dollars")
    scenario = jax.tree.map(np.asarray, scenario)
    varies = jax.tree.map(lambda x: eqx.is_array_like(x) and np.ndim(x) == 1, scenario)
    varying, fixed = eqx.partition(scenario, varies)
    lengths = {len(x) for x in jax.tree.leaves(varying)} | {len(budgets)} - {1}
    if len(lengths) > 1:
        raise InputError(f"leaves and budgets have unequal lengths {sorted(lengths)}")
    count = lengths.pop() if lengths else 1
    if degrees is None:
        first = jax.tree.map(lambda x: jnp.asarray(x if x.ndim == 0 else x[0]), scenario)
        degrees = [first.degrees(max_accelerators)]
    table = np.zeros(count, np.int64) if table is None else np.asarray(table)
    search = _Search(count, float(max_batch), mesh)
    varying = jax.tree.map(lambda x: _padded(x, count), varying)
    budgets = _padded(np.broadcast_to(budgets, count), count)
    blocks = [
        jax.tree.map(lambda *x: np.concatenate([np.atleast_1d(np.asarray(y)) for y in x]), *same)
        for same in zip(*degrees, strict=True)
    ]
    for number, block in enumerate(blocks):
        sizes = np.array([len(d[number].tensor) for d in degrees])
        which, row = _pair_up(sizes, table)
        if not len(which):
            continue
        layouts = jax.tree.map(lambda x: _padded(x, len(x)), block)
        search.run(_Table(varying, fixed, budgets, layouts, np.float64(max_batch)), which, row, number)
    return _restated(_collected(search, blocks, count), varying, fixed, count)


@eqx.filter_jit
def _figures(varying: Scenario, fixed: Scenario, layout: Layout) -> tuple[Array, Array]:
    """Speed and cost of one layout for each scenario."""

    def one(varying: Scenario, layout: Layout) -> tuple[Array, Array]:
        scenario = eqx.combine(varying, fixed)
        speed = scenario.speed(layout)
        return speed, scenario.cost_at_speed(layout, speed)

    return jax.vmap(one)(varying, layout)


def _restated(found: CertifiedMany, varying: Scenario, fixed: Scenario, count: int) -> CertifiedMany:
    """The same answers with figures from one program of one shape.

    Programs for other widths and devices may differ in the last digit, and results are not to depend on
    how the work was divided.
    """
    speed, cost = found.speed.copy(), found.cost.copy()
    layout = jax.tree.map(lambda x: _padded(x, count), found.layout)
    for kind in np.unique(found.partition[found.partition != ""]):
        here = found.partition == kind
        same = Layout(*jax.tree.leaves(layout), partition=str(kind))
        figures = _figures(varying, fixed, same)
        speed[here], cost[here] = (np.asarray(x)[:count][here] for x in figures)
    return eqx.tree_at(lambda f: (f.speed, f.cost), found, (speed, cost))


def _padded(x: np.ndarray, count: int) -> np.ndarray:
    """The first `count` entries, the last repeated up to a power of two."""
    width = 1 << (max(count, 1) - 1).bit_length()
    return x[np.minimum(np.arange(width), count - 1)]


def _pair_up(sizes: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scenario, row of degrees) of every pair, scenario after scenario."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    lengths = sizes[table]
    which = np.repeat(np.arange(len(table)), lengths)
    offset = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return which.astype(np.int32), (starts[table][which] + offset).astype(np.int32)


def _collected(search: _Search, blocks: list[Layout], count: int) -> CertifiedMany:
    """The winner of each scenario: fastest, then cheapest, then smallest layout."""
    which, row, batch, speed, cost, number = map(np.concatenate, zip(*search.solved, strict=True))
    top = speed >= search.best[which]
    which, row, batch, speed, cost, number = (x[top] for x in (which, row, batch, speed, cost, number))
    fields = [f for f in ("tensor", "pipeline", "draft_tokens", "expert", "data")]
    parts = {f: np.full(len(which), np.nan) for f in fields}
    for i, block in enumerate(blocks):
        here = number == i
        for f in fields:
            parts[f][here] = getattr(block, f)[row[here]]
    size = parts["tensor"] * parts["data"] * parts["pipeline"]
    keys = (which, -speed, cost, size, *(parts[f] for f in fields), batch, number)
    order = np.lexsort(keys[::-1])
    winners = order[np.unique(which[order], return_index=True)[1]]

    def spread(x: np.ndarray) -> np.ndarray:
        whole = np.full(count, np.nan)
        whole[which[winners]] = x[winners]
        return whole

    kinds = np.full(count, "", dtype="U8")
    kinds[which[winners]] = np.array([b.partition for b in blocks])[number[winners]]
    status = np.where(search.fitted, 1, 2)
    status[which[winners]] = 0
    degrees = {f: spread(parts[f]) for f in fields}
    layout = Layout(batch=spread(batch), **degrees)
    return CertifiedMany(layout, kinds, spread(speed), spread(cost), search.examined, status)
