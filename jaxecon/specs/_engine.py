"""What a serving engine adds to the accelerator's work. Data only."""

import equinox as eqx

from .._numerics import Scalar, scalar
from ._label import Label


class EngineProfile(eqx.Module):
    """Launches, host time and scheduling of one engine. All zeros: an engine that adds nothing.

    Launches are counted in units of `Accelerator.kernel_launch_latency`.
    """

    kernels_per_layer: Scalar = eqx.field(converter=scalar, default=4.0)
    """Launches per layer and pass."""
    expert_kernels: Scalar = eqx.field(converter=scalar, default=0.0)
    """Further ones per layer with routed experts: routing, sorting, grouped products."""
    latent_kernels: Scalar = eqx.field(converter=scalar, default=0.0)
    """Further ones per layer with latent attention or a recurrence."""
    narrow_kernels: Scalar = eqx.field(converter=scalar, default=0.0)
    """Further ones per layer where matrix products have 4-bit operands: quantizing activations."""
    residual_passes: Scalar = eqx.field(converter=scalar, default=0.0)
    """Times that each layer moves the residual stream beside its matrix products (norms, additions)."""
    step_overhead: Scalar = eqx.field(converter=scalar, default=0.0)
    """Seconds per step on the host: scheduling, sampling, copying."""
    sequence_overhead: Scalar = eqx.field(converter=scalar, default=0.0)
    """Seconds per step for each sequence of a data rank."""
    prompt_exposure: Scalar = eqx.field(converter=scalar, default=1.0)
    """Share of other requests' prompts that delays the tokens of a request being decoded; the rest
    falls into the time to its first token."""
    prompt_mixing: Scalar = eqx.field(converter=scalar, default=0.0)
    """Share of prompt chunks that run in one pass with decoding, where weights are read once."""
    name: str = eqx.field(static=True, converter=Label, default="engine")
