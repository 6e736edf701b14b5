"""The continuous frontier where one degree and the batch are free: a shared table, then ever closer samples.

Every round samples all ranges of ln N that may hold the maximum of speed, each sample at the smallest batch
that its budget affords, and goes on with the best local maxima and a range as wide as the samples were
apart. Kinks and edges need no cases of their own. At given degrees the time of a step is affine in the batch
between the kinks of the paper's equations, so that cost is affine in 1/b, and Newton's method finds the
batch. All evaluations are by the exact arithmetic; the last one is of batches that meet every limit.

In all arrays budgets are the last axis.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics import EXACT
from ..scenarios import Scenario
from ._envelope_table import (
    PARTITIONS,
    WIDE,
    Candidates,
    Envelope,
    candidates,
    entries,
    layout_of,
    levels,
    rows_of,
    score,
    spaces,
    tabulate,
)
from ._relaxation import Limits

T = TypeVar("T")

_RANGES = (8, 4, 4, 4, 2, 1)
"""Ranges of every round, which share its samples."""
_LOOKS = (2, 1, 1, 2, 2, 2)
_SAMPLES, _KEPT = 40, 4
_OVERLAP = 1.25
"""Half the width of a range over the distance of the samples before."""
_STEP, _STEEPEST, _AFFORDABLE = 1e-5, 20.0, 1e-6
_NUDGES = (0.0, *10.0 ** np.arange(-14.0, -2.0))


class _Look(eqx.Module):
    """A batch looked at, in 1/b. Axes: sample, budget."""

    inverse: Array
    affordable: Array
    """The greatest that is known to be affordable, but for this one."""
    dear: Array
    """The least that is known to be too dear, but for this one."""
    costs: Array
    """Over the budget, here and at a batch larger by `_STEP`; a further first axis."""


class _State(eqx.Module):
    at: Array
    """Rows of `Candidates`, in one array: a tenth of the instructions."""
    gain: Array


@functools.partial(jax.jit, compiler_options=WIDE)
def envelope(scenario: Scenario, limits: Limits, budgets: Array) -> Array:
    """The fastest layout of real degrees within each budget, as rows of `Found`; `limits.budget` is not
    used."""
    s = spaces(scenario.families(limits.max_accelerators))
    table = _kept(lambda: tabulate(scenario, limits, s), limits)
    steps = _kept(lambda: entries(scenario, s, table, budgets), limits)
    found = _kept(lambda: levels(scenario, limits, s, table, budgets, steps), limits)
    at = candidates(limits, s, table, found, max(_RANGES))
    return rows_of(_Search(scenario, limits, budgets).narrowed(at))


def _kept(function: Callable[[], T], limits: Limits) -> T:
    """The result behind a condition that holds: else the compiler would repeat it in all that reads it."""
    shapes = jax.eval_shape(function)
    return jax.lax.cond(
        limits.max_batch > 0.0, function, lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    )


class _Search(eqx.Module):
    scenario: Scenario
    limits: Limits
    budgets: Array

    def narrowed(self, at: Array) -> Envelope:
        """All rounds: one evaluation of the equations, in a loop."""

        def body(i: Array, state: _State) -> _State:
            q = self._samples(state.at, i)
            new = self._peaks(i, self._looked(q, i))
            return _State(new, Candidates(*new[:, 0]).value - Candidates(*state.at[:, 0]).value)

        state = jax.lax.fori_loop(0, len(_RANGES), body, _State(at, jnp.zeros_like(self.budgets)))
        return self._settled(Candidates(*state.at[:, 0]), state.gain)

    def _samples(self, at: Array, i: Array) -> Candidates:
        """The ranges once for every sample, with the sample's own x and guesses."""
        place, each = _places(i)
        part = 2.0 * place / (each - 1.0) - 1.0
        kinds = sorted(set(_RANGES))
        kind = jnp.searchsorted(jnp.asarray(kinds), jnp.asarray(_RANGES)[i])
        a = Candidates(*jax.lax.switch(kind.astype(jnp.int32), [_repeated(k) for k in kinds], at))
        width = jnp.minimum(a.width, 0.5 * (a.last - a.first))
        x = jnp.clip(a.x, a.first + width, a.last - width) + part * width
        guess = a.log_batch + (x - a.x) * jnp.where(x < a.x, a.left, a.right)
        return eqx.tree_at(lambda y: (y.x, y.width, y.log_batch), a, (x, width, guess))

    def _looked(self, q: Candidates, i: Array) -> Candidates:
        """Every sample at its least affordable batch."""
        tensor = jnp.clip(jnp.exp(q.x) / q.stages, q.low, q.high)
        rate = 1e6 * self.scenario.accelerator.price / self.budgets * jnp.exp(q.x)

        def body(j: Array, old: _Look) -> _Look:
            new = _newton(old)
            before = (old.inverse, old.affordable, old.dear)
            at, affordable, dear = (jnp.where(j > 0, n, o) for n, o in zip(new[:3], before, strict=True))
            both = jnp.stack([at, at * (1.0 - _STEP)])
            return _Look(at, affordable, dear, rate * both * self._step_time(tensor, 1.0 / both, q))

        flat = jnp.zeros_like(q.x)
        costs = jnp.stack([flat, flat])
        ends = (flat + 1.0 / self.limits.max_batch, flat + 1.0 / q.stages)
        guess = jnp.clip(jnp.exp(-q.log_batch), *ends)
        look = jax.lax.fori_loop(0, jnp.asarray(_LOOKS)[i], body, _Look(guess, *ends, costs))
        inverse, _, _, cost = _newton(look)
        log_batch, log_speed = -jnp.log(inverse), jnp.log(rate * inverse / cost)
        slack = self._slack(tensor, q.stages, log_batch, log_speed)
        value = score(log_speed, jnp.minimum(slack, 1.0 + _AFFORDABLE - cost))
        return eqx.tree_at(lambda y: (y.log_batch, y.value), q, (log_batch, value))

    def _step_time(self, tensor: Array, batch: Array, q: Candidates) -> Array:
        """Seconds a token at batches with a further first axis. All points are one axis, which compiles to
        the quickest loops."""
        shape = batch.shape
        given = (tensor, q.stages, q.partition, batch)
        tensor, stages, partition, batch = (jnp.broadcast_to(y, shape).reshape(-1) for y in given)
        speed = self.scenario.speed_among(layout_of(tensor, stages, batch), PARTITIONS, partition)
        return (1.0 / speed).reshape(shape)

    def _slack(self, tensor: Array, stages: Array, log_batch: Array, log_speed: Array) -> Array:
        """The least of what memory (share of it) and demand (logarithm) leave."""
        room = self.scenario.memory_margin(layout_of(tensor, stages, jnp.exp(log_batch)), EXACT)
        slack = room / self.scenario.accelerator.hbm_size
        if self.scenario.workload.demand is not None:
            slack = jnp.minimum(slack, jnp.log(self.scenario.workload.demand) - log_speed - log_batch)
        return slack

    def _peaks(self, i: Array, q: Candidates) -> Array:
        """The most promising local maxima among the samples, as ranges."""
        place, each = _places(i)
        gap = jnp.maximum(2.0 * q.width / (each - 1.0), 1e-14)
        slot = jnp.arange(_SAMPLES)[:, None]
        first, last = place == 0.0, place == each - 1.0
        rise = jnp.clip((_beside(q.log_batch, 1) - q.log_batch) / gap, -_STEEPEST, _STEEPEST)
        left = jnp.where(first, rise, _beside(rise, -1))
        right = jnp.where(last, left, rise)
        peak = (first | (q.value >= _beside(q.value, -1))) & (last | (q.value > _beside(q.value, 1)))
        rank = jnp.where(peak, _hope(q.value, place, each), -jnp.inf)
        order = []
        for _ in range(_KEPT):
            # Its place by two reductions: they take vector instructions, an argmax does not.
            highest = rank == jnp.max(rank, axis=0)
            order.append(jnp.min(jnp.where(highest, slot, _SAMPLES - 1), axis=0)[None])
            rank = jnp.where(slot == order[-1], -jnp.inf, rank)
        # A range that rises to its end goes on beyond it as wide as before.
        width = jnp.where(first | last, q.width, _OVERLAP * gap)
        new = eqx.tree_at(lambda y: (y.width, y.left, y.right), q, (width, left, right))
        rows = jnp.take_along_axis(jnp.stack(jax.tree.leaves(new)), jnp.concatenate(order)[None], 1)
        return jnp.pad(rows, ((0, 0), (0, max(_RANGES) - _KEPT), (0, 0)), mode="edge")

    def _settled(self, at: Candidates, gain: Array) -> Envelope:
        """Each budget's best at fixed accelerators, at the least batch that meets every limit."""
        tensor = jnp.clip(jnp.exp(at.x) / at.stages, at.low, at.high)
        log_batch = at.log_batch + jnp.asarray(_NUDGES)[:, None]
        log_batch = jnp.clip(log_batch, jnp.log(at.stages), jnp.log(self.limits.max_batch))
        batch = jnp.exp(log_batch)
        log_speed = -jnp.log(self._step_time(tensor, batch, at))
        cost = self.scenario.cost_at_speed(layout_of(tensor, at.stages, batch), jnp.exp(log_speed))
        over = jnp.log(cost / self.budgets)
        slack = self._slack(tensor, at.stages, log_batch, log_speed)
        values = score(log_speed, jnp.where(over <= 0.0, slack, jnp.minimum(slack, -over - 1e-9)))
        place = jnp.argmax(values, axis=0)[None]
        batch, value, cost = (jnp.take_along_axis(y, place, 0)[0] for y in (batch, values, cost))
        layout = layout_of(tensor, at.stages, batch)
        return Envelope(layout, at.partition, value, cost, gain, at.low, at.high)


