"""What the accelerators of one pipeline stage tell each other in a pass."""

import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import Accelerator, LayerGroup, Layout, MixtureOfExperts, Model, Network

from ._algorithms import Times, all_gather, all_reduce, all_to_all, point_to_point, reduce_scatter
from ._serving_layer import Share, groups_reached


def communication(
    model: Model, accelerator: Accelerator, share: Share, layout: Layout, arithmetic: Arithmetic
) -> Times:
    """(latency, bandwidth) of all layers, and of P - 1 hand-overs of the residual stream.

    An all-reduce of d words a token among the tensor ranks after each half of a layer (one for both
    where they are parallel); for routed experts in place of the second, `expert_exchange`. In a
    hand-over, which is taken to cross domains, each rank sends its part.
    """
    network, size = accelerator.network, model.width * share.tokens * model.precision.communication
    domains = layout.domains(network.domain_size, arithmetic.ceil)
    reduced = all_reduce(network, layout.tensor, domains, size, arithmetic)
    hand = point_to_point(network, size / layout.tensor, arithmetic)
    latency, bandwidth = ((layout.pipeline - 1.0) * x for x in hand)
    for group in model.groups:
        halves = group.count * _reductions(group)
        latency, bandwidth = latency + halves * reduced[0], bandwidth + halves * reduced[1]
    if any(isinstance(g.feed_forward, MixtureOfExperts) for g in model.groups):
        exchange = expert_exchange(model, network, share, layout, reduced, arithmetic)
        latency, bandwidth = latency + exchange[0], bandwidth + exchange[1]
    return latency, bandwidth


def _reductions(group: LayerGroup) -> float:
    """All-reduces per layer apart from those of routed experts."""
    first = group.mixer is not None
    second = group.feed_forward is not None and not isinstance(group.feed_forward, MixtureOfExperts)
    return 1.0 if group.parallel and first and second else float(first) + float(second)


def expert_exchange(
    model: Model, network: Network, share: Share, layout: Layout, reduced: Times, arithmetic: Arithmetic
) -> Times:
    """Bringing tokens to routed experts and results back, in all layers: the quicker of two ways.

    Gathered: an all-gather of the data ranks' tokens, experts on all of them, a reduce-scatter, and
    the all-reduce `reduced` among the tensor ranks; with one data rank that is tensor parallelism.
    Exchanged: every rank has 1/(tensor x data) of the tokens and sends each to the ranks of the
    expert groups that it needs, tensor x data/expert of them a group (dispatch, `precision.dispatch`
    bytes a word); results return likewise (combine). The attention's all-reduce then counts as
    reduce-scatter before and all-gather after. The busiest group's load bounds the exchange.
    """
    precision = model.precision
    words = model.width * share.stage_tokens * precision.communication
    domains = layout.stage_domains(network.domain_size, arithmetic.ceil)
    apart = jnp.minimum(domains, layout.data)
    gathered = all_gather(network, layout.data, apart, words, arithmetic)
    scattered = reduce_scatter(network, layout.data, apart, words, arithmetic)
    gather = [a + b + c for a, b, c in zip(gathered, scattered, reduced, strict=True)]
    # Kinds of experts, and then dispatch and combine, are further axes.
    counts, width, active = _kinds(model)
    expert, stage, n = (x[..., None] for x in (share.expert, layout.stage, domains))
    own = width * (share.stage_tokens / layout.stage)[..., None]
    copies = stage / expert * groups_reached(active, expert) * share.busiest[..., None]
    crossing = groups_reached(active, n) * share.busiest[..., None]
    size = jnp.stack([precision.dispatch, precision.communication])
    volumes = (own[..., None] * x[..., None] * size for x in (copies, crossing))
    both = all_to_all(network, stage[..., None], n[..., None], *volumes, arithmetic)
    exchange = [jnp.sum(x, axis=-1) for x in both]
    pairs = zip(gather, exchange, strict=True)
    ways = [jnp.stack(jnp.broadcast_arrays(g[..., None], e), axis=-1) for g, e in pairs]
    weights = counts[:, None] * arithmetic.min_weights(ways[0] + ways[1])
    return jnp.sum(weights * ways[0], axis=(-2, -1)), jnp.sum(weights * ways[1], axis=(-2, -1))


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
