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
from ._relaxation import Box, Limits, layout_at, log_tokens, spread
from ._scan import Candidate, candidate, scan, taken

# Starts by rank, and the barrier weight with which each path begins.
_RANKS = (0, 1, 2, 0)
_BEGIN = (1.0, 1.0, 1.0, 1e-3)
_POLISH_STEPS = 18
# Tensor, stages and drafts at the low (-1) or high (1) end of the box.
_CORNERS = [(t, p, d) for t in (0.0, 1.0) for p in (0.0, -1.0) for d in (0.0, -1.0)]
# Of the first look, at ends and corners, and of the later ones.
_REACHES = (0.0, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7)
# Of starts, between the draft lengths of the scan.
_DRAFT_REACHES = (0.08, 0.04, 0.02, 0.01)
# Smoothing and barrier move the speed by less than this.
_EXPLAINED = 2e-4
TOLERANCE = 1e-6
"""KKT residuals above this are not called a success."""
_DOUBT = 1e-5
# Fractions of a box that starts keep from its sides.
_PULL = 0.02


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
    starts = find_starts(scenario, limits)
    return finish(scenario, limits, starts, follow(scenario, limits, starts))


def find_starts(scenario: Scenario, limits: Limits) -> tuple[Candidate, ...]:
    """The first part of `solve_relaxed`: where paths begin, along a leading axis, per partition."""
    found = []
    for families in _partitions(scenario, limits):
        starts = _scan_all(scenario, limits, families)
        if any(f.drafted for _, f in families):
            directions = _compass([f for _, f in families])
            starts = _closer(scenario, limits, starts, starts.z[:, None, :3], directions, _DRAFT_REACHES)
        found.append(starts)
    return tuple(found)


def follow(scenario: Scenario, limits: Limits, starts: tuple[Candidate, ...]) -> tuple[Point, ...]:
    """The second: the paths from there to their ends."""
    found = []
    for families, start in zip(_partitions(scenario, limits), starts, strict=True):
        box = start.box
        varying = (True, *_varying([f for _, f in families]))
        free = tuple(k for k, varies in enumerate(varying) if varies)
        y = jnp.clip(box.y(start.z[:, :3]), _PULL, 1.0 - _PULL)
        tokens = log_tokens(box.z(y), start.z[:, 3], box)
        w = jnp.concatenate([y, tokens[:, None]], axis=1)
        found.append(minimise(scenario, limits, box, w, jnp.asarray(_BEGIN), free))
    return tuple(found)


def finish(
    scenario: Scenario, limits: Limits, starts: tuple[Candidate, ...], points: tuple[Point, ...]
) -> tuple[Solutions, ...]:
    """The third: the exact polish of those ends."""
    found = []
    for families, start, point in zip(_partitions(scenario, limits), starts, points, strict=True):
        box, sound = start.box, jnp.isfinite(point.residual)
        ends = box.z(jnp.where(sound[:, None], point.y, box.y(start.z[:, :3])))
        chosen = _polish(scenario, limits, start, ends, _compass([f for _, f in families]))
        layout = layout_at(chosen.z, box, stated_nodes=False)
        left = jnp.abs(chosen.score + point.objective)
        left = jnp.where(left < _EXPLAINED, 0.0, left)
        residual = jnp.where(sound, jnp.maximum(point.residual, left), jnp.inf)
        cost = scenario.cost_at_speed(layout, jnp.exp(chosen.score))
        found.append(Solutions(layout, box, point, chosen.score, cost, residual))
    return tuple(found)


def _partitions(scenario: Scenario, limits: Limits) -> list[list[tuple[int, Family]]]:
    """Families with their indices, by partition."""
    families = list(enumerate(scenario.families(limits.max_accelerators)))
    kinds = sorted({f.partition for _, f in families})
    return [[(i, f) for i, f in families if f.partition == k] for k in kinds]


