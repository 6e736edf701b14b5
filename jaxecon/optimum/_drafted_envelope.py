"""The continuous frontier with drafted tokens: one degree, the batch and the draft length are free.

At a budget the smallest affordable batch is a curve b(N) in the plane of accelerators and batch. Where
arithmetic binds it is steep, at a full scale-up domain it jumps; x = ln(N b) follows it evenly, since cost
falls with the batch at a given x. The search brackets each maximum of the speed along x by five points and
looks between them: at the crossing of the lines through the points on either side (a kink), at the vertex
of a parabola, at the edge where memory ends, and half-way. The draft length follows at every point, ever
more finely: its best value moves with x, so that ranges must narrow slowly, and budgets also try their
neighbours' points. No derivative of the cost model is taken, and the last evaluation is by the exact
arithmetic at a batch that meets every limit.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import EXACT
from ..scenarios import Scenario
from ._drafted_table import (
    RESERVE,
    Levels,
    Points,
    Table,
    Window,
    brackets,
    levels,
    met,
    slack_of,
    tabulate,
)
from ._envelope_table import FIT, PARTITIONS, WIDE, Envelope, Spaces, layout_of, rows_of, score, spaces
from ._relaxation import Limits

# Candidates looked at first, those kept after so many rounds, and all rounds.
_LISTED, _KEPT, _SHORT, _LONG = 8, 3, 2, 8
_REACH, _SHRINK, _CLOSEST = 1e-2, 0.3, 1e-6
_LOOKS = 2
_DRAFT_REACH = (0.2, 0.45, 1e-4)
_NUDGES = (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)

_compiled = functools.partial(jax.jit, compiler_options=WIDE)


def drafted_envelope(scenario: Scenario, limits: Limits, budgets: Array) -> Array:
    """The fastest layout of real degrees within each budget, as rows of `Found`; `limits.budget` is not
    used.

    A program for each stage: in one, the compiler would repeat the table in everything that reads it.
    """
    table = _tabulated(scenario, limits)
    found = _levelled(scenario, limits, table, budgets)
    at, window = _bracketed(scenario, limits, table, found, budgets)
    at, window = _shortened(scenario, limits, at, window)
    best = _refined(scenario, limits, at, window)
    return _shared(scenario, limits, best, budgets)


@_compiled
def _shared(scenario: Scenario, limits: Limits, best: Envelope, budgets: Array) -> Array:
    """Each budget's best, or what it finds from where its neighbours found theirs, as rows of `Found`."""
    search = _Search(scenario, limits, _spaces(scenario, limits))
    shifts = (-2, -1, 0, 1, 2)

    def beside(a: Array) -> Array:
        a = jnp.broadcast_to(a, budgets.shape)
        return jnp.stack([jnp.roll(a, k) for k in shifts], axis=1)

    layout = best.layout
    tensor, stages, batch = (beside(a) for a in (layout.tensor, layout.pipeline, layout.batch))
    at = Points(
        stages,
        beside(best.partition),
        beside(best.low),
        beside(best.high),
        jnp.broadcast_to(budgets[:, None], stages.shape),
    )
    x = jnp.log(tensor * stages * batch)[..., None] + jnp.asarray([-0.1, -0.03, 0.0, 0.03, 0.1])
    guesses = (jnp.log(batch), jnp.log1p(beside(layout.draft_tokens)))
    window = Window(x, *(jnp.broadcast_to(g[..., None], x.shape) for g in guesses), 0.0 * x, 0.0 * x)
    window, gain = search.closer(at, window, 0, _LONG)
    found = search.settled(at, window, gain)
    better = found.log_speed > best.log_speed
    return rows_of(jax.tree.map(lambda new, old: jnp.where(better, new, old), found, best))


def _spaces(scenario: Scenario, limits: Limits) -> Spaces:
    return spaces(scenario.families(limits.max_accelerators))


@_compiled
def _tabulated(scenario: Scenario, limits: Limits) -> Table:
    return tabulate(scenario, limits, _spaces(scenario, limits))


