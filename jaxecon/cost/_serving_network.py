"""What the accelerators of one pipeline stage tell each other in a pass."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import EXACT, Arithmetic
from ..specs import Accelerator, LayerGroup, Layout, MixtureOfExperts, Model, Network

from ._algorithms import (
    Times,
    all_gather,
    all_gathers,
    all_reduce,
    all_reduces,
    all_to_all,
    all_to_alls,
    candidate_names,
    point_to_point,
    point_to_points,
    reduce_scatter,
)
from ._serving_layer import Share, groups_reached


class Messages(eqx.Module):
    """What is sent in one pass, before any rate or latency is known."""

    tensor: Array
    """Ranks of an all-reduce."""
    domains: Array
    """Scale-up domains that they span."""
    size: Array
    """Bytes of an all-reduce."""
    reductions: Array
    """All-reduces of a pass, apart from those of routed experts."""
    hops: Array
    """Hand-overs between pipeline stages."""
    experts: "Exchange | None"


class Exchange(eqx.Module):
    """Bringing tokens to routed experts and results back. Kinds of experts are a last axis."""

    data: Array
    """Copies of attention."""
    apart: Array
    """Scale-up domains that they span."""
    words: Array
    """Bytes of all data ranks' tokens."""
    stage: Array
    stage_domains: Array
    layers: Array
    """Layers with experts of each kind."""
    sent: Array
    """Bytes that a rank sends to dispatch and, last, to combine."""
    crossing: Array
    """Bytes likewise that have to cross domains, each once."""


def communication(
    model: Model, accelerator: Accelerator, share: Share, layout: Layout, arithmetic: Arithmetic
) -> Times:
    """(latency, bandwidth) of all layers, and of P - 1 hand-overs of the residual stream."""
    network = accelerator.network
    return message_times(messages(model, network, share, layout, arithmetic), network, arithmetic)


def messages(
    model: Model, network: Network, share: Share, layout: Layout, arithmetic: Arithmetic
) -> Messages:
    """An all-reduce of d words a token among the tensor ranks after each half of a layer (one for both
    where they are parallel); for routed experts in place of the second, an exchange."""
    count = jnp.zeros_like(share.tokens)
    for group in model.groups:
        count = count + group.count * _reductions(group)
    sparse = any(isinstance(g.feed_forward, MixtureOfExperts) for g in model.groups)
    return Messages(
        layout.tensor,
        layout.domains(network.domain_size, arithmetic.ceil),
        model.width * share.tokens * model.precision.communication,
        count,
        layout.pipeline - 1.0,
        _exchange(model, network, share, layout, arithmetic) if sparse else None,
    )


def message_times(sent: Messages, network: Network, arithmetic: Arithmetic) -> Times:
    """(latency, bandwidth) of all messages. In a hand-over, which is taken to cross domains, each
    rank sends its part."""
    reduced = all_reduce(network, sent.tensor, sent.domains, sent.size, arithmetic)
    hand = point_to_point(network, sent.size / sent.tensor, arithmetic)
    latency, bandwidth = (sent.hops * h + sent.reductions * r for h, r in zip(hand, reduced, strict=True))
    if sent.experts is not None:
        exchange = expert_exchange(sent.experts, network, reduced, arithmetic)
        latency, bandwidth = latency + exchange[0], bandwidth + exchange[1]
    return latency, bandwidth


def _reductions(group: LayerGroup) -> float:
    """All-reduces per layer apart from those of routed experts."""
    first = group.mixer is not None
    second = group.feed_forward is not None and not isinstance(group.feed_forward, MixtureOfExperts)
    return 1.0 if group.parallel and first and second else float(first) + float(second)


def _exchange(
    model: Model, network: Network, share: Share, layout: Layout, arithmetic: Arithmetic
) -> Exchange:
    """Every rank has 1/(tensor x data) of the tokens and sends each to the ranks of the expert groups
    that it needs, tensor x data/expert of them a group. The busiest group's load bounds the exchange."""
    precision = model.precision
    domains = layout.stage_domains(network.domain_size, arithmetic.ceil)
    layers, width, active = _kinds(model)
    expert, stage, n = (x[..., None] for x in (share.expert, layout.stage, domains))
    own = width * (share.stage_tokens / layout.stage)[..., None]
    copies = stage / expert * groups_reached(active, expert) * share.busiest[..., None]
    crossing = groups_reached(active, n) * share.busiest[..., None]
    size = jnp.stack([precision.dispatch, precision.communication])
    sent, across = (own[..., None] * x[..., None] * size for x in (copies, crossing))
    return Exchange(
        layout.data,
        jnp.minimum(domains, layout.data),
        model.width * share.stage_tokens * precision.communication,
        layout.stage,
        domains,
        layers,
        sent,
        across,
    )


