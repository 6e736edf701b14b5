"""Collectives as engines choose among them: the quickest algorithm for each message.

Every algorithm is alpha-beta: seconds per call and per hop, plus bytes over link rates, hierarchical
over scale-up domains. Volumes and step counts: Thakur, Rabenseifner and Gropp 2005
(doi:10.1177/1094342005051521), sections 3 and 4; reduction in the switch reads each shard once and
writes it once (Graham et al. 2016, doi:10.1109/COM-HPC.2016.006). "library" is NCCL's own choice
among protocols (`collective_time`).

Symbols: r ranks on n domains, g = r/n in each, z bytes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics import EXACT, Arithmetic
from ..specs import Network

from ._collectives import PROTOCOLS, library_candidates, torus_candidates

Times = tuple[Array, Array]
"""(latency, bandwidth), seconds."""
Rows = dict[str, tuple[Array, Array, Array, Array]]
"""By algorithm: hops inside a domain, hops across, and the bytes over both kinds of link in units of the
size."""
_REDUCTIONS = ("ring", "tree", "one_shot", "two_shot", "in_switch")
_GATHERS = ("ring", "two_shot")


class Candidates(NamedTuple):
    """Seconds of one message by every algorithm, on a last axis in the order of `candidate_names`."""

    ranks: Array
    latencies: Array
    bandwidths: Array

    def least(self, arithmetic: Arithmetic) -> Times:
        """Both parts of the candidate with the least sum; 0 for a single rank."""
        weights = arithmetic.min_weights(self.latencies + self.bandwidths)
        alone = jnp.broadcast_to(self.ranks <= 1.0, self.latencies.shape[:-1])
        parts = (jnp.sum(weights * self.latencies, axis=-1), jnp.sum(weights * self.bandwidths, axis=-1))
        return jnp.where(alone, 0.0, parts[0]), jnp.where(alone, 0.0, parts[1])

    @property
    def taken(self) -> Array:
        """The number of the candidate with the least sum; -1 for a single rank."""
        index = jnp.argmin(self.latencies + self.bandwidths, axis=-1)
        return jnp.where(jnp.broadcast_to(self.ranks <= 1.0, index.shape), -1, index)


def candidate_names(network: Network, operation: str) -> tuple[str, ...]:
    """What the candidates of an "all_reduce", "all_gather" (or reduce-scatter), "all_to_all" or
    "point_to_point" are."""
    torus = network.kind == "torus"
    names = ("ring", "ring by axes") if torus else tuple(f"library {p}" for p in PROTOCOLS)
    if operation == "point_to_point":
        return names
    if operation == "all_to_all":
        names += ("pairwise",) if "pairwise" in network.algorithms else ()
        return tuple(f"{name}{way}" for name in names for way in ("", ", forwarded inside domains"))
    rows = _REDUCTIONS if operation == "all_reduce" else _GATHERS
    return names + (() if torus else tuple(name for name in network.algorithms if name in rows))


def all_reduce(network: Network, ranks: Array, domains: Array, size: Array, arithmetic: Arithmetic) -> Times:
    """Seconds of `all_reduces` by the quickest."""
    return all_reduces(network, ranks, domains, size, arithmetic).least(arithmetic)


def all_reduces(
    network: Network, ranks: Array, domains: Array, size: Array, arithmetic: Arithmetic = EXACT
) -> Candidates:
    """The sum of `size` bytes of every rank, on every rank.

    ring: 2(r - 1) steps of z/r. tree: 2 log2 r steps, z up and z down. one_shot: everybody reads all.
    two_shot: reduce-scatter, then all-gather. in_switch: (1 + 1/g) z a link. Across domains the last
    three reduce z/g among n accelerators, one of each domain, in 2 log2 n steps.
    """
    return _candidates(network, ranks, domains, size, _reduction_rows, 2.0, arithmetic)


def _reduction_rows(r: Array, n: Array, g: Array) -> Rows:
    several = jnp.where(n > 1.0, 1.0, 0.0)
    across = 2.0 * (1.0 - 1.0 / n) / g
    levels = 2.0 * jnp.log2(n)
    return {
        "ring": (2.0 * (r - n), 2.0 * (n - 1.0), 2.0 * (1.0 - 1.0 / r), across),
        "tree": (2.0 * jnp.log2(g), levels, 2.0 * (1.0 - 1.0 / g), 2.0 * (1.0 - 1.0 / n) / g),
        "one_shot": (1.0 + several, levels, (g - 1.0) * (1.0 + several / g), across),
        "two_shot": (2.0 + 0.0 * r, levels, 2.0 * (1.0 - 1.0 / g), across),
        "in_switch": (2.0 + 0.0 * r, levels, 1.0 + 1.0 / g, across),
    }


def all_gather(network: Network, ranks: Array, domains: Array, size: Array, arithmetic: Arithmetic) -> Times:
    """Seconds of `all_gathers` by the quickest."""
    return all_gathers(network, ranks, domains, size, arithmetic).least(arithmetic)


def all_gathers(
    network: Network, ranks: Array, domains: Array, size: Array, arithmetic: Arithmetic = EXACT
) -> Candidates:
    """`size` bytes, of which each rank holds an equal share, on every rank.

    ring: r - 1 steps. two_shot (each rank reads the others' shares at once): one step inside a domain
    and log2 n across.
    """
    return _candidates(network, ranks, domains, size, _gather_rows, 1.0, arithmetic)


def _gather_rows(r: Array, n: Array, g: Array) -> Rows:
    across = (1.0 - 1.0 / n) / g
    return {
        "ring": (r - n, n - 1.0, 1.0 - 1.0 / r, across),
        "two_shot": (1.0 + 0.0 * r, jnp.log2(n), 1.0 - 1.0 / g, across),
    }


def reduce_scatter(
    network: Network, ranks: Array, domains: Array, size: Array, arithmetic: Arithmetic
) -> Times:
    """The sum of `size` bytes of every rank, an equal share on each: an all-gather backwards."""
    return all_gather(network, ranks, domains, size, arithmetic)


def all_to_all(
    network: Network, ranks: Array, domains: Array, size: Array, across: Array, arithmetic: Arithmetic
) -> Times:
    """Seconds of `all_to_alls` by the quickest."""
    return all_to_alls(network, ranks, domains, size, across).least(arithmetic)


def all_to_alls(network: Network, ranks: Array, domains: Array, size: Array, across: Array) -> Candidates:
    """Each rank sends `size` bytes in equal parts to all ranks, itself included.

    "library" and "pairwise" send every part straight to its rank, so that (1 - 1/n) of them cross
    domains. Each of them has a second form that forwards inside the domain, for messages of which
    several parts are alike (tokens that go to several experts): then `across` <= `size` bytes, of
    which (1 - 1/n) leave the domain, cross once, and one more hop inside is paid.
    """
    r, n, g, z = _shape(ranks, domains, size)
    across = jnp.broadcast_to(across, r.shape)
    inside = (g - 1.0) / r * z / _up(network)
    direct = (1.0 - 1.0 / n) * z / _out(network)
    dense = (1.0 - 1.0 / n) * across / _out(network) + (1.0 - 1.0 / g) * (1.0 - 1.0 / n) * z / _up(network)
    wires = jnp.stack([inside + direct, inside + dense], axis=-1)
    several = jnp.where(n > 1.0, 1.0, 0.0)
    forwarding = jnp.stack([0.0 * r, several], axis=-1)
    found, factor = _library(network, r, n, 1.0)
    latencies = found[..., :, None] + (network.scale_up_hop * forwarding)[..., None, :]
    bandwidths = wires[..., None, :] / factor[..., :, None]
    if "pairwise" in network.algorithms:
        hops = network.direct_latency + network.scale_up_hop * (1.0 + forwarding)
        hops = hops + network.scale_out_hop * several[..., None]
        latencies = jnp.concatenate([latencies, hops[..., None, :]], axis=-2)
        bandwidths = jnp.concatenate([bandwidths, wires[..., None, :]], axis=-2)
    shape = (*latencies.shape[:-2], -1)
    latencies = latencies + network.exchange_latency
    return Candidates(ranks, latencies.reshape(shape), bandwidths.reshape(shape))


def point_to_point(network: Network, size: Array, arithmetic: Arithmetic) -> Times:
    """Seconds of `point_to_points` by the quickest."""
    return point_to_points(network, size, arithmetic).least(arithmetic)


def point_to_points(network: Network, size: Array, arithmetic: Arithmetic = EXACT) -> Candidates:
    """`size` bytes to one rank of another domain, by the library's protocols (Erdil 2025)."""
    pair = np.asarray(2.0)
    latencies, factor = _library(network, pair, pair, 1.0)
    bandwidths = (0.5 * size / _out(network))[..., None] / factor
    return Candidates(pair, *jnp.broadcast_arrays(latencies, bandwidths))


def _shape(ranks: Array, domains: Array, size: Array) -> tuple[Array, Array, Array, Array]:
    """(r, n, g, z), with harmless numbers where a rank is alone."""
    ranks, domains, size = jnp.broadcast_arrays(ranks, domains, size)
    alone = ranks <= 1.0
    r, n = jnp.where(alone, 2.0, ranks), jnp.where(alone, 1.0, domains)
    return r, n, r / n, size


def _up(network: Network) -> Array:
    return network.scale_up_bandwidth * network.scale_up_efficiency


def _out(network: Network) -> Array:
    return network.scale_out_bandwidth * network.scale_out_efficiency


def _library(network: Network, r: Array, n: Array, passes: float) -> tuple[Array, Array]:
    """Latencies and bandwidth factors of the library's candidates on a last axis."""
    if network.kind == "torus":
        return torus_candidates(network, r, passes)
    return library_candidates(network, r, n, passes)


def _candidates(
    network: Network,
    ranks: Array,
    domains: Array,
    size: Array,
    table: Callable[[Array, Array, Array], Rows],
    passes: float,
    arithmetic: Arithmetic,
) -> Candidates:
    """The library's protocols, and those of the table's rows that the network has.

    The links work at once, so that the larger of the two times counts.
    """
    r, n, g, z = _shape(ranks, domains, size)
    latencies, factor = _library(network, r, n, passes)
    if network.kind == "torus":
        wire = passes * (r - 1.0) / r * z / _out(network)
    else:
        inside = n * jnp.maximum(g - 1.0, 0.0) / r * z / _up(network)
        wire = passes * (inside + (n - 1.0) / r * z / _out(network))
    bandwidths = wire[..., None] / factor
    if network.kind != "torus" and set(network.algorithms) - {"library", "pairwise"}:
        rows = table(r, n, g)
        chosen = [rows[name] for name in network.algorithms if name in rows]
        if chosen:
            up, out, inner, outer = (jnp.stack(column, axis=-1) for column in zip(*chosen, strict=True))
            hops = network.direct_latency + network.scale_up_hop * up + network.scale_out_hop * out
            over = arithmetic.maximum(inner / _up(network), outer / _out(network)) * z[..., None]
            latencies = jnp.concatenate([latencies, hops], axis=-1)
            bandwidths = jnp.concatenate([bandwidths, over], axis=-1)
    return Candidates(ranks, latencies, bandwidths)
