"""Which degrees the serving engines accept for a model."""

import functools

import jax.numpy as jnp
from jaxtyping import Array

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
    rules = [rule for group in model.groups for rule in _rules(model, group)]
    largest = min([most, *(whole for whole, how in rules if how == "divides")])
    return [t for t in range(1, largest + 1) if all(_admits(rule, t) for rule in rules)]


def largest_tensor(model: Model) -> Array:
    """The largest tensor degree that could be legal: query heads, hidden columns or blocks.

    Unlike `tensor_degrees` it may be traced and differentiated.
    """
    sizes = []
    for group in model.groups:
        if isinstance(group.mixer, (GroupedQueryAttention, LatentAttention)):
            sizes.append(group.mixer.heads)
        if isinstance(group.feed_forward, (DenseFeedForward, MixtureOfExperts)):
            sizes.append(group.feed_forward.hidden / (model.precision.block or 1))
    return functools.reduce(jnp.minimum, sizes, jnp.asarray(1e9))


def tensor_obstacle(model: Model, degree: int) -> str | None:
    """Why a tensor degree is refused, in words; None where it is accepted."""
    for group in model.groups:
        for whole, how in _rules(model, group):
            if not _admits((whole, how), degree):
                what = "key-value heads" if "multiplies" in how else _named(group, whole)
                return f"tensor degree {degree} does not split {whole} {what} of '{model.name}'"
    return None


def stage_obstacle(model: Model, stages: int) -> str | None:
    """Why a pipeline degree is refused, in words; None where it is accepted."""
    layers = int(model.layers)
    if layers % stages:
        return f"{layers} layers of '{model.name}' do not split over {stages} even stages"
    return None


def _named(group: LayerGroup, whole: int) -> str:
    mixer = group.mixer
    heads = isinstance(mixer, (GroupedQueryAttention, LatentAttention)) and int(mixer.heads) == whole
    return "attention heads" if heads else "hidden columns or quantization blocks"


def _rules(model: Model, group: LayerGroup) -> list[tuple[int, str]]:
    """Pairs of a whole number and how a degree must go into it."""
    mixer, feed = group.mixer, group.feed_forward
    rules = []
    if isinstance(mixer, (GroupedQueryAttention, LatentAttention)):
        rules.append((int(mixer.heads), "divides"))
    if isinstance(mixer, GroupedQueryAttention):
        rules.append((int(mixer.kv_heads), "divides or multiplies"))
    if isinstance(feed, (DenseFeedForward, MixtureOfExperts)):
        hidden, block = int(feed.hidden), model.precision.block or 1
        rules.append((hidden // block if hidden % block == 0 else 1, "divides"))
    return rules


def _admits(rule: tuple[int, str], degree: int) -> bool:
    whole, how = rule
    return whole % degree == 0 or (how == "divides or multiplies" and degree % whole == 0)


def pipeline_degrees(model: Model, most: int) -> list[int]:
    """Pipeline degrees up to `most` that divide the layers, so that stages are even."""
    layers = int(model.layers)
    return [p for p in range(1, min(most, layers) + 1) if layers % p == 0]
