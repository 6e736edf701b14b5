"""What an accelerator is: peaks, memory, network, power and price. Data only."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from .._numerics import Scalar, optional_scalar, scalar
from ._label import Label, Notes


class PeakRates(eqx.Module):
    """Dense peak rates of matrix products, FLOP/s, by operand width in bits."""

    bits16: Scalar = eqx.field(converter=scalar)
    bits8: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """None where the hardware has no faster 8-bit path."""
    bits4: Scalar | None = eqx.field(converter=optional_scalar, default=None)

    def at(self, bits: int) -> Scalar:
        """The peak for operands of `bits`; the next wider one where that width is missing.

        Operands that the hardware cannot multiply are widened first, so their rate is the
        wider one's.

        Raises:
            InputError: if `bits` is not 16, 8 or 4.
        """
        if bits not in (16, 8, 4):
            raise InputError(f"no matrix products of {bits} bits; valid: 16, 8, 4")
        wider = {16: (self.bits16,), 8: (self.bits8, self.bits16)}
        for rate in wider.get(bits, (self.bits4, self.bits8, self.bits16)):
            if rate is not None:
                return rate
        raise AssertionError("bits16 is always present")


class Network(eqx.Module):
    """Links of one accelerator: inside its scale-up domain and out of it.

    Bandwidths are one-way, bytes/s per accelerator. `kind` is "nccl" for switched or fully
    connected domains joined by a scale-out fabric, "torus" for rings of direct links.
    """

    scale_up_bandwidth: Scalar = eqx.field(converter=scalar)
    scale_out_bandwidth: Scalar = eqx.field(converter=scalar)
    domain_size: Scalar = eqx.field(converter=scalar)
    """Accelerators in one scale-up domain."""
    latency_scale: Scalar = eqx.field(converter=scalar, default=1.0)
    """Multiplies the latency of every collective; 1 for the measured constants, 0 for none."""
    kind: str = eqx.field(static=True, default="nccl")


class Accelerator(eqx.Module):
    """One accelerator and its share of the machine around it."""

    peak: PeakRates
    hbm_bandwidth: Scalar = eqx.field(converter=scalar)
    """Bytes/s of the memory that holds weights and cache (SRAM where that is it)."""
    hbm_size: Scalar = eqx.field(converter=scalar)
    """Bytes of that memory."""
    network: Network
    price: Scalar = eqx.field(converter=scalar)
    """Rental, US dollars per accelerator and second."""
    kernel_launch_latency: Scalar = eqx.field(converter=scalar, default=4e-6)
    """Seconds per kernel launch."""
    arithmetic_efficiency: Scalar = eqx.field(converter=scalar, default=1.0)
    """Reachable share of the peak rates, in (0, 1]."""
    memory_efficiency: Scalar = eqx.field(converter=scalar, default=1.0)
    """Reachable share of the memory bandwidth, in (0, 1]."""
    power: Scalar = eqx.field(converter=scalar, default=0.0)
    """Rated power, watts."""
    name: str = eqx.field(static=True, converter=Label, default="accelerator")
    sources: tuple[tuple[str, str], ...] = eqx.field(static=True, converter=Notes, default=())
    """Pairs of (field, where its number comes from)."""

    @property
    def price_per_hour(self) -> Array:
        """US dollars per accelerator and hour."""
        return jnp.asarray(self.price * 3600.0)