def expert_exchange(sent: Exchange, network: Network, reduced: Times, arithmetic: Arithmetic) -> Times:
    """The quicker of two ways to routed experts and back, in all layers.

    Gathered: an all-gather of the data ranks' tokens, experts on all of them, a reduce-scatter, and
    the all-reduce `reduced` among the tensor ranks; with one data rank that is tensor parallelism.
    Exchanged: dispatch (`precision.dispatch` bytes a word) and combine, two all-to-alls. The
    attention's all-reduce then counts as reduce-scatter before and all-gather after.
    """
    ways = _ways(sent, network, reduced, arithmetic)
    weights = sent.layers[..., None] * arithmetic.min_weights(ways[0] + ways[1])
    return jnp.sum(weights * ways[0], axis=(-2, -1)), jnp.sum(weights * ways[1], axis=(-2, -1))


def _ways(sent: Exchange, network: Network, reduced: Times, arithmetic: Arithmetic) -> list[Array]:
    """[latency, bandwidth] of one layer, gathered and exchanged on a last axis."""
    gathered = all_gather(network, sent.data, sent.apart, sent.words, arithmetic)
    scattered = reduce_scatter(network, sent.data, sent.apart, sent.words, arithmetic)
    gather = [a + b + c for a, b, c in zip(gathered, scattered, reduced, strict=True)]
    stage, n = sent.stage[..., None, None], sent.stage_domains[..., None, None]
    both = all_to_all(network, stage, n, sent.sent, sent.crossing, arithmetic)
    exchange = [jnp.sum(x, axis=-1) for x in both]
    pairs = zip(gather, exchange, strict=True)
    return [jnp.stack(jnp.broadcast_arrays(g[..., None], e), axis=-1) for g, e in pairs]


def taken(sent: Messages, network: Network) -> dict[str, Array]:
    """The number of the algorithm taken for each message in `candidate_names`, -1 where none is sent.

    "exchanged" is 1 where tokens go to routed experts by all-to-alls and 0 where they are gathered,
    for the first kind of experts.
    """
    handed = point_to_points(network, sent.size / sent.tensor).taken
    found = {
        "all_reduce": all_reduces(network, sent.tensor, sent.domains, sent.size).taken,
        "point_to_point": jnp.where(sent.hops > 0.0, handed, -1),
    }
    if sent.experts is None:
        return found
    own = sent.experts
    stage, n = own.stage[..., None, None], own.stage_domains[..., None, None]
    both = all_to_alls(network, stage, n, own.sent, own.crossing).taken
    reduced = all_reduce(network, sent.tensor, sent.domains, sent.size, EXACT)
    latency, bandwidth = _ways(own, network, reduced, EXACT)
    return found | {
        "all_gather": all_gathers(network, own.data, own.apart, own.words).taken,
        "dispatch": both[..., 0, 0],
        "combine": both[..., 0, 1],
        "exchanged": jnp.argmin(latency + bandwidth, axis=-1)[..., 0],
    }


def taken_names(found: dict[str, Array], network: Network) -> dict[str, str]:
    """The same for one layout, by name; of the two ways to routed experts the one that is taken."""
    numbers = {k: int(v) for k, v in found.items()}
    exchanged = numbers.get("exchanged", 0) == 1
    rows = {
        "all_reduce": ("all_reduce", True),
        "all_gather": ("all_gather", not exchanged),
        "dispatch": ("all_to_all", exchanged),
        "combine": ("all_to_all", exchanged),
        "point_to_point": ("point_to_point", True),
    }
    return {
        key: candidate_names(network, operation)[numbers[key]]
        for key, (operation, sent) in rows.items()
        if sent and numbers.get(key, -1) >= 0
    }


def _kinds(model: Model) -> tuple[Array, Array, Array]:
    """(layers, words a token, active experts) of each group with routed experts."""
    rows = []
    for group in model.groups:
        feed = group.feed_forward
        if isinstance(feed, MixtureOfExperts):
            width = model.width if feed.latent is None else feed.latent
            rows.append((group.count, width, feed.active))
    counts, width, active = (jnp.stack(column) for column in zip(*rows, strict=True))
    return counts, width, active
