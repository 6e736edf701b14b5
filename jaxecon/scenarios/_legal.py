"""Which degrees the serving engines accept for a model.

vLLM takes expert degrees of 1 and tensor x data; SGLang any that divides tensor x data; both take
several data ranks only to share routed experts among them, since a dense model is served better by
whole replicas.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..specs import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    Model,
)


def stage_degrees(model: Model, most: int) -> np.ndarray:
    """Rows of (tensor, data, expert) degrees that fill a stage of up to `most` accelerators.

    The tensor degree divides heads and dense widths; the expert degree the experts; the expert
    tensor degree, tensor x data/expert, the experts' hidden width in whole quantization blocks.
    """
    tensors = tensor_degrees(model, most)
    if not _experts(model):
        return np.asarray([(t, 1, 1) for t in tensors], dtype=np.float64).reshape(-1, 3)
    groups = _divisors([int(feed.experts) for feed in _experts(model)], most)
    parts = _divisors([_blocks(model, feed.hidden) for feed in _experts(model)], most)
    rows = {
        (t, x * m // t, x) for x in groups for m in parts if x * m <= most for t in tensors if x * m % t == 0
    }
    return np.asarray(sorted(rows), dtype=np.float64).reshape(-1, 3)


def tensor_degrees(model: Model, most: int) -> list[int]:
    """Tensor-parallel degrees up to `most` that attention and dense layers admit.

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
    block = model.precision.block or 1
    sizes = []
    for group in model.groups:
        if isinstance(group.mixer, (GroupedQueryAttention, LatentAttention)):
            sizes.append(group.mixer.heads)
        feed = group.feed_forward
        if isinstance(feed, DenseFeedForward):
            sizes.append(feed.hidden / block)
        elif isinstance(feed, MixtureOfExperts):
            shared = feed.shared_hidden / block
            sizes.append(jnp.where(shared > 0.0, shared, 1e9))
    return functools.reduce(jnp.minimum, sizes, jnp.asarray(1e9))


def largest_expert_degrees(model: Model) -> tuple[Array, Array] | None:
    """(experts, blocks of their hidden width): bounds of both expert degrees; None if dense."""
    feeds = _experts(model)
    if not feeds:
        return None
    block = model.precision.block or 1
    experts = functools.reduce(jnp.minimum, [feed.experts for feed in feeds])
    return experts, functools.reduce(jnp.minimum, [feed.hidden / block for feed in feeds])


def stage_obstacle(model: Model, tensor: int, data: int, expert: int) -> str | None:
    """Why degrees across a stage are refused, in words; None where they are accepted."""
    for group in model.groups:
        for whole, how in _rules(model, group):
            if not _admits((whole, how), tensor):
                what = "key-value heads" if "multiplies" in how else _named(group, whole)
                return f"tensor degree {tensor} does not split {whole} {what} of '{model.name}'"
    if not _experts(model):
        if data > 1 or expert > 1:
            which = f"data degree {data}" if data > 1 else f"expert degree {expert}"
            return f"{which} needs routed experts, which '{model.name}' has not; copy whole replicas"
        return None
    ranks = tensor * data
    if ranks % expert:
        return f"expert degree {expert} does not divide tensor x data = {ranks}"
    for feed in _experts(model):
        if int(feed.experts) % expert:
            return f"{int(feed.experts)} experts of '{model.name}' do not split over {expert} ranks"
        blocks = _blocks(model, feed.hidden)
        if blocks % (ranks // expert):
            return (
                f"expert tensor degree {ranks // expert} does not split {blocks} hidden columns or "
                f"quantization blocks of each expert of '{model.name}'"
            )
    return None


def draft_obstacle(model: Model, tensor: int, data: int, expert: int) -> str | None:
    """Likewise for a draft model beside its target: a dense one runs on each data rank by itself."""
    return (
        stage_obstacle(model, tensor, data, expert)
        if _experts(model)
        else stage_obstacle(model, tensor, 1, 1)
    )


def pipeline_obstacle(model: Model, stages: int) -> str | None:
    """Why a pipeline degree is refused, in words; None where it is accepted."""
    layers = int(model.layers)
    if layers % stages:
        return f"{layers} layers of '{model.name}' do not split over {stages} even stages"
    return None


def pipeline_degrees(model: Model, most: int) -> list[int]:
    """Pipeline degrees up to `most` that divide the layers, so that stages are even."""
    layers = int(model.layers)
    return [p for p in range(1, min(most, layers) + 1) if layers % p == 0]


def _experts(model: Model) -> list[MixtureOfExperts]:
    return [g.feed_forward for g in model.groups if isinstance(g.feed_forward, MixtureOfExperts)]


def _blocks(model: Model, hidden: Array) -> int:
    """Parts into which a hidden width may be split: columns, or whole quantization blocks."""
    block = model.precision.block or 1
    return int(hidden) // block if int(hidden) % block == 0 else 1


def _divisors(numbers: list[int], most: int) -> list[int]:
    """Divisors of all numbers, up to `most`."""
    return [k for k in range(1, min([most, *numbers]) + 1) if all(n % k == 0 for n in numbers)]


def _named(group: LayerGroup, whole: int) -> str:
    mixer = group.mixer
    heads = isinstance(mixer, (GroupedQueryAttention, LatentAttention)) and int(mixer.heads) == whole
    return "attention heads" if heads else "hidden columns or quantization blocks"


def _rules(model: Model, group: LayerGroup) -> list[tuple[int, str]]:
    """Pairs of a whole number and how a tensor degree must go into it."""
    mixer, feed = group.mixer, group.feed_forward
    rules = []
    if isinstance(mixer, (GroupedQueryAttention, LatentAttention)):
        rules.append((int(mixer.heads), "divides"))
    if isinstance(mixer, GroupedQueryAttention):
        rules.append((int(mixer.kv_heads), "divides or multiplies"))
    if isinstance(feed, DenseFeedForward):
        rules.append((_blocks(model, feed.hidden), "divides"))
    elif isinstance(feed, MixtureOfExperts) and int(feed.shared_hidden):
        rules.append((_blocks(model, feed.shared_hidden), "divides"))
    return rules


def _admits(rule: tuple[int, str], degree: int) -> bool:
    whole, how = rule
    return whole % degree == 0 or (how == "divides or multiplies" and degree % whole == 0)
