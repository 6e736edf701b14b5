"""The continuous frontier where one degree and the batch are free: a shared table, then ever closer samples.

Every round samples all ranges of ln N that may hold the maximum of speed, each sample at the smallest batch
that its budget affords, and goes on with the best local maxima and a range as wide as the samples were
apart. Kinks and edges need no cases of their own; `_affordable.py` finds the batch. Drafts have the whole
length that is best at each sample, and a structure that the middle of its range decides: the best of all is
many times the work, and a maximum never lies where it changes. All evaluations are by the exact arithmetic;
the last one is of batches that meet every limit, with the draft in its best structure.

In all arrays budgets are the last axis.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics import EXACT
from ..scenarios import Erdil2025
from ..specs import Layout
from ._affordable import Place, best, looked
from ._envelope_table import Table, candidates, levels
from ._envelope_types import Candidates, Envelope, kept, layout_of, rows_of, score, spaces
from ._relaxation import Limits


@dataclasses.dataclass(frozen=True)
class _Plan:
    """How a search goes."""

    ranges: tuple[int, ...]
    """Of every round, which share its samples."""
    samples: int
    kept: int
    """Local maxima with which a round goes on."""


_PLAIN = _Plan((8, 4, 4, 4, 2, 1), 40, 4)
_DRAFTED = _Plan((8, 6, 4, 4, 2, 1), 48, 6)
_OVERLAP = 1.25
"""Half the width of a range over the distance of the samples before."""
_STEEPEST, _AFFORDABLE = 20.0, 1e-6
_NUDGES = (0.0, *10.0 ** np.arange(-14.0, -2.0))


class _State(eqx.Module):
    at: Array
    """Rows of `Candidates`, in one array: a tenth of the instructions."""
    gain: Array


def envelope(scenario: Erdil2025, limits: Limits, table: Table, budgets: Array) -> Array:
    """The fastest layout of real degrees within each budget, as rows of `Found`; `limits.budget` is not
    used."""
    s = spaces(scenario.families(limits.max_accelerators))
    found = levels(scenario, limits, s, table, budgets)
    plan = _PLAIN if scenario.draft is None else _DRAFTED
    at = candidates(limits, s, table, found, max(plan.ranges))
    search = _Search(scenario, limits, budgets, plan)
    return rows_of(search.narrowed(at))


class _Search(eqx.Module):
    scenario: Erdil2025
    limits: Limits
    budgets: Array
    plan: _Plan = eqx.field(static=True)

    def narrowed(self, at: Array) -> Envelope:
        """All rounds: one evaluation of the equations, in a loop."""

        def body(i: Array, state: _State) -> _State:
            q = self._samples(self._structured(state.at), i)
            new = self._peaks(i, self._looked(q, i))
            return _State(new, Candidates(*new[:, 0]).value - Candidates(*state.at[:, 0]).value)

        state = jax.lax.fori_loop(0, len(self.plan.ranges), body, _State(at, jnp.zeros_like(self.budgets)))
        return self._settled(Candidates(*state.at[:, 0]), state.gain)

    def _structured(self, rows: Array) -> Array:
        """The draft's quickest structure in the middle of every range, held in all of its samples."""
        if self.scenario.draft is None:
            return rows
        a = Candidates(*rows)
        tensor = jnp.clip(jnp.exp(a.x) / a.stages, a.low, a.high)
        layout = layout_of(tensor, a.stages, jnp.exp(a.log_batch), a.drafts)
        structure = self.scenario.draft_structure(layout).astype(jnp.float64)
        return jnp.concatenate([rows[:-1], structure[None]])

    def _samples(self, at: Array, i: Array) -> Candidates:
        """The ranges once for every sample, with the sample's own x and guesses."""
        place, each = self._places(i)
        part = 2.0 * place / (each - 1.0) - 1.0
        kinds = sorted(set(self.plan.ranges))
        kind = jnp.searchsorted(jnp.asarray(kinds), jnp.asarray(self.plan.ranges)[i])
        repeated = [_repeated(k, self.plan.samples) for k in kinds]
        a = Candidates(*jax.lax.switch(kind.astype(jnp.int32), repeated, at))
        least = jnp.minimum(jnp.maximum(a.first, jnp.log(self._stages(a))), a.last)
        width = jnp.minimum(a.width, 0.5 * (a.last - least))
        x = jnp.clip(a.x, least + width, a.last - width) + part * width
        guess = a.log_batch + (x - a.x) * jnp.where(x < a.x, a.left, a.right)
        return eqx.tree_at(lambda y: (y.x, y.width, y.log_batch), a, (x, width, guess))

    def _places(self, i: Array) -> tuple[Array, Array]:
        """(place of every sample in its range, samples of a range) in round i."""
        samples = self.plan.samples
        each = samples // jnp.asarray(self.plan.ranges)[i]
        return (jnp.arange(samples) % each).astype(jnp.float64)[:, None], each.astype(jnp.float64)

    def _looked(self, q: Candidates, i: Array) -> Candidates:
        """Every sample at its least affordable batch."""
        tensor = jnp.clip(jnp.exp(q.x) / q.stages, q.low, q.high)
        rate = 1e6 * self.scenario.accelerator.price / self.budgets * jnp.exp(q.x)
        at = Place(tensor, q.stages, q.partition > 0.0, q.structure)
        least, most = 1.0 / self.limits.max_batch, 1.0 / self._stages(q)
        inverse, other = jnp.clip(jnp.exp(-q.log_batch), least, most), None
        if q.drafts is not None:
            # A shorter and a longer draft in turn: where all-reduces change, times are not straight in it.
            shorter = (i % 2 == 1) & (q.drafts > self.scenario.draft_lengths[0])
            other = q.drafts + jnp.where(shorter, -1.0, 1.0)
        positive = self.limits.max_batch
        look = kept(lambda: looked(self.scenario, at, inverse, q.drafts, other), positive)
        inverse, drafts, cost = kept(lambda: best(self.scenario, look, rate, least, most), positive)
        cost = jnp.maximum(cost, 1e-9)
        log_batch, log_speed = -jnp.log(inverse), jnp.log(rate * inverse / cost)
        slack = self._slack(layout_of(tensor, q.stages, 1.0 / inverse), log_batch, log_speed)
        value = score(log_speed, jnp.minimum(slack, 1.0 + _AFFORDABLE - cost))
        new = eqx.tree_at(lambda y: (y.log_batch, y.value), q, (log_batch, value))
        return new if drafts is None else eqx.tree_at(lambda y: y.drafts, new, drafts)

    def _stages(self, q: Candidates) -> Array:
        """Of the deeper pipeline of both models."""
        if q.structure is None:
            return q.stages
        return jnp.maximum(q.stages, self.scenario.draft_pipeline(q.structure))

    def _layout(self, tensor: Array, batch: Array, q: Candidates) -> Layout:
        drafts = jnp.zeros(()) if q.drafts is None else _flat(q.drafts, batch)
        return layout_of(*(_flat(x, batch) for x in (tensor, q.stages, batch)), drafts)

    def _slack(self, layout: Layout, log_batch: Array, log_speed: Array) -> Array:
        """The least of what memory (share of it) and demand (logarithm) leave."""
        room = self.scenario.memory_margin(layout, EXACT)
        slack = room / self.scenario.accelerator.hbm_size
        if self.scenario.workload.demand is not None:
            slack = jnp.minimum(slack, jnp.log(self.scenario.workload.demand) - log_speed - log_batch)
        return slack

    def _peaks(self, i: Array, q: Candidates) -> Array:
        """The most promising local maxima among the samples, as ranges."""
        place, each = self._places(i)
        gap = jnp.maximum(2.0 * q.width / (each - 1.0), 1e-14)
        slot = jnp.arange(self.plan.samples)[:, None]
        first, last = place == 0.0, place == each - 1.0
        rise = jnp.clip((_beside(q.log_batch, 1) - q.log_batch) / gap, -_STEEPEST, _STEEPEST)
        left = jnp.where(first, rise, _beside(rise, -1))
        right = jnp.where(last, left, rise)
        peak = (first | (q.value >= _beside(q.value, -1))) & (last | (q.value > _beside(q.value, 1)))
        rank = jnp.where(peak, _hope(q.value, place, each), -jnp.inf)
        order = []
        for _ in range(self.plan.kept):
            # Its place by two reductions: they take vector instructions, an argmax does not.
            highest = rank == jnp.max(rank, axis=0)
            order.append(jnp.min(jnp.where(highest, slot, self.plan.samples - 1), axis=0)[None])
            rank = jnp.where(slot == order[-1], -jnp.inf, rank)
        # A range that rises to its end goes on beyond it as wide as before.
        width = jnp.where(first | last, q.width, _OVERLAP * gap)
        new = eqx.tree_at(lambda y: (y.width, y.left, y.right), q, (width, left, right))
        rows = jnp.take_along_axis(jnp.stack(jax.tree.leaves(new)), jnp.concatenate(order)[None], 1)
        return jnp.pad(rows, ((0, 0), (0, max(self.plan.ranges) - self.plan.kept), (0, 0)), mode="edge")

    def _settled(self, at: Candidates, gain: Array) -> Envelope:
        """Each budget's best at fixed accelerators, at the least batch that meets every limit."""
        tensor = jnp.clip(jnp.exp(at.x) / at.stages, at.low, at.high)
        log_batch = at.log_batch + jnp.asarray(_NUDGES)[:, None]
        log_batch = jnp.clip(log_batch, jnp.log(at.stages), jnp.log(self.limits.max_batch))
        batch = jnp.exp(log_batch)
        speed = self.scenario.speed_among(self._layout(tensor, batch, at), _flat(at.partition > 0.0, batch))
        log_speed = jnp.log(speed).reshape(batch.shape)
        layout = layout_of(tensor, at.stages, batch)
        cost = self.scenario.cost_at_speed(layout, jnp.exp(log_speed))
        over = jnp.log(cost / self.budgets)
        slack = self._slack(layout, log_batch, log_speed)
        values = score(log_speed, jnp.where(over <= 0.0, slack, jnp.minimum(slack, -over - 1e-9)))
        place = jnp.argmax(values, axis=0)[None]
        batch, value, cost = (jnp.take_along_axis(y, place, 0)[0] for y in (batch, values, cost))
        layout = layout_of(tensor, at.stages, batch, 0.0 if at.drafts is None else at.drafts)
        return Envelope(layout, at.partition, value, cost, gain)


def _flat(y: Array, like: Array) -> Array:
    return jnp.broadcast_to(y, like.shape).reshape(-1)


def _repeated(count: int, samples: int) -> Callable[[Array], Array]:
    """Every one of the first `count` ranges for all of its samples."""

    def each(rows: Array) -> Array:
        fields, _, budgets = rows.shape
        wide = jnp.broadcast_to(rows[:, :count, None], (fields, count, samples // count, budgets))
        return wide.reshape(fields, samples, budgets)

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
