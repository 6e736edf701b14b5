"""What is asked of a server, and one way of laying a model out on accelerators."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from .._numerics import Scalar, optional_scalar, scalar
from ._model import Model


class Speculation(eqx.Module):
    """Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192).

    A `draft` model proposes tokens that the target verifies in one pass; each is accepted
    with probability `acceptance`, independently.
    """

    draft: Model
    acceptance: Scalar = eqx.field(converter=scalar)
    """Probability that a drafted token is accepted, 0 to 1 inclusive."""
    max_draft_tokens: int = eqx.field(static=True, default=8)


class Workload(eqx.Module):
    """The requests: tokens already in the cache on average, and tokens generated."""

    context: Scalar = eqx.field(converter=scalar)
    """Tokens in the cache, averaged over the generation of one output."""
    output: Scalar = eqx.field(converter=scalar, default=512.0)
    """Tokens generated per request."""
    demand: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Tokens/s wanted by all users together, served by one replica; None for no limit."""

    def __check_init__(self) -> None:
        for name, least in (("context", 0.0), ("output", 1.0), ("demand", 0.0)):
            value = getattr(self, name)
            if value is None or not _concrete(value):
                continue
            if not bool(jnp.all(value >= least)) or not bool(jnp.all(jnp.isfinite(value))):
                raise InputError(f"{name} must be a number of at least {least:g}, got {value}")

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
    """Scale-up domains that a tensor-parallel group spans; None for the least that hold it."""
    partition: str = eqx.field(static=True, default="1d")
    """"1d" splits each matrix along one side, "2d" along both (the paper's equations only)."""

    def domains(self, domain_size: Array, ceil: Callable[[Array], Array]) -> Array:
        """Domains that a tensor-parallel group spans: as stated, else ceil(tensor/domain size).

        A real degree that fills whole domains but for rounding (1e-12) fills them.
        """
        if self.nodes is not None:
            return self.nodes
        return ceil(self.tensor / domain_size * (1.0 - 1e-12))

    @property
    def accelerators(self) -> Array:
        """Accelerators of the replica: tensor x data x pipeline."""
        return self.tensor * self.data * self.pipeline


def _concrete(value: Array) -> bool:
    return eqx.is_array(value) and not isinstance(value, jax.core.Tracer)