@_compiled
def _levelled(scenario: Scenario, limits: Limits, table: Table, budgets: Array) -> Levels:
    return levels(scenario, limits, _spaces(scenario, limits), table, budgets)


@_compiled
def _bracketed(
    scenario: Scenario, limits: Limits, table: Table, found: Levels, budgets: Array
) -> tuple[Points, Window]:
    return brackets(limits, _spaces(scenario, limits), table, found, budgets, _LISTED)


@_compiled
def _shortened(scenario: Scenario, limits: Limits, at: Points, window: Window) -> tuple[Points, Window]:
    """The most promising of the list after two rounds."""
    search = _Search(scenario, limits, _spaces(scenario, limits))
    window, _ = search.closer(at, window, 0, _SHORT)
    _, order = jax.lax.top_k(_hope(window), min(_KEPT, window.x.shape[1]))
    at = jax.tree.map(lambda a: jnp.take_along_axis(a, order, 1), at)
    return at, jax.tree.map(lambda a: jnp.take_along_axis(a, order[..., None], 1), window)


@_compiled
def _refined(scenario: Scenario, limits: Limits, at: Points, window: Window) -> Envelope:
    search = _Search(scenario, limits, _spaces(scenario, limits))
    window, gain = search.closer(at, window, _SHORT, _LONG)
    return search.settled(at, window, gain)


