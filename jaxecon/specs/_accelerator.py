"""What an accelerator is: peaks, memory, network, power and price. Data only."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError, nearest
from .._numerics import Scalar, optional_scalar, scalar
from ._engine import EngineProfile
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


ALGORITHMS = ("library", "ring", "tree", "one_shot", "two_shot", "in_switch", "pairwise")


class Network(eqx.Module):
    """Links of one accelerator: inside its scale-up domain and out of it.

    Bandwidths are one-way, bytes/s per accelerator. `kind` is "nccl" for switched or fully
    connected domains joined by a scale-out fabric, "torus" for rings of direct links.
    """

    scale_up_bandwidth: Scalar = eqx.field(converter=scalar)
    scale_out_bandwidth: Scalar = eqx.field(converter=scalar)
    domain_size: Scalar = eqx.field(converter=scalar)
    """Accelerators in one scale-up domain."""
    kind: str = eqx.field(static=True, default="nccl")
    algorithms: tuple[str, ...] = eqx.field(static=True, converter=tuple, default=("library",))
    """What may be chosen from, of `ALGORITHMS`; the quickest is taken for each message."""
    engine_algorithms: tuple[str, ...] = eqx.field(static=True, converter=Notes, default=())
    """What kernels of an engine's own can do on these links, of `ALGORITHMS`; not chosen from before an
    engine that has them is named."""
    library_latency: Scalar = eqx.field(converter=scalar, default=1.0)
    """Factor on the latencies of the library's tuning tables; 0 for a network without latency."""
    direct_latency: Scalar = eqx.field(converter=scalar, default=3.5e-6)
    """Seconds per call of every other algorithm (a kernel of the engine's own)."""
    scale_up_hop: Scalar = eqx.field(converter=scalar, default=0.6e-6)
    """Seconds per hop of those inside a domain."""
    scale_out_hop: Scalar = eqx.field(converter=scalar, default=5e-6)
    """Seconds per hop of those between domains."""
    scale_up_efficiency: Scalar = eqx.field(converter=scalar, default=1.0)
    """Reachable share of the bandwidth inside a domain, in (0, 1]."""
    scale_out_efficiency: Scalar = eqx.field(converter=scalar, default=1.0)
    """Reachable share of the bandwidth between domains, in (0, 1]."""
    exchange_latency: Scalar = eqx.field(converter=scalar, default=0.0)
    """Seconds that every all-to-all adds: packing and unpacking of tokens for experts."""
    torus_axes: Scalar = eqx.field(converter=scalar, default=1.0)
    """Dimensions of a torus, along which a collective proceeds one by one."""

    def __check_init__(self) -> None:
        for name in (*self.algorithms, *self.engine_algorithms):
            if name not in ALGORITHMS:
                raise InputError(f"no collective algorithm '{name}'; {nearest(name, ALGORITHMS)}")
        if "library" not in self.algorithms:
            raise InputError("the collective algorithms must include 'library', which serves every size")


class Efficiencies(eqx.Module):
    """Shares of the reachable rates that each operation group attains, on top of the overall ones."""

    attention_arithmetic: Scalar = eqx.field(converter=scalar, default=1.0)
    """Scores, weighted values and recurrences."""
    attention_memory: Scalar = eqx.field(converter=scalar, default=1.0)
    """Reading the cache."""
    projection_arithmetic: Scalar = eqx.field(converter=scalar, default=1.0)
    projection_memory: Scalar = eqx.field(converter=scalar, default=1.0)
    feed_forward_arithmetic: Scalar = eqx.field(converter=scalar, default=1.0)
    """Dense feed-forward, shared experts and router."""
    feed_forward_memory: Scalar = eqx.field(converter=scalar, default=1.0)
    expert_arithmetic: Scalar = eqx.field(converter=scalar, default=1.0)
    """Routed experts."""
    expert_memory: Scalar = eqx.field(converter=scalar, default=1.0)
    head_arithmetic: Scalar = eqx.field(converter=scalar, default=1.0)
    head_memory: Scalar = eqx.field(converter=scalar, default=1.0)
    arithmetic_8bit: Scalar = eqx.field(converter=scalar, default=1.0)
    """Further factor on all matrix products of 8-bit operands, beside the 16-bit ones."""
    arithmetic_4bit: Scalar = eqx.field(converter=scalar, default=1.0)
    memory_8bit: Scalar = eqx.field(converter=scalar, default=1.0)
    """Further factor on reading 8-bit matrices other than routed experts."""
    memory_4bit: Scalar = eqx.field(converter=scalar, default=1.0)
    expert_memory_8bit: Scalar = eqx.field(converter=scalar, default=1.0)
    """Further factor on reading 8-bit routed experts."""
    expert_memory_4bit: Scalar = eqx.field(converter=scalar, default=1.0)


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
    efficiencies: Efficiencies = eqx.field(default_factory=Efficiencies)
    engine: EngineProfile | None = None
    """What the serving engine adds, where its constants are fitted; None where none is named."""
    power: Scalar = eqx.field(converter=scalar, default=0.0)
    """Rated power, watts."""
    name: str = eqx.field(static=True, converter=Label, default="accelerator")
    sources: tuple[tuple[str, str], ...] = eqx.field(static=True, converter=Notes, default=())
    """Pairs of (field, where its number comes from)."""
    calibration: str = eqx.field(static=True, converter=Label, default="not calibrated")
    """How the efficiencies and latencies were found: by fitting to what, or not at all."""

    @property
    def price_per_hour(self) -> Array:
        """US dollars per accelerator and hour."""
        return jnp.asarray(self.price * 3600.0)
