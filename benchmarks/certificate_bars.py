"""Rounding against the certificate, the two ways of certifying, and which is faster.

Run: python benchmarks/certificate_bars.py [COUNT] [FIRST_SEED] [sparse]
"""

import sys
import time

import jax
import numpy as np
from scenarios import MAX_ACCELERATORS, grouped

import jaxecon as je
from jaxecon.optimum import Space, rounded


LIMITS = {"max_accelerators": MAX_ACCELERATORS}


def _timed(scenario, budget, start):
    je.certified_optimum(scenario, budget, start=start, **LIMITS)
    began = time.perf_counter()
    found = je.certified_optimum(scenario, budget, start=start, **LIMITS)
    return found, time.perf_counter() - began


def _same(a, b) -> bool:
    layouts = (jax.tree.leaves(x.layout) for x in (a, b))
    return (a.speed, a.cost) == (b.speed, b.cost) and all(map(np.array_equal, *layouts))


def main(count: int = 300, first: int = 0, sparse: bool = False) -> None:
    """Print the shares within the bars and the ratio of times, warm."""
    close, equal, ratios, sizes, shares = [], [], [], [], []
    for seed, scenario, budget in grouped(count, first, sparse):
        plain, slow = _timed(scenario, budget, "enumerate")
        led, fast = _timed(scenario, budget, "relaxed")
        relaxed = je.relaxed_optimum(scenario, budget, **LIMITS)
        space = Space(scenario, MAX_ACCELERATORS)
        near = rounded(space, relaxed.layout, budget)
        shares.append((space.examined_degrees / sum(map(len, space.blocks)), space.examined / plain.examined))
        close.append(0.0 if near is None else near[1] / plain.speed)
        equal.append(_same(plain, led))
        ratios.append(fast / slow)
        sizes.append(plain.space_size)
        if close[-1] < 0.99:
            print(f"seed {seed}: rounded {close[-1]:.4f} of certified", flush=True)
    close = np.array(close)
    print(f"{count} scenarios from seed {first}: rounded within 1 %: {np.mean(close >= 0.99):.4f}")
    print(f"rounded equals certified: {np.mean(close == 1.0):.4f}; worst {close.min():.4f}")
    sets, layouts = np.transpose(shares)
    print(f"rounding looks at sets of degrees: median {np.median(sets):.3f}, most {sets.max():.3f} of all")
    print(f"and at layouts: median {np.median(layouts):.2f}, most {layouts.max():.2f} of enumeration's")
    print(f"relaxed start equals enumeration: {sum(equal)} of {count}")
    print(f"time of relaxed start / enumeration: median {np.median(ratios):.2f}, least {min(ratios):.2f}")
    print(f"space sizes: {min(sizes):,} to {max(sizes):,}")


if __name__ == "__main__":
    numbers = [int(x) for x in sys.argv[1:] if x != "sparse"]
    main(*numbers, sparse="sparse" in sys.argv)