def _newton(look: _Look) -> tuple[Array, Array, Array, Array]:
    """A step of Newton's method for cost = budget, in 1/b, in which cost is convex where rooflines tie: (1/b,
    bounds, expected cost over budget).

    From the dear side it is exact as soon as no kink lies between.
    """
    at, (cost, less) = look.inverse, look.costs
    slope = jnp.clip((cost - less) / _STEP, 1e-9 * cost, 2.0 * cost)
    affordable = jnp.where(cost > 1.0, look.affordable, jnp.maximum(look.affordable, at))
    dear = jnp.where(cost > 1.0, jnp.minimum(look.dear, at), look.dear)
    root = at * jnp.clip(1.0 + (1.0 - cost) / slope, 1e-4, 1e4)
    root = jnp.where(root > dear, dear, jnp.maximum(root, affordable))
    return root, affordable, dear, jnp.maximum(cost + slope * (root / at - 1.0), 1e-9)


def _places(i: Array) -> tuple[Array, Array]:
    """(place of every sample in its range, samples of a range) in round i."""
    each = _SAMPLES // jnp.asarray(_RANGES)[i]
    return (jnp.arange(_SAMPLES) % each).astype(jnp.float64)[:, None], each.astype(jnp.float64)


def _repeated(count: int) -> Callable[[Array], Array]:
    """Every one of the first `count` ranges for all of its samples."""

    def each(rows: Array) -> Array:
        fields, _, budgets = rows.shape
        wide = jnp.broadcast_to(rows[:, :count, None], (fields, count, _SAMPLES // count, budgets))
        return wide.reshape(fields, _SAMPLES, budgets)

    return each


def _beside(y: Array, k: int) -> Array:
    return jnp.roll(y, -k, axis=0)


def _hope(value: Array, place: Array, each: Array) -> Array:
    """What a local maximum may come to between samples: where the lines on either side cross."""
    rise = _beside(value, 1) - value
    best = value
    for left in (-1, 0):  # the kink is in the gap before or after the sample
        begin, up, down = _beside(value, left), _beside(rise, left - 1), _beside(rise, left + 1)
        known = (place + left >= 1.0) & (place + left + 2.0 <= each - 1.0)
        bend = up - down
        part = (_beside(rise, left) - down) / jnp.where(bend > 1e-9, bend, 1.0)
        valid = known & (bend > 1e-9) & (part > 0.0) & (part < 1.0) & (up < 1.0) & (down > -1.0)
        best = jnp.where(valid, jnp.maximum(best, begin + up * part), best)
    return best
