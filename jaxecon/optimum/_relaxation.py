"""The relaxed problem: real degrees and batch, as a smooth function with slacks.

Unknowns are z = (ln free degree, ln pipeline, ln(1 + drafted tokens), ln batch), where the free
degree is the tensor or the data degree of a `Family`, whose other degrees are fixed or follow. The
first three lie in a box and are written z = low + (high - low) y with 0 < y < 1; the batch follows
from the budget. The number of scale-up domains is not smoothed away: each box holds one count, so
that a full domain is a bound of the box.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import EXACT, Arithmetic
from ..scenarios import Across, Family, Scenario
from ..specs import Layout

CONSTRAINTS = ("price", "fill", "capacity", "accelerators", "demand", "largest batch")


class Limits(eqx.Module):
    """What bounds the layouts besides the scenario itself."""

    budget: Array
    """US dollars per million output tokens."""
    max_accelerators: Array
    max_batch: Array


class Box(eqx.Module):
    """Bounds of the degrees for one family and one number of domains."""

    low: Float[Array, "3"]
    high: Float[Array, "3"]
    nodes: Array
    """Scale-up domains of a stage."""
    alone: Array
    """Whether the free degree is fixed at 1, where its ranks communicate nothing."""
    family: Array
    """Index among the families of the scenario."""
    across: Across
    partition: str = eqx.field(static=True)

    def z(self, y: Array) -> Array:
        """The degrees at fractions y of the box."""
        return self.low + (self.high - self.low) * y

    def y(self, z: Array) -> Array:
        """Fractions of the box at z; one half along a side of no width."""
        width = self.high - self.low
        flat = width <= 0.0
        return jnp.where(flat, 0.5, (z - self.low) / jnp.where(flat, 1.0, width))


def spread(box: Box, axes: int = 1) -> Box:
    """Boxes with further axes of one entry behind their own, so that they broadcast against points."""

    def widened(x: Array) -> Array:
        return x.reshape(*x.shape, *[1] * axes)

    found = jax.tree.map(widened, box)
    sides = [jnp.moveaxis(widened(x), x.ndim - 1, -1) for x in (box.low, box.high)]
    return eqx.tree_at(lambda b: (b.low, b.high), found, sides)


def degrees_of(w: Array, box: Box) -> Array:
    """z at w = (fractions of the box, ln tokens), the new tokens that a data rank of one stage sees.

    Rooflines of matrices tie at a number of tokens, whatever the stages and drafts, so that along
    these unknowns the kinks lie straight.
    """
    z = box.z(w[..., :3])
    return jnp.concatenate([z, (w[..., 3] - log_tokens(z, 0.0, box))[..., None]], axis=-1)


def log_tokens(z: Array, log_batch: Array | float, box: Box) -> Array:
    """ln of the tokens of a data rank's microbatch: batch (1 + drafted)/(pipeline data)."""
    return log_batch + z[..., 2] - z[..., 1] - box.across.log_data(z[..., 0])


def layout_at(z: Array, box: Box, stated_nodes: bool = True) -> Layout:
    """The layout at z, with the box's domains, or with the least domains that hold it."""
    degrees = jnp.exp(z)
    tensor, data, expert = jnp.broadcast_arrays(*box.across.degrees(z[..., 0]))
    nodes = jnp.broadcast_to(box.nodes, tensor.shape) if stated_nodes else None
    return Layout(
        tensor=tensor,
        pipeline=degrees[..., 1],
        expert=expert,
        data=data,
        batch=degrees[..., 3],
        draft_tokens=degrees[..., 2] - 1.0,
        nodes=nodes,
        partition=box.partition,
    )


def box_of(
    family: Family, index: Array, scenario: Scenario, limits: Limits, nodes: Array, alone: Array
) -> Box:
    """The box of the family with that index at `nodes` domains; `alone` fixes a free degree of 1.

    The stage is larger than one domain fewer holds, and at most as large as `nodes` hold.
    """
    size = scenario.accelerator.network.domain_size / family.across.fixed
    largest = jnp.log(family.tensor_high)
    high = jnp.minimum(jnp.log(nodes * size), largest)
    low = jnp.minimum(jnp.log(jnp.maximum((nodes - 1.0) * size, family.tensor_low)), high)
    high, low = jnp.where(alone, 0.0, high), jnp.where(alone, 0.0, low)
    lows = [low, jnp.log(family.pipeline_low), jnp.log1p(family.draft_low)]
    highs = [high, jnp.log(family.pipeline_high), jnp.log1p(family.draft_high)]
    sides = (jnp.stack(jnp.broadcast_arrays(*x), axis=-1) for x in (lows, highs))
    nodes, alone, index = jnp.broadcast_arrays(nodes, alone, index)
    across = jax.tree.map(lambda x: jnp.broadcast_to(x, nodes.shape), family.across)
    return Box(*sides, nodes, alone, index, across, family.partition)


def domains_of(free: Array, family: Family, scenario: Scenario) -> Array:
    """Scale-up domains of a stage at a free degree; a full one is not the beginning of the next."""
    size = scenario.accelerator.network.domain_size / family.across.fixed
    return jnp.maximum(jax.lax.stop_gradient(jnp.ceil(free / size * (1.0 - 1e-12))), 1.0)


def rebuilt(box: Box, scenario: Scenario, limits: Limits) -> Box:
    """The same box with bounds that follow from the scenario, so that they can be differentiated."""
    families = scenario.families(limits.max_accelerators)
    columns = zip(*(jax.tree.leaves(family) for family in families), strict=True)
    leaves = [jnp.stack(column)[box.family] for column in columns]
    family = jax.tree.unflatten(jax.tree.structure(families[0]), leaves)
    found = box_of(family, box.family, scenario, limits, box.nodes, box.alone)
    return eqx.tree_at(lambda b: (b.low, b.high, b.across), box, (found.low, found.high, found.across))


