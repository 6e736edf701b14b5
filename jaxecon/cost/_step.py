"""The parts of a step's time."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array


class StepTime(eqx.Module):
    """Seconds of one decode step by cause. `total` is not the sum of all parts: arithmetic
    and memory traffic overlap."""

    arithmetic: Array
    memory: Array
    network_bandwidth: Array
    network_latency: Array
    launch: Array
    total: Array
    prompts: Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    """What prompts of other requests, ingested by the same replica, add to a step."""

    @property
    def roofline_bound(self) -> Array:
        """A time that no step can beat: the larger of arithmetic and memory, in seconds."""
        return jnp.maximum(self.arithmetic, self.memory)

    @property
    def beside_roofs(self) -> Array:
        """What arithmetic and memory traffic have no share in, in seconds."""
        return self.total - self.roofline_bound
