"""What is asked of a server, and one way of laying a model out on accelerators."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import Scalar, is_concrete, optional_scalar, scalar


class Workload(eqx.Module):
    """The requests: tokens already in the cache on average, and tokens generated."""

    context: Scalar = eqx.field(converter=scalar)
    """Tokens in the cache, averaged over the generation of one output."""
    output: Scalar = eqx.field(converter=scalar, default=512.0)
    """Tokens generated per request."""
    demand: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Tokens/s wanted by all users together, served by one replica; None for no limit."""
    prompt: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Tokens of a request's prompt; None for context - output/2, with which the cache averages
    `context` tokens."""
    hit_rate: Scalar = eqx.field(converter=scalar, default=0.0)
    """Share of a prompt whose cache an earlier request has left (prefix caching), 0 to 1."""

    def __check_init__(self) -> None:
        for name, least in (("context", 0.0), ("output", 1.0), ("demand", 0.0), ("prompt", 0.0)):
            value = getattr(self, name)
            if value is None or not is_concrete(value):
                continue
            known = np.asarray(value)  # NumPy, so that reading a question compiles nothing
            if not np.all(known >= least) or not np.all(np.isfinite(known)):
                raise InputError(f"{name} must be a number of at least {least:g}, got {value}")
        share = np.asarray(self.hit_rate) if is_concrete(self.hit_rate) else np.zeros(())
        if not np.all((share >= 0.0) & (share <= 1.0)):
            raise InputError(f"hit_rate is a share of the prompt from 0 to 1, got {self.hit_rate}")

    @property
    def prompt_tokens(self) -> Array:
        """Tokens of a request's prompt, at least 1."""
        if self.prompt is not None:
            return jnp.maximum(self.prompt, 1.0)
        return jnp.maximum(self.context - 0.5 * self.output, 1.0)

    @property
    def full_context(self) -> Array:
        """Tokens in the cache when the output ends: context + output/2."""
        return self.context + 0.5 * self.output


class Layout(eqx.Module):
    """How one replica is spread over accelerators. Degrees may be real numbers.

    Attention is divided over `tensor` x `data` accelerators of each pipeline stage; routed
    experts over `expert` of them, so that tensor x data = expert x expert tensor.
    """

    tensor: Scalar = eqx.field(converter=scalar, default=1.0)
    """Tensor-parallel degree."""
    pipeline: Scalar = eqx.field(converter=scalar, default=1.0)
    """Pipeline stages."""
    expert: Scalar = eqx.field(converter=scalar, default=1.0)
    """Expert-parallel degree; divides tensor x data."""
    data: Scalar = eqx.field(converter=scalar, default=1.0)
    """Attention data-parallel degree inside the replica."""
    batch: Scalar = eqx.field(converter=scalar, default=1.0)
    """Concurrent sequences of the replica."""
    draft_tokens: Scalar = eqx.field(converter=scalar, default=0.0)
    """Tokens drafted per step; 0 without speculative decoding."""
    nodes: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Scale-up domains that one pipeline stage spans; None for the least that hold it."""
    partition: str = eqx.field(static=True, default="1d")
    """"1d" splits each matrix along one side, "2d" along both (the paper's equations only)."""

    @property
    def stage(self) -> Array:
        """Accelerators of one pipeline stage: tensor x data = expert x expert tensor."""
        return self.tensor * self.data

    def domains(self, domain_size: Array, ceil: Callable[[Array], Array]) -> Array:
        """Domains that a tensor-parallel group spans: ceil(tensor/domain size).

        Where the stage's are stated, ceil(stage's/data), which is the same number. A real degree
        that fills whole domains but for rounding (1e-12) fills them.
        """
        if self.nodes is None:
            return ceil(self.tensor / domain_size * (1.0 - 1e-12))
        return jnp.ceil(self.nodes / self.data * (1.0 - 1e-12))

    def stage_domains(self, domain_size: Array, ceil: Callable[[Array], Array]) -> Array:
        """Domains that a stage spans: as stated, else ceil(tensor data/domain size)."""
        return ceil(self.stage / domain_size * (1.0 - 1e-12)) if self.nodes is None else self.nodes

    @property
    def accelerators(self) -> Array:
        """Accelerators of the replica: tensor x data x pipeline."""
        return self.tensor * self.data * self.pipeline