def evaluate(
    scenario: Scenario,
    limits: Limits,
    z: Array,
    box: Box,
    arithmetic: Arithmetic = EXACT,
    stated_nodes: bool = True,
) -> tuple[Array, Array]:
    """(ln seconds per token, slacks) at z; the slacks, in the order of `CONSTRAINTS`, are
    logarithms of (limit/use) and positive where a constraint holds."""
    layout = layout_at(z, box, stated_nodes)
    speed = scenario.speed(layout, arithmetic)
    cost = scenario.cost_at_speed(layout, speed)
    size = scenario.accelerator.hbm_size
    used = size - scenario.memory_margin(layout, arithmetic)
    log_p, log_b = z[..., 1], z[..., 3]
    if scenario.workload.demand is None:
        demand = jnp.ones_like(speed)
    else:
        demand = jnp.log(scenario.workload.demand / (layout.batch * speed))
    slacks = [
        jnp.log(limits.budget / cost),
        log_b - log_p - box.across.log_data(z[..., 0]),
        jnp.log(size / used),
        jnp.log(limits.max_accelerators) - jnp.log(layout.stage) - log_p,
        demand,
        jnp.log(limits.max_batch) - log_b + 1e-9,
    ]
    return -jnp.log(speed), jnp.stack(slacks, axis=-1)


class Affordable(eqx.Module):
    """The smallest batch that meets the budget at given degrees."""

    z: Array
    """The point with that batch."""
    objective: Array
    slacks: Array
    fits: Array
    """Whether every constraint holds there."""


def least_batch(
    scenario: Scenario, limits: Limits, z: Array, box: Box, steps: int, *, stated_nodes: bool = True
) -> Affordable:
    """The point with the smallest affordable batch, in `steps` evaluations by the exact arithmetic.

    Cost falls and memory rises with the batch, so the smallest affordable batch is the quickest
    and the roomiest: if it is not admissible, none is. The least batch and the largest come first.
    Cost is nearly piecewise linear in u = 1/batch, where false position with the weights of Anderson
    and Bjorck (1973) closes in, after a few halvings of ln batch; 20 evaluations end at rounding. The
    answer always is a batch that was evaluated and meets the budget, up to a rounding of it.
    """
    least = z[..., 1] + box.across.log_data(z[..., 0])
    most = jnp.broadcast_to(jnp.log(limits.max_batch), least.shape)

    def body(i: int, state: _Bracket) -> _Bracket:
        fixed = jnp.where(i == 0, least, most)
        log_batch = jnp.where(i < 2, fixed, -jnp.log(_query(state, i)))
        point = jnp.concatenate([z[..., :3], log_batch[..., None]], axis=-1)
        objective, slacks = evaluate(scenario, limits, point, box, EXACT, stated_nodes)
        return _narrowed(state, i, log_batch, objective, slacks)

    one = jnp.ones_like(least)
    slacks = jnp.zeros((*one.shape, len(CONSTRAINTS)))
    dear, fit = _End(jnp.exp(-least), one), _End(jnp.exp(-most), -one)
    state = _Bracket(dear, fit, one > 0.0, 0.0 * one, most, one, slacks)
    state = jax.lax.fori_loop(0, steps, body, state)
    point = jnp.concatenate([z[..., :3], state.log_batch[..., None]], axis=-1)
    return Affordable(point, state.objective, state.slacks, jnp.all(state.slacks >= -1e-12, axis=-1))


_HALVINGS = 3


class _End(eqx.Module):
    """One end of a bracket: 1/batch, and cost/budget - 1 there, weighted down where it stays."""

    u: Array
    over: Array


class _Bracket(eqx.Module):
    """What is known of the smallest affordable batch."""

    dear: _End
    fit: _End
    open: Array
    """Whether it lies between the two ends."""
    side: Array
    """1 where the last query was affordable, -1 where it was not."""
    log_batch: Array
    """The smallest affordable batch so far, with objective and slacks; the largest where none is."""
    objective: Array
    slacks: Array


def _query(state: _Bracket, i: Array) -> Array:
    """1/batch to look at next."""
    dear, fit = state.dear, state.fit
    between = (dear.u * fit.over - fit.u * dear.over) / (fit.over - dear.over)
    inside = (between > fit.u) & (between < dear.u)
    return jnp.where(inside & (i >= 2 + _HALVINGS), between, jnp.sqrt(dear.u * fit.u))


def _narrowed(state: _Bracket, i: Array, log_batch: Array, objective: Array, slacks: Array) -> _Bracket:
    """The bracket after query number i."""
    now = _End(jnp.exp(-log_batch), jnp.expm1(-slacks[..., 0]))
    good = slacks[..., 0] >= 0.0
    late = i > 2 + _HALVINGS

    def held(end: _End, other: _End, side: float) -> _End:
        ratio = 1.0 - now.over / other.over
        weight = jnp.where(ratio > 0.0, ratio, 0.5)
        return _End(end.u, jnp.where(late & (state.side == side), weight * end.over, end.over))

    def where(condition: Array, a: Any, b: Any) -> Any:
        return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)

    better = state.open & (good | (i == 1))
    closes = jnp.where(i == 0, good, ~good & (i == 1))
    return _Bracket(
        where(state.open & ~good, now, held(state.dear, state.fit, 1.0)),
        where(better, now, held(state.fit, state.dear, -1.0)),
        state.open & ~closes,
        jnp.where(good, 1.0, -1.0),
        jnp.where(better, log_batch, state.log_batch),
        jnp.where(better, objective, state.objective),
        jnp.where(better[..., None], slacks, state.slacks),
    )
