"""Elasticities against differences of re-solved optima, and what a reverse pass costs.

Run: python benchmarks/sensitivity_bars.py [COUNT] [FIRST_SEED] [sparse] [every]
For every parameter of every scenario the relaxed problem is solved anew with the parameter moved to
either side by 1e-4 (5e-5 where another regime lies nearer), and the speeds by the exact arithmetic are
differenced: centrally where the library reports one number, and to second order from three points on
each side, beyond the reach of the smoothing, where it reports a pair. The bar is a relative error of
1e-3, and an absolute one of 1e-3 where the elasticity is below 0.01; the strict count, 1e-5 there.

The moved problems of a scenario are solved together (`resolving.py`): a zoom by the exact arithmetic,
without smoothing, barrier or derivatives, from every local optimum that the library finds for the scenario
as it stands. With "every", each is solved by the library from nothing as well, which takes a second or so
for models with routed experts, and its layout zoomed; without, those of parameters that are not within
the bar, and of `SAMPLE` random ones to show that nothing better is missed. The higher speed counts.
"""

import sys
import time

import jax
import numpy as np
from resolving import Resolved
from scenarios import MAX_ACCELERATORS, grouped

import jaxecon as je
from jaxecon.sensitivity import _solved

BAR, SMALL, STEPS, BESIDE = 1e-3, 1e-2, (1e-4, 5e-5), 3.0
SAMPLE = 6
LIMITS = {"max_accelerators": MAX_ACCELERATORS}


def _error(expected, found):
    """Relative; below `SMALL` relative to that."""
    return abs(expected - found) / max(abs(expected), SMALL)


def _moves(found, steps):
    """(name, move) of every re-solved problem: beside each parameter, and farther away for pairs."""
    moves = []
    for name, value in found.items():
        for step in steps:
            far = [BESIDE * step * k for k in (1, 2, 3)] if isinstance(value, tuple) else []
            moves += [(name, sign * size) for sign in (-1, 1) for size in (step, *far)]
    return moves


def _compare(at, found, here):
    """(error, whether within the bar, whether a pair, whether the shorter step was needed); `at` gives
    ln of the speed where the parameter is moved."""
    for step in STEPS:
        below, above = at(-step), at(step)
        sides = np.array([(here - below) / step, (above - here) / step])
        usable = np.isfinite(sides)
        if isinstance(found, tuple):
            for k, sign in enumerate((-1, 1)):
                far = sign * BESIDE * step
                sides[k] = np.dot((-2.5, 4.0, -1.5), [at(far), at(2 * far), at(3 * far)]) / far
            usable = np.isfinite(sides)
            errors = [_error(s, f) for s, f in zip(sides, found, strict=True)]
        elif usable.all():
            errors = [_error(0.5 * (sides[0] + sides[1]), found)]
            # One number is only right where the sides agree, curvature apart.
            if abs(sides[0] - sides[1]) > 1e-2 * max(1.0, abs(found)):
                errors += [_error(s, found) for s in sides]
        else:
            errors = [_error(s, found) for s in sides]
        error = max((e for e, u in zip(errors, usable, strict=False) if u), default=0.0)
        if error <= BAR:
            break
    pair = isinstance(found, tuple)
    compared = zip(errors, found if pair else [found] * len(errors), usable, strict=False)
    good = all(e <= (BAR / SMALL if abs(f) < SMALL else BAR) for e, f, u in compared if u)
    return error, good, pair, step != STEPS[0]


