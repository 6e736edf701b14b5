"""Which degrees the serving engines accept for a model."""

from ..specs import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    Model,
)


def tensor_degrees(model: Model, most: int) -> list[int]:
    """Tensor-parallel degrees up to `most` that every layer admits.

    Query heads divide evenly; key-value heads divide, or are replicated a whole number of
    times; hidden widths divide, into whole quantization blocks where there are any.
    """
    return [t for t in range(1, most + 1) if all(_admits(model, g, t) for g in model.groups)]


def _admits(model: Model, group: LayerGroup, degree: int) -> bool:
    mixer, feed = group.mixer, group.feed_forward
    if isinstance(mixer, GroupedQueryAttention):
        heads, shared = int(mixer.heads), int(mixer.kv_heads)
        if heads % degree or (shared % degree and degree % shared):
            return False
    if isinstance(mixer, LatentAttention) and int(mixer.heads) % degree:
        return False
    if isinstance(feed, (DenseFeedForward, MixtureOfExperts)):
        hidden = int(feed.hidden)
        if hidden % degree or (model.precision.block and (hidden // degree) % model.precision.block):
            return False
    return True


def pipeline_degrees(model: Model, most: int) -> list[int]:
    """Pipeline degrees up to `most` that divide the layers, so that stages are even."""
    layers = int(model.layers)
    return [p for p in range(1, min(most, layers) + 1) if layers % p == 0]
