"""Which terms of every max, min and ceil decide at a layout."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Int

from .._numerics import Exact
from ..scenarios import Scenario
from ..specs import Layout


class _Recorder(Exact):
    """The exact arithmetic, which writes down every choice that it makes."""

    choices: list[Array]

    def max_weights(self, x: Array) -> Array:
        self.choices.append(jnp.argmax(x, axis=-1))
        return super().max_weights(x)

    def min_weights(self, x: Array) -> Array:
        self.choices.append(jnp.argmin(x, axis=-1))
        return super().min_weights(x)

    def max(self, x: Array) -> Array:
        self.choices.append(jnp.argmax(x, axis=-1))
        return super().max(x)

    def maximum(self, a: Array, b: Array) -> Array:
        self.choices.append(a >= b)
        return super().maximum(a, b)

    def minimum(self, a: Array, b: Array) -> Array:
        self.choices.append(a <= b)
        return super().minimum(a, b)

    def quickest(self, ways: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        sums = jnp.stack(jnp.broadcast_arrays(*(a + b for a, b in ways)), axis=-1)
        self.choices.append(jnp.argmin(sums, axis=-1))
        return super().quickest(ways)

    def ceil(self, x: Array) -> Array:
        self.choices.append(super().ceil(x))
        return super().ceil(x)


def regime(scenario: Scenario, layout: Layout) -> Int[Array, " choices"]:
    """Every choice at one layout as integers: rooflines, protocols, domains, replication, and
    whether memory and demand admit it. Two layouts of one regime are on one smooth piece."""
    recorder = _Recorder([])
    speed = scenario.speed(layout, recorder)
    fits = scenario.memory_margin(layout, recorder) >= 0.0
    served = scenario.demand_margin(layout, speed) >= 0.0
    choices = [*recorder.choices, fits, served]
    return jnp.concatenate([jnp.ravel(jnp.asarray(c, jnp.int32)) for c in choices])
