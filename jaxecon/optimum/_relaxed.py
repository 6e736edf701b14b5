"""The relaxed optimum: a coarse exact scan for starts, interior-point Newton, an exact polish.

The scan covers every family and number of domains, so the discontinuities of the exact model
are enumerated; Newton moves inside one box, where the model is continuous; the polish re-evaluates
candidates by the exact arithmetic, so that a reported layout satisfies every constraint.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..scenarios import Family, Scenario
from ..specs import Layout
from ._interior import Point, minimise
from ._relaxation import Box, Limits, layout_at, least_batch
from ._scan import Candidate, candidate, scan

_STARTS = 6
_POLISH_STEPS = 52
# Smoothing and barrier move the speed by less than this.
_EXPLAINED = 2e-4
TOLERANCE = 1e-6
"""KKT residuals above this are not called a success."""
_DOUBT = 1e-6
_PULLS = (0.1, 0.02, 1e-3, 1e-5)


class Solutions(eqx.Module):
    """Local optima of one partition, one per start along a leading axis, best not first."""

    layout: Layout
    box: Box
    point: Point
    """Where the interior-point path ends."""
    log_speed: Array
    """By the exact arithmetic at `layout`; `UNFIT` or less where nothing feasible was found."""
    cost: Array
    residual: Array
    """KKT residual at `point`, or the relative speed by which the exact polish left it if that is
    larger than smoothing explains; inf where there is no interior."""

    @property
    def rank(self) -> Array:
        """ln speed, a little less where the path did not end there.

        A full domain is the end of one box and the beginning of the next, and only the first is
        stationary there.
        """
        return self.log_speed - jnp.where(self.residual <= TOLERANCE, 0.0, _DOUBT)


def solve_relaxed(scenario: Scenario, limits: Limits) -> tuple[Solutions, ...]:
    """Local optima per partition ("1d", "2d"); usable under jit and vmap."""
    families = list(enumerate(scenario.families(limits.max_accelerators)))
    kinds = sorted({f.partition for _, f in families})
    return tuple(
        _solve_partition(scenario, limits, [(i, f) for i, f in families if f.partition == k]) for k in kinds
    )


def _solve_partition(scenario: Scenario, limits: Limits, families: list[tuple[int, Family]]) -> Solutions:
    every = _scan_all(scenario, limits, families)
    _, order = jax.lax.top_k(every.score, _STARTS)
    starts = jax.tree.map(lambda x: x[order], every)

    def refine(start: Candidate) -> tuple[Candidate, Point, Array]:
        y0, log_batch, inside = _interior_start(scenario, limits, start)
        point = minimise(scenario, limits, start.box, y0, log_batch)
        inside = inside & jnp.isfinite(point.residual)
        y = jnp.where(inside, point.y, start.box.y(start.z[:3]))
        return _polish(scenario, limits, start, y), point, inside

    chosen, point, interior = jax.vmap(refine)(starts)
    layout = layout_at(chosen.z, chosen.box, stated_nodes=False)
    left = jnp.abs(chosen.score + point.objective)
    left = jnp.where(left < _EXPLAINED, 0.0, left)
    residual = jnp.where(interior, jnp.maximum(point.residual, left), jnp.inf)
    cost = scenario.cost_at_speed(layout, jnp.exp(chosen.score))
    return Solutions(layout, chosen.box, point, chosen.score, cost, residual)


def _scan_all(scenario: Scenario, limits: Limits, families: list[tuple[int, Family]]) -> Candidate:
    """Scans of all families; those of one structure in one graph."""
    found = []
    for shape in sorted({(f.fixed_pipeline, f.drafted) for _, f in families}):
        alike = [(i, f) for i, f in families if (f.fixed_pipeline, f.drafted) == shape]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *[f for _, f in alike])
        indices = jnp.asarray([i for i, _ in alike])
        scans = jax.vmap(lambda f, i: scan(scenario, limits, f, i))(stacked, indices)
        found.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), scans))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found)


def _interior_start(scenario: Scenario, limits: Limits, start: Candidate) -> tuple[Array, Array, Array]:
    """(y, ln batch, whether strictly inside): the start, pulled off its bounds as far as it
    stays feasible."""
    box, y = start.box, start.box.y(start.z[:3])

    def pulled(pull: Array) -> tuple[Array, Array, Array]:
        inner = jnp.clip(y, pull, 1.0 - pull)
        found = least_batch(scenario, limits, box.z(inner), box, 40)
        return inner, found.z[3], found.fits & jnp.all(found.slacks[2:] > 0.0)

    ys, batches, good = jax.vmap(pulled)(jnp.asarray(_PULLS))
    first = jnp.argmax(good)
    return ys[first], batches[first], good[first]


def _polish(scenario: Scenario, limits: Limits, start: Candidate, y: Array) -> Candidate:
    """The quickest of the Newton point, its neighbours on the bounds, and the start, exactly."""
    box = start.box
    nudges = jnp.asarray([0.0, 1e-6, 1e-5, 1e-4, 1e-3])
    z = box.z(y)
    top = z.at[0].set(box.high[0])
    variants = [z, top, z.at[1].set(box.low[1]), top.at[1].set(box.low[1])]
    variants += [v.at[2].set(box.low[2]) for v in variants]
    variants += [z.at[0].add(n) for n in nudges[1:]] + [z.at[1].add(n) for n in nudges[1:]]
    points = jnp.clip(jnp.stack([*variants, start.z[:3]]), box.low, box.high)

    def exact(z: Array) -> Candidate:
        return candidate(scenario, limits, z, box, _POLISH_STEPS, stated_nodes=False)

    found = jax.vmap(exact)(points)
    best = jnp.argmax(found.score)
    return jax.tree.map(lambda x: x[best], found)