def _seconds(call, repeats):
    """The least of the repeats: other work on the machine only adds."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


def _costs(scenario, budget, count):
    """(reverse pass / evaluation, reverse pass / differences over all parameters)."""
    limits = _solved.limits(budget, MAX_ACCELERATORS, 65536)
    solved = _solved.solve(scenario, limits)
    at = (scenario, limits, solved.solution)
    value = _seconds(lambda: _solved.value(*at), 200)
    reverse = _seconds(lambda: _solved.slopes(*at), 200)
    whole = _seconds(lambda: _solved.solve(scenario, limits).solution, 5)
    return reverse / value, reverse / (2 * count * whole)


def _checked(scenario, budget, found, seed, every):
    """What `_compare` says of each elasticity that is told, and by how much a sample of the problems is
    solved better from nothing than together."""
    told = {k: v for k, v in found.items() if not np.isnan(v).any()}
    resolved = Resolved(scenario, budget, MAX_ACCELERATORS)
    resolved.together(_moves(told, STEPS[:1]))
    rng = np.random.default_rng(seed)
    sample = [list(told)[i] for i in rng.choice(len(told), min(SAMPLE, len(told)), replace=False)]
    missed = [0.0]
    for name in told if every else sample:
        missed += [resolved.anew(name, move) for move in (-STEPS[0], STEPS[0])]

    def compared(name):
        here = resolved.log_speed("budget", 0.0)
        return _compare(lambda move: resolved.log_speed(name, move), told[name], here)

    results = {name: compared(name) for name in told}
    outside = {k: told[k] for k, (error, *_) in results.items() if error > BAR}
    for name, move in _moves(outside, STEPS):
        resolved.anew(name, move)
    results |= {name: compared(name) for name in outside}
    return results, max(missed)


def main(count: int = 100, first: int = 0, sparse: bool = False, every: bool = False) -> None:
    """Print the share of parameters within the bar, the worst, and the ratios of times."""
    errors, within, pairs, shorter, statuses, ratios, untold, missed = [], [], 0, 0, [], [], 0, []
    for number, (seed, scenario, budget) in enumerate(grouped(count, first, sparse), 1):
        found = je.elasticities(scenario, budget, **LIMITS)
        statuses.append(found.status)
        untold += sum(bool(np.isnan(v).any()) for v in found.values())
        results, better = _checked(scenario, budget, found, seed, every)
        missed.append(better)
        for name, (error, good, pair, short) in results.items():
            errors.append(error)
            within.append(good)
            pairs, shorter = pairs + pair, shorter + short
            if error > BAR:
                print(f"seed {seed}: {name} {found[name]} error {error:.2e} {found.status}", flush=True)
        ratios.append(_costs(scenario, budget, len(found)))
        if sparse or number % 5 == 0:
            count_now = f"{number} scenarios (last {seed}), {len(errors)} elasticities, {pairs} pairs"
            print(
                f"... {count_now}, {len(within) - sum(within)} outside, worst {max(errors):.1e}", flush=True
            )
    errors, ratios = np.array(errors), np.array(ratios)
    print(f"{count} scenarios from seed {first}, {len(errors)} elasticities, {pairs} of them pairs")
    print(f"within the bar: {np.mean(within):.6f} ({len(within) - sum(within)} outside); ", end="")
    print(f"strict: {np.mean(errors <= BAR):.6f} ({np.sum(errors > BAR)} outside); ", end="")
    print(f"worst {errors.max():.2e}, 99 % below {np.quantile(errors, 0.99):.1e}; {shorter} with step 5e-5")
    print(
        f"most by which a problem is solved better from nothing than together: {max(missed):.1e} of the speed"
    )
    print(f"not told, because the relaxed optimum did not converge: {untold}")
    for status in sorted(set(statuses)):
        print(f"status {status!r}: {statuses.count(status)}")
    print(f"reverse pass / final evaluation: median {np.median(ratios[:, 0]):.2f}, ", end="")
    print(f"largest {ratios[:, 0].max():.2f}")
    print(f"reverse pass / differences: median {np.median(ratios[:, 1]):.1e}, ", end="")
    print(f"largest {ratios[:, 1].max():.1e}")


if __name__ == "__main__":
    numbers = [int(x) for x in sys.argv[1:] if x not in ("sparse", "every")]
    main(*numbers, sparse="sparse" in sys.argv, every="every" in sys.argv)