def _scan_all(scenario: Scenario, limits: Limits, families: list[tuple[int, Family]]) -> Candidate:
    """The starts among scans of all families; those of one structure are in one graph."""
    shapes = sorted({(f.fixed_pipeline, f.drafted) for _, f in families})
    ranks = jnp.asarray(_RANKS if len(shapes) == 1 else range(len(_RANKS)))
    found = []
    for shape in shapes:
        alike = [(i, f) for i, f in families if (f.fixed_pipeline, f.drafted) == shape]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *[f for _, f in alike])
        found.append(scan(scenario, limits, stacked, jnp.asarray([i for i, _ in alike]), ranks))
    if len(shapes) == 1:
        return found[0]
    every = jax.tree.map(lambda *x: jnp.concatenate(x), *found)
    _, order = jax.lax.top_k(every.score, len(_RANKS))
    return taken(every, order[jnp.asarray(_RANKS)])


def _varying(families: list[Family]) -> tuple[bool, bool]:
    """Whether stages and drafts are free anywhere."""
    return not all(f.fixed_pipeline for f in families), any(f.drafted for f in families)


def _compass(families: list[Family]) -> list[tuple[float, float, float]]:
    """Directions in (free degree, stages, drafts) in which there is room, and a short one."""
    sides = (-1.0, 0.0, 1.0)
    staged, drafted = _varying(families)
    stages = sides if staged else (0.0,)
    drafts = (-1.0, 1.0) if drafted else ()
    found = [(t, p, 0.0) for t in sides for p in stages] + [(t, 0.0, d) for t in sides for d in drafts]
    return [*found, (0.1, 0.0, 0.0)]


def _polish(
    scenario: Scenario, limits: Limits, starts: Candidate, ends: Array, compass: list[tuple[float, ...]]
) -> Candidate:
    """The quickest by the exact arithmetic of the ends of the paths, their neighbours on the bounds, the
    starts, and then of ever closer neighbours of the best."""
    box = starts.box
    low, high = box.low, box.high
    corners = jnp.asarray(_CORNERS)
    on = jnp.where(corners < 0.0, low[:, None], jnp.where(corners > 0.0, high[:, None], ends[:, None]))
    first = jnp.concatenate([on, starts.z[:, None, :3]], axis=1)
    nothing = Candidate(box, starts.z, jnp.full(starts.score.shape, -jnp.inf))
    return _closer(scenario, limits, nothing, first, compass, _REACHES)


def _closer(
    scenario: Scenario,
    limits: Limits,
    starts: Candidate,
    first: Array,
    compass: list[tuple[float, ...]],
    reaches: tuple[float, ...],
) -> Candidate:
    """The quickest by the exact arithmetic of `first` and then, within ever shorter reaches, of the best's
    neighbours."""
    box, wide = starts.box, spread(starts.box)
    low, high = box.low[:, None], box.high[:, None]
    # As many points in every look.
    count = max(first.shape[1], len(compass))
    first = jnp.concatenate([first, *[first[:, :1]] * (count - first.shape[1])], axis=1)
    moves = jnp.asarray([*compass, *[(0.0, 0.0, 0.0)] * (count - len(compass))])

    def look(best: Candidate, reach: Array) -> tuple[Candidate, None]:
        near = best.z[:, None, :3] + reach * moves
        points = jnp.clip(jnp.where(reach > 0.0, near, first), low, high)
        found = candidate(scenario, limits, points, wide, _POLISH_STEPS, stated_nodes=False)
        at = jnp.argmax(found.score, axis=1)[:, None]
        score = jnp.take_along_axis(found.score, at, axis=1)[:, 0]
        z = jnp.take_along_axis(found.z, at[..., None], axis=1)[:, 0]
        better = score > best.score
        z = jnp.where(better[:, None], z, best.z)
        return Candidate(box, z, jnp.where(better, score, best.score)), None

    return jax.lax.scan(look, starts, jnp.asarray(reaches))[0]
