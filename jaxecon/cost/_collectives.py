"""Time of one collective operation, split into latency and bandwidth.

Source: Erdil 2025 (arXiv:2506.04645), section on network communication, whose NCCL constants
are those of NCCL's tuning tables: a ring inside a node, a tree between nodes.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError, nearest
from .._numerics import EXACT, Arithmetic
from ..specs import Network

PROTOCOLS = ("LL", "LL128", "Simple")
# Of each protocol: seconds per ring hop, per tree level, once per call; and the share of the link
# rate that carries data.
_RING_HOP = (0.6e-6, 1.25e-6, 28e-6)
_TREE_LEVEL = (5e-6, 8.5e-6, 28e-6)
_BASE = (6.8e-6, 14e-6, 0.0)
_BANDWIDTH_FACTOR = (0.5, 0.95, 1.0)
_TORUS_HOP = 1e-6


def collective_time(
    network: Network,
    ranks: Array,
    nodes: Array,
    size: Array,
    arithmetic: Arithmetic = EXACT,
    *,
    all_reduce: bool = True,
    overlap_links: bool = False,
    protocol: str | None = None,
) -> tuple[Array, Array]:
    """(latency, bandwidth) seconds of a collective of `size` bytes among `ranks` on `nodes`.

    With m = 2 for an all-reduce and 1 otherwise, r ranks, n nodes and z bytes, each protocol
    costs m ((r/n - 1) hop + level log2 n) + base, and
    [n max(0, r/n - 1) z/(r intra) + (n - 1) z/(r inter)] / factor, halved unless it is an
    all-reduce. The protocol with the least sum is taken. Both parts are 0 for r <= 1. `intra`
    and `inter` are all-reduce rates, half the one-way link rates. With `overlap_links` the
    larger of the two bandwidth terms counts instead of their sum (revision of May 2025). A
    torus costs m (r - 1) microseconds and (r - 1) z/(r inter). Latencies are multiplied by
    `network.library_latency`. A `protocol` ("LL", "LL128" or "Simple") is taken instead of the
    best. Arguments broadcast.

    Raises:
        InputError: for an unknown protocol.
    """
    if protocol is not None and protocol not in PROTOCOLS:
        raise InputError(f"no protocol '{protocol}'; {nearest(protocol, PROTOCOLS)}")
    alone = ranks <= 1.0
    r = jnp.where(alone, 2.0, ranks)
    n = jnp.where(alone, 1.0, nodes)
    passes = 2.0 if all_reduce else 1.0
    inter = network.scale_out_bandwidth / 2.0
    if network.kind == "torus":
        latency = passes * (r - 1.0) * _TORUS_HOP * network.library_latency
        bandwidth = (passes / 2.0) * (r - 1.0) * size / (r * inter)
    else:
        latency, bandwidth = _nccl(network, r, n, size, passes, arithmetic, overlap_links, protocol)
    return jnp.where(alone, 0.0, latency), jnp.where(alone, 0.0, bandwidth)


def _nccl(
    network: Network,
    r: Array,
    n: Array,
    size: Array,
    passes: float,
    arithmetic: Arithmetic,
    overlap_links: bool,
    protocol: str | None,
) -> tuple[Array, Array]:
    per_node = jnp.maximum(r / n - 1.0, 0.0)
    # What does not depend on the size is kept apart, so that it is evaluated once per degree.
    inside = n * per_node / (r * network.scale_up_bandwidth / 2.0) * size
    across = (n - 1.0) / (r * network.scale_out_bandwidth / 2.0) * size
    if overlap_links:
        wire = arithmetic.maximum(inside, across)
    else:
        wire = inside + across
    known = _protocols(network, r, n, passes)
    ways = [(latency, (passes / 2.0) * wire / factor) for latency, factor in known]
    return arithmetic.quickest(ways) if protocol is None else ways[PROTOCOLS.index(protocol)]


def _protocols(network: Network, r: Array, n: Array, passes: float) -> list[tuple[Array, float]]:
    """(latency, bandwidth factor) of the library's three protocols, for r > 1 ranks."""
    near, levels = r / n - 1.0, jnp.log2(n)
    constants = zip(_RING_HOP, _TREE_LEVEL, _BASE, _BANDWIDTH_FACTOR, strict=True)
    return [
        (_latency(network, passes, near * hop + levels * level, base), factor)
        for hop, level, base, factor in constants
    ]


def _latency(network: Network, passes: float, steps: Array, base: np.ndarray | float) -> Array:
    return network.library_latency * (passes * steps + base)


def library_candidates(network: Network, r: Array, n: Array, passes: float) -> tuple[Array, Array]:
    """(latencies, bandwidth factors) of the library's three protocols on a last axis, for r > 1 ranks."""
    steps = (r / n - 1.0)[..., None] * np.asarray(_RING_HOP) + _log2(n)[..., None] * np.asarray(_TREE_LEVEL)
    latencies = _latency(network, passes, steps, np.asarray(_BASE))
    return latencies, jnp.broadcast_to(np.asarray(_BANDWIDTH_FACTOR), latencies.shape)


def _log2(n: Array) -> Array:
    """Of a number that is known already without an operation of the compiled program."""
    return np.log2(n) if isinstance(n, np.ndarray) else jnp.log2(n)


def torus_candidates(network: Network, r: Array, passes: float) -> tuple[Array, Array]:
    """Likewise on a torus: one ring through all ranks, or one axis after the other.

    A ring has r - 1 hops; k axes have k (r^(1/k) - 1), with the same bytes on every link.
    """
    k = network.torus_axes
    hops = jnp.stack([r - 1.0, k * (jnp.exp(jnp.log(r) / k) - 1.0)], axis=-1)
    latencies = network.library_latency * passes * _TORUS_HOP * hops
    return latencies, jnp.ones_like(latencies)
