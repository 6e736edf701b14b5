"""Drafting heads of a model: layers of their own beside its embedding and output head."""

import dataclasses

import equinox as eqx

from ._model import DenseFeedForward, GroupedQueryAttention, LayerGroup, Model


def prediction_head(model: Model) -> Model:
    """A multi-token-prediction module (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2).

    A matrix from two widths to one, and one layer like the model's last; embedding and output head
    are the model's and stored there.
    """
    last = model.groups[-1]
    layer = dataclasses.replace(last, count=1.0)
    joined = LayerGroup(1.0, None, DenseFeedForward(model.width, gated=False))
    head = dataclasses.replace(
        model,
        groups=(joined, layer),
        other_parameters=0.0,
        borrowed=True,
        name=f"{model.name} prediction head",
    )
    return head


def eagle_head(model: Model, *, hidden: float | None = None, vocabulary: float = 32000.0) -> Model:
    """An EAGLE-3 head (Li et al. 2025, arXiv:2503.01840): one dense layer and a small output head.

    Three hidden states are joined by a matrix. `hidden` is the width of its feed-forward: the
    model's own dense one by default, else four widths where the model has none. Attention is like
    the model's where that is grouped-query attention, else with heads of 128, eight to a key-value
    head. The vocabulary of drafts is cut to `vocabulary`.
    """
    width = model.width
    mixers = [g.mixer for g in model.groups if isinstance(g.mixer, GroupedQueryAttention)]
    dense = [g.feed_forward for g in model.groups if isinstance(g.feed_forward, DenseFeedForward)]
    heads = width / 128.0
    mixer = mixers[-1] if mixers else GroupedQueryAttention(heads, heads / 8.0, 128.0, 128.0)
    mixer = eqx.tree_at(lambda m: m.window, mixer, None, is_leaf=lambda x: x is None)
    own = dense[-1].hidden if dense else 4.0 * width
    feed = DenseFeedForward(own if hidden is None else hidden)
    joined = LayerGroup(1.0, None, DenseFeedForward(1.5 * width, gated=False))
    return Model(
        width=width,
        vocabulary=vocabulary,
        groups=(joined, LayerGroup(1.0, mixer, feed)),
        precision=model.precision,
        tied=True,
        name=f"{model.name} EAGLE-3 head",
    )
