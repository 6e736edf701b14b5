"""Models described by hand: a TOML table with one `[[layers]]` entry per kind of layer.

    width = 4096
    vocabulary = 32000
    [[layers]]
    count = 32
    [layers.mixer]
    kind = "grouped_query"       # or "latent", "recurrent"
    heads = 32
    kv_heads = 8
    head_dim = 128
    value_head_dim = 128
    [layers.feed_forward]
    kind = "dense"               # or "experts"
    hidden = 14336

Keys are the fields of `Model`, `LayerGroup` and the mixer and feed-forward classes.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from .._errors import InputError, nearest
from ._hf_precision import precision
from ._model import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    Model,
    RecurrentMixer,
)

_MIXERS = {
    "grouped_query": GroupedQueryAttention,
    "latent": LatentAttention,
    "recurrent": RecurrentMixer,
}
_FEED_FORWARDS = {"dense": DenseFeedForward, "experts": MixtureOfExperts}
_FLAGS = ("tied", "output_gate", "chunked", "gated", "parallel")
_TOP = ("width", "vocabulary", "other_parameters", "tied", "max_context")


def model_from_description(
    table: Mapping[str, Any], name: str, source: str, **precisions: float | None
) -> Model:
    """A `Model` from its description by hand.

    Raises:
        InputError: for a missing, unknown or absurd entry.
    """
    _known(table, "the model", (*_TOP, "layers", "precision"))
    top = {k: _value(table, k, "the model") for k in _TOP if k in table}
    _needed(table, "the model", ("width", "vocabulary", "layers"))
    layers = table["layers"]
    if not isinstance(layers, list) or not layers:
        raise InputError(f"'layers' must be a list of [[layers]] tables, got {layers!r:.60}")
    stated = table.get("precision", {})
    if not isinstance(stated, Mapping):
        raise InputError(f"'precision' must be a table of bits, got {stated!r}")
    chosen = dict(stated) | {k: v for k, v in precisions.items() if v is not None}
    groups = tuple(_group(layer, f"layers[{i}]") for i, layer in enumerate(layers))
    return Model(groups=groups, precision=precision(None, chosen), name=name, source=source, **top)


def _group(layer: Any, where: str) -> LayerGroup:
    if not isinstance(layer, Mapping):
        raise InputError(f"'{where}' must be a table, got {layer!r}")
    _known(layer, where, ("count", "norm_parameters", "parallel", "mixer", "feed_forward"))
    _needed(layer, where, ("count",))
    numbers = {k: _value(layer, k, where) for k in ("count", "norm_parameters", "parallel") if k in layer}
    mixer = feed = None
    if "mixer" in layer:
        mixer = _half(layer["mixer"], f"{where}.mixer", _MIXERS)
    if "feed_forward" in layer:
        feed = _half(layer["feed_forward"], f"{where}.feed_forward", _FEED_FORWARDS)
    return LayerGroup(mixer=mixer, feed_forward=feed, **numbers)


def _half(table: Any, where: str, kinds: Mapping[str, type]) -> Any:
    if not isinstance(table, Mapping):
        raise InputError(f"'{where}' must be a table, got {table!r}")
    kind = str(table.get("kind"))
    if kind not in kinds:
        raise InputError(f"'{where}.kind' {kind!r} is unknown; {nearest(kind, kinds)}")
    fields = {f.name: f for f in dataclasses.fields(kinds[kind])}
    _known(table, where, ("kind", *fields))
    missing = dataclasses.MISSING
    required = [n for n, f in fields.items() if f.default is missing and f.default_factory is missing]
    _needed(table, where, required)
    return kinds[kind](**{k: _value(table, k, where) for k in table if k != "kind"})


def _known(table: Mapping[str, Any], where: str, keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"{where} has an unknown key '{key}'; {nearest(key, keys)}")


def _needed(table: Mapping[str, Any], where: str, keys: Any) -> None:
    for key in keys:
        if key not in table:
            raise InputError(f"{where} has no '{key}'")


def _value(table: Mapping[str, Any], key: str, where: str) -> Any:
    value = table[key]
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise InputError(f"{where}: '{key}' must be true or false, got {value!r}")
        return value
    bad = isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    least = 0.0 if key.endswith(("parameters", "_elements", "shared_hidden")) else 1.0
    if bad or not least <= value < 1e12:
        raise InputError(f"{where}: '{key}' must be a number of at least {least:g}, got {value!r}")
    return float(value)
