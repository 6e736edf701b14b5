"""The relaxed problem: real degrees and batch, as a smooth function with slacks.

Unknowns are z = (ln free degree, ln pipeline, ln(1 + drafted tokens), ln batch), where the free
degree is the tensor or the data degree of a `Family`, whose other degrees are fixed or follow. The
first three lie in a box and are written z = low + (high - low) y with 0 < y < 1; the batch follows
from the budget. The number of scale-up domains is not smoothed away: each box holds one count, so
that a full domain is a bound of the box.
"""

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
    return Box(jnp.stack(lows), jnp.stack(highs), nodes, alone, index, family.across, family.partition)


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
        log_b - log_p - jnp.log(layout.data),
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
    scenario: Scenario,
    limits: Limits,
    z: Array,
    box: Box,
    steps: int,
    *,
    stated_nodes: bool = True,
    margin: float | Array = 0.0,
) -> Affordable:
    """The point with the smallest affordable batch, its log raised by `margin` where there is room.

    Cost falls and memory rises with the batch, so the smallest affordable batch is the quickest
    and the roomiest: if it is not admissible, none is. A bisection over ln batch by the exact
    arithmetic, whose upper end meets the budget; the first query is the least batch, the last the
    answer, so that the loop holds the only evaluation.
    """

    def body(i: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, _, _, _ = state
        last = i == steps + 1
        raised = high + jnp.minimum(margin, 0.5 * (jnp.log(limits.max_batch) - high))
        query = jnp.where(i == 0, low, jnp.where(last, raised, 0.5 * (low + high)))
        point = jnp.concatenate([z[..., :3], query[..., None]], axis=-1)
        objective, slacks = evaluate(scenario, limits, point, box, EXACT, stated_nodes)
        affordable = slacks[..., 0] >= 0.0
        high = jnp.where(affordable & ~last, query, high)
        low = jnp.where(affordable | last, low, query)
        return low, high, query, objective, slacks

    low = z[..., 1] + jnp.log(layout_at(z, box).data)
    high = jnp.broadcast_to(jnp.log(limits.max_batch), low.shape)
    state = (low, high, low, low, jnp.zeros((*low.shape, len(CONSTRAINTS))))
    state = jax.lax.fori_loop(0, steps + 2, body, state)
    _, _, query, objective, slacks = state
    point = jnp.concatenate([z[..., :3], query[..., None]], axis=-1)
    return Affordable(point, objective, slacks, jnp.all(slacks >= -1e-12, axis=-1))