class _Search(eqx.Module):
    scenario: Scenario
    limits: Limits
    s: Spaces

    def closer(self, at: Points, window: Window, begin: int, end: int) -> tuple[Window, Array]:
        """Rounds `begin` to `end` of narrowing; round 0 evaluates the window itself."""
        wide = jax.tree.map(lambda a: a[..., None], at)

        def body(i: Array, state: tuple[Window, Array]) -> tuple[Window, Array]:
            old, _ = state
            ask = _between(old)
            ask = jax.tree.map(lambda a, b: jnp.where(i == 0, a, b), old, ask)
            new = self._level(wide, ask, i)

            def merged(a: Array, b: Array) -> Array:
                outer = [jnp.where(i == 0, b[..., j], a[..., j])[..., None] for j in (0, 1, 3, 4)]
                first = jnp.where(i == 0, b[..., :1], outer[0])
                second = jnp.where(i == 0, b[..., :1], outer[1])
                fourth = jnp.where(i == 0, b[..., 4:], outer[2])
                return jnp.concatenate([first, second, b, fourth, outer[3]], axis=-1)

            both = jax.tree.map(merged, old, new)
            values = score(both.log_speed, both.slack - RESERVE)
            # A copy of the middle must not win by a rounding: the other side would be lost.
            copy = (jnp.abs(both.x - both.x[..., 4:5]) < 1e-12) & (jnp.arange(9) != 4)
            values = jnp.where(copy, -jnp.inf, values)
            best = jnp.argmax(values, axis=-1)
            top = jnp.max(values, axis=-1)
            near = jnp.clip(best[..., None] + jnp.arange(-2, 3), 0, 8)
            gain = top - values[..., 4]
            return jax.tree.map(lambda a: jnp.take_along_axis(a, near, -1), both), gain

        return jax.lax.fori_loop(begin, end, body, (window, jnp.zeros(at.budget.shape)))

    def _level(self, at: Points, ask: Window, i: Array) -> Window:
        """The least affordable batch at each x, from those asked, by lines through two batches."""
        low = jnp.maximum(jnp.log(at.stages), ask.x - jnp.log(at.high * at.stages))
        high = jnp.minimum(jnp.log(self.limits.max_batch), ask.x - jnp.log(at.low * at.stages))
        high = jnp.maximum(low, high)
        reach = jnp.maximum(_REACH * _SHRINK**i, _CLOSEST)
        first, shrink, least = _DRAFT_REACH
        spread = jnp.maximum(first * shrink**i, least)
        flat = jnp.zeros_like(ask.x)

        def look(j: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            guess, drafts, _, _ = state
            guess = jnp.clip(guess, low, high)
            lines, drafts = self._lines(at, ask.x, guess, drafts, low, high, reach, spread)
            now = jnp.clip(-lines[1] / jnp.minimum(lines[0], -1e-6), low[..., None], high[..., None] + 10.0)
            bound = now > low[..., None]
            spent = jnp.log(1e6 * self.scenario.accelerator.price / at.budget) + ask.x
            speed = jnp.where(bound, spent[..., None] - 2.0 * now, lines[2] * now + lines[3])
            room = lines[4] * now + lines[5]
            slack = slack_of(self.scenario, self.limits, jnp.exp(now), jnp.exp(-speed), room)
            beyond = now > high[..., None] + 1e-12
            slack = jnp.where(beyond, jnp.minimum(slack, high[..., None] - now), slack)
            outside = ask.x - jnp.log(at.stages * at.high) - 1e-12
            slack = jnp.where(outside[..., None] > now, -50.0, slack)
            values = score(speed, slack)
            best = jnp.argmax(values, axis=-1)[..., None]

            def chosen(a: Array) -> Array:
                a = jnp.broadcast_to(a, values.shape)
                return jnp.take_along_axis(a, best, -1)[..., 0]

            return chosen(now), _vertex(drafts, values), chosen(speed), chosen(slack)

        state = (ask.log_batch, ask.log_draft, flat, flat)
        batch, drafts, speed, slack = jax.lax.fori_loop(0, _LOOKS, look, state)
        return Window(ask.x, batch, drafts, speed, slack)

    def _lines(
        self,
        at: Points,
        x: Array,
        guess: Array,
        drafts: Array,
        low: Array,
        high: Array,
        reach: Array,
        spread: Array,
    ) -> tuple[list[Array], Array]:
        """Slopes and offsets in ln b of ln(cost/budget), ln speed and room along x, and the draft
        lengths looked at; a last axis holds these."""
        pair = jnp.stack([guess - reach, guess + reach], axis=-1)
        pair = jnp.clip(pair, low[..., None], high[..., None])
        narrow = pair[..., 1:] - pair[..., :1] < 1e-9
        pair = jnp.where(narrow, pair[..., :1] + jnp.asarray([0.0, 2e-9]), pair)
        a = jax.tree.map(lambda y: y[..., None], at)
        tensor = jnp.clip(jnp.exp(x[..., None] - pair) / a.stages, a.low, a.high)
        drafts = drafts[..., None] + spread * jnp.asarray([-1.0, 0.0, 1.0])
        drafts = jnp.clip(drafts, jnp.log1p(self.s.draft_low[0]), jnp.log1p(self.s.draft_high[0]))
        a = jax.tree.map(lambda y: y[..., None, :], a)
        batch = jnp.exp(pair)[..., None, :]
        layout = layout_of(tensor[..., None, :], a.stages, batch, jnp.expm1(drafts)[..., None])
        speed = self.scenario.speed_among(layout, PARTITIONS, a.partition)
        cost = jnp.log(self.scenario.cost_at_speed(layout, speed) / a.budget)
        room = self.scenario.memory_margin(layout, EXACT) / self.scenario.accelerator.hbm_size
        found = []
        for y in (cost, jnp.log(speed), jnp.broadcast_to(room, cost.shape)):
            slope = (y[..., 1] - y[..., 0]) / (pair[..., 1] - pair[..., 0])[..., None]
            found += [slope, y[..., 0] - slope * pair[..., 0][..., None]]
        return found, drafts

    def settled(self, at: Points, window: Window, gain: Array) -> Envelope:
        """Each budget's best at fixed accelerators, at the least batch that meets every limit."""
        scenario, limits = self.scenario, self.limits
        x, batch, drafts = (a[..., 2] for a in (window.x, window.log_batch, window.log_draft))
        tensor = jnp.clip(jnp.exp(x - batch) / at.stages, at.low, at.high)
        rate = 1e6 * tensor * at.stages * scenario.accelerator.price
        kappa = at.budget / rate

        def look(j: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            guess, seen, alpha, beta = state
            guess = jnp.clip(guess, at.stages, limits.max_batch)
            pair = guess[..., None] * jnp.asarray([1.0, 1.0 + 2e-6])
            time, _ = self._exactly(at, tensor, pair, drafts)
            slope = (time[..., 1] - time[..., 0]) / (pair[..., 1] - pair[..., 0])
            offset = time[..., 0] - slope * guess
            now, before = met(offset, slope, kappa), met(alpha, beta, kappa)
            bend = jnp.where(guess >= seen, slope - beta, beta - slope)
            both = jnp.where(bend >= 0.0, jnp.maximum(now, before), jnp.minimum(now, before))
            return jnp.where(j == 0, now, both), guess, offset, slope

        flat = jnp.zeros_like(x)
        batch, *_ = jax.lax.fori_loop(0, 3, look, (jnp.exp(batch), flat, flat, flat))
        batch = jnp.clip(batch, at.stages, limits.max_batch)[..., None] * (1.0 + jnp.asarray(_NUDGES))
        batch = jnp.clip(batch, at.stages[..., None], limits.max_batch)
        time, room = self._exactly(at, tensor, batch, drafts)
        cost = rate[..., None] * time / batch
        slack = slack_of(scenario, limits, batch, time, room)
        over = jnp.log(at.budget[..., None] / cost)
        values = score(-jnp.log(time), jnp.where(over >= 0.0, slack, jnp.minimum(slack, over - 1e-9)))
        values = values.reshape(len(x), -1)
        best = jnp.argmax(values, axis=1)[:, None]

        def chosen(a: Array) -> Array:
            a = a if a.ndim == 3 else a[..., None]
            return jnp.take_along_axis(jnp.broadcast_to(a, cost.shape).reshape(len(x), -1), best, 1)[:, 0]

        layout = layout_of(*(chosen(a) for a in (tensor, at.stages, batch, jnp.expm1(drafts))))
        rest = (at.partition, values.reshape(cost.shape), cost, gain, at.low, at.high)
        return Envelope(layout, *map(chosen, rest))

    def _exactly(self, at: Points, tensor: Array, batch: Array, drafts: Array) -> tuple[Array, Array]:
        """(seconds per token, room) at several batches (last axis)."""
        a = jax.tree.map(lambda y: y[..., None], at)
        layout = layout_of(tensor[..., None], a.stages, batch, jnp.expm1(drafts)[..., None])
        speed = self.scenario.speed_among(layout, PARTITIONS, a.partition)
        room = self.scenario.memory_margin(layout, EXACT) / self.scenario.accelerator.hbm_size
        return 1.0 / speed, jnp.broadcast_to(room, speed.shape)


def _vertex(x: Array, y: Array) -> Array:
    """Where the parabola through three points (last axis) is highest, within them."""
    ends = x[..., 0], x[..., 2]
    wide = ends[1] - ends[0] > 1e-12
    d = [jnp.where(x[..., i + 1] - x[..., i] > 1e-13, x[..., i + 1] - x[..., i], 1.0) for i in (0, 1)]
    rise = [(y[..., i + 1] - y[..., i]) / d[i] for i in (0, 1)]
    bend = 2.0 * (rise[1] - rise[0]) / jnp.where(wide, ends[1] - ends[0], 1.0)
    top = 0.5 * (x[..., 0] + x[..., 1]) - rise[0] / jnp.where(bend < -1e-12, bend, -1.0)
    best = jnp.take_along_axis(x, jnp.argmax(y, axis=-1)[..., None], -1)[..., 0]
    return jnp.where(wide & (bend < -1e-12), jnp.clip(top, *ends), best)


def _hope(w: Window) -> Array:
    """What the middle may come to: where lines from either side cross, or at an edge of the admissible."""
    x, f, slack, fit = w.x, w.log_speed, w.slack, w.slack >= FIT
    middle = score(f, slack)[..., 2]
    best = middle
    gap = jnp.diff(x)
    slope = jnp.where(gap > 1e-12, jnp.diff(f) / jnp.where(gap > 1e-12, gap, 1.0), 0.0)
    for left, before, after in ((1, 0, 2), (2, 1, 3)):
        bend = slope[..., before] - slope[..., after]
        width = gap[..., left]
        valid = (bend > 1e-9) & fit[..., left] & fit[..., left + 1]
        t = f[..., left + 1] - f[..., left] - slope[..., after] * width
        t = jnp.clip(t / jnp.where(valid, bend, 1.0), 0.0, width)
        best = jnp.where(valid, jnp.maximum(best, f[..., left] + slope[..., before] * t), best)
        ends = slack[..., left], slack[..., left + 1]
        edge = fit[..., left] != fit[..., left + 1]
        part = jnp.where(edge, ends[0] / jnp.where(edge, ends[0] - ends[1], 1.0), 0.5)
        crossing = f[..., left] + part * (f[..., left + 1] - f[..., left])
        best = jnp.where(edge & fit[..., 2], jnp.maximum(best, crossing), best)
    return jnp.minimum(best, middle + 0.1)


def _between(w: Window) -> Window:
    """Two points in each of the middle gaps, and the middle again, with guesses between neighbours."""
    x = w.x
    fit = w.slack >= RESERVE
    value = jnp.where(jnp.any(fit, axis=-1, keepdims=True), w.log_speed, w.slack)

    def slope(i: int, j: int) -> Array:
        gap = x[..., j] - x[..., i]
        wide = gap > 1e-13
        return jnp.where(wide, (value[..., j] - value[..., i]) / jnp.where(wide, gap, 1.0), jnp.nan)

    def crossing(i: int, j: int, k: int, m: int) -> Array:
        rise, fall = slope(i, j), slope(k, m)
        valid = rise - fall > 1e-12
        offset = value[..., k] - value[..., j] + rise * x[..., j] - fall * x[..., k]
        return jnp.where(valid, offset / jnp.where(valid, rise - fall, 1.0), jnp.nan)

    bend = 2.0 * (slope(2, 3) - slope(1, 2)) / jnp.where(x[..., 3] > x[..., 1], x[..., 3] - x[..., 1], 1.0)
    vertex = 0.5 * (x[..., 1] + x[..., 2]) - slope(1, 2) / jnp.where(bend < 0.0, bend, jnp.nan)
    asked = {2: x[..., 2]}
    for at, (i, j, kink) in {0: (1, 2, crossing(0, 1, 2, 3)), 3: (2, 3, crossing(1, 2, 3, 4))}.items():
        low, high = x[..., i], x[..., j]
        width = high - low
        point = 0.5 * (low + high)
        for guess in (vertex, kink):
            inside = (guess > low + 1e-3 * width) & (guess < high - 1e-3 * width)
            point = jnp.where(inside, guess, point)
        ends = w.slack[..., i], w.slack[..., j]
        edge = fit[..., i] != fit[..., j]
        part = jnp.where(edge, ends[0] / jnp.where(edge, ends[0] - ends[1], 1.0), 0.5)
        root = low + width * part
        root = root + 0.02 * (jnp.where(fit[..., i], low, high) - root)
        point = jnp.where(edge & (root > low) & (root < high), root, point)
        other = jnp.where(point - low > high - point, 0.5 * (low + point), 0.5 * (point + high))
        asked |= {at: jnp.minimum(point, other), at + 1: jnp.maximum(point, other)}
    x_new = jnp.stack([asked[k] for k in range(5)], axis=-1)

    def guessed(a: Array) -> Array:
        def part(i: int, j: int, k: int) -> Array:
            gap = x[..., j] - x[..., i]
            share = jnp.where(gap > 0.0, (asked[k] - x[..., i]) / jnp.where(gap > 0.0, gap, 1.0), 0.0)
            return a[..., i] + share * (a[..., j] - a[..., i])

        pieces = [part(1, 2, 0), part(1, 2, 1), a[..., 2], part(2, 3, 3), part(2, 3, 4)]
        return jnp.stack(pieces, axis=-1)

    return Window(x_new, guessed(w.log_batch), guessed(w.log_draft), w.log_speed, w.slack)
