"""Relaxed optima of one scenario with single numbers moved, to rounding, many together.

With routed experts the library's own solver scans 33 families, 66 with drafts, for every problem, and a
difference needs two problems for each of 70 to 110 numbers. Numbers move by a thousandth at most, and no
optimum that is three thousandths slower can overtake. So all moved problems begin at every local optimum
within that of the scenario as it stands, and in the boxes beside those whose bounds they touch; the bounds
follow the moved numbers.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxecon as je
from jaxecon.optimum._relaxation import box_of, rebuilt, spread
from jaxecon.optimum._scan import UNFIT, candidate
from jaxecon.sensitivity import _solved
from jaxecon.sensitivity._parameters import scaled

MAX_BATCH = 65536
# Half-widths of the zoom in ln degree; the second time about the best of the first. Points along the free
# degree, stages and drafts.
FINE = 1e-4 * 0.6 ** np.arange(28)
WIDTHS = np.concatenate([3e-3 * 0.6 ** np.arange(16), FINE])
COUNTS = (9, 5, 5)
RIVAL, TOUCHES, SAME, ROUNDING = 3e-3, 2e-3, 1e-6, 1e-12
_TILE, _WIDTH = 16, 4


class Resolved:
    """ln of the best exact speed where one number is moved, by name and move in its logarithm."""

    def __init__(self, scenario, budget, max_accelerators):
        self.scenario, self.budget, self.most = scenario, budget, max_accelerators
        self.names = (*je.parameters(scenario), "budget")
        self.limits = _solved.limits(budget, max_accelerators, MAX_BATCH)
        self.kinds = _solved._solve(scenario, self.limits)[0]
        self.known = {}
        self.together([("budget", 0.0)])
        self.anew("budget", 0.0)

    def log_speed(self, name, move):
        """nan where nothing is feasible."""
        if (name, move) not in self.known:
            self.together([(name, move)])
        return self.known[name, move]

    def together(self, moves):
        """Solve from the local optima of the scenario as it stands."""
        logs = np.zeros((len(moves), len(self.names)))
        for row, (name, move) in zip(logs, moves, strict=True):
            row[self.names.index(name)] = move
        best = np.full(len(moves), -np.inf)
        for kind in self.kinds:
            boxes, z = self._starts(kind)
            roomy = np.any(np.asarray(boxes.high) > np.asarray(boxes.low), axis=0)
            counts = tuple(n if r else 1 for n, r in zip(COUNTS, roomy, strict=True))
            for first in range(0, len(moves), _TILE):
                rows = np.minimum(np.arange(first, first + _TILE), len(moves) - 1)
                for group in range(0, len(z), _WIDTH):
                    at = slice(group, group + _WIDTH)
                    some = jax.tree.map(lambda x, at=at: x[at], boxes)
                    found = _solved_from(self.scenario, self.limits, logs[rows], some, z[at], counts, WIDTHS)
                    np.maximum.at(best, rows, np.asarray(found))
        for key, value in zip(moves, best, strict=True):
            self.known[key] = float(value) if value > UNFIT else np.nan

    def anew(self, name, move):
        """Solve by the library from nothing, zoom, and keep the higher; by how much it is higher."""
        budget = self.budget * np.exp(move if name == "budget" else 0.0)
        scenario = self.scenario
        if name != "budget":
            scenario = je.with_parameters(scenario, {name: je.parameters(scenario)[name] * np.exp(move)})
        limits, before = _solved.limits(budget, self.most, MAX_BATCH), self.log_speed(name, move)
        try:
            found = _solved.solve(scenario, limits).solution
        except je.InfeasibleError:
            return 0.0
        boxes, z = jax.tree.map(lambda x: np.asarray(x)[None], (found.box, _place(found)))
        roomy = np.asarray(found.box.high) > np.asarray(found.box.low)
        counts = tuple(n if r else 1 for n, r in zip(COUNTS, roomy, strict=True))
        still = np.zeros((1, len(self.names)))
        zoomed = _solved_from(scenario, limits, still, boxes, z, counts, FINE)[0]
        after = max(float(found.log_speed), float(zoomed))
        self.known[name, move] = np.fmax(before, after)
        return max(after - before, 0.0) if np.isfinite(before) else np.inf

    def _starts(self, kind):
        """(boxes, degrees) of distinct local optima within `RIVAL` of the best, and of the boxes beside
        those; a first axis of a multiple of `_WIDTH`."""
        families = self.scenario.families(self.limits.max_accelerators)
        best = max(float(np.max(k.log_speed)) for k in self.kinds)
        kept = []
        for i in np.flatnonzero(np.asarray(kind.log_speed) >= best - RIVAL):
            one = jax.tree.map(lambda x, i=int(i): x[i], kind)
            z, number = _place(one), int(one.box.family)
            boxes = [one.box]
            for nodes in (float(one.box.nodes) + d for d in (-1.0, 0.0, 1.0)):
                for alone in (False, True):
                    place = (self.scenario, self.limits, jnp.asarray(nodes), jnp.asarray(alone))
                    if nodes >= 1.0:
                        boxes.append(box_of(families[number], jnp.asarray(number), *place))
            for box in boxes:
                touches = np.abs(np.clip(z, box.low, box.high) - z)[0] <= TOUCHES
                if touches and not any(_same(box, z, *other) for other in kept):
                    kept.append((box, z))
        kept += [kept[0]] * (-len(kept) % _WIDTH)
        return jax.tree.map(lambda *x: np.stack(x), *kept)


def _place(solution):
    """(ln free degree, ln stages, ln(1 + drafted tokens)) of a local optimum."""
    layout = solution.layout
    free = layout.tensor if float(solution.box.across.spread) == 0.0 else layout.data
    return np.log([float(free), float(layout.pipeline), 1.0 + float(layout.draft_tokens)])


def _same(box, z, other, y):
    keys = [[float(x) for x in (b.family, b.nodes, b.alone)] for b in (box, other)]
    return keys[0] == keys[1] and np.max(np.abs(z - y)) <= SAME


@eqx.filter_jit
def _solved_from(scenario, limits, logs, boxes, z, counts, widths):
    """ln of the best exact speed of each row of moved logarithms, from all starts."""
    axes = [jnp.linspace(-1.0, 1.0, n) if n > 1 else jnp.zeros(1) for n in counts]
    moves = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    def one(row):
        moved = scaled(scenario, row[:-1])
        bounds = eqx.tree_at(lambda x: x.budget, limits, limits.budget * jnp.exp(row[-1]))
        places = jax.vmap(lambda box: rebuilt(box, moved, bounds))(boxes)
        low, high = places.low[:, None], places.high[:, None]
        families = moved.families(bounds.max_accelerators)
        least = jnp.log(jnp.stack([f.tensor_low for f in families]))[places.family]
        # A box that has become empty is held at its upper bound, which is no longer legal.
        empty = least > places.high[:, 0] + ROUNDING

        def look(best, width):
            z, score = best
            points = jnp.clip(z[:, None] + width * moves, low, high)
            found = candidate(moved, bounds, points, spread(places), 24, stated_nodes=False)
            at = jnp.argmax(found.score, axis=1)[:, None]
            top = jnp.where(empty, -jnp.inf, jnp.take_along_axis(found.score, at, axis=1)[:, 0])
            where = jnp.take_along_axis(points, at[..., None], axis=1)[:, 0]
            better = top > score
            return (jnp.where(better[:, None], where, z), jnp.where(better, top, score)), None

        start = jnp.clip(z, places.low, places.high), jnp.full(z.shape[:1], -jnp.inf)
        return jnp.max(jax.lax.scan(look, start, widths)[0][1])

    return jax.vmap(one)(logs)
