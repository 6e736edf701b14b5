"""Measured points from a CSV file, with every bad row named by its line."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .._errors import InputError, nearest

COLUMNS = {
    "model": "model as served: a catalogue name, or a common spelling of one",
    "hf_model": "Hugging Face repository, tried where `model` is not recognised",
    "gpu": "accelerator: a catalogue name, or a common spelling of one",
    "engine": "serving engine: vllm, sglang, tensorrt-llm or another",
    "kind": "decode_steady, serving_agg (the replica ingests prompts), serving_disagg, or e2e_offline",
    "n_gpus": "accelerators in all; default tp x pp x attn_dp",
    "replicas": "replicas of the model among them; default 1",
    "tp": "tensor degree of attention; default 1",
    "pp": "pipeline stages; default 1",
    "attn_dp": "data degree of attention inside a replica; default 1",
    "ep": "expert-parallel groups; default 1",
    "batch": "requests in flight on all `replicas` together",
    "isl": "prompt tokens; default 1024",
    "osl": "output tokens; default 512",
    "weight_prec": "bf16, fp16, fp8, int8, int4, nvfp4; default that of the catalogue",
    "kv_prec": "precision of the cache; default that of the weights, at least 8 bits",
    "spec_decode": "none, or MTP<k>, acceptance length <a>",
    "tpot_ms": "the measurement: milliseconds between two output tokens of a request",
    "ttft_ms": "milliseconds to the first token; where `batch` counts requests that wait for it",
    "out_tok_s_per_gpu": "output tokens/s of all requests per accelerator; only to prove shared prompts",
}
"""Columns that are read, and what they mean; further ones are ignored."""
NEEDED = ("model", "gpu", "batch", "tpot_ms")
_COUNTS = ("n_gpus", "replicas", "tp", "pp", "attn_dp", "ep")
_SIZES = ("batch", "isl", "osl")
KINDS = ("decode_steady", "serving_agg", "serving_disagg", "e2e_offline")
_PLAUSIBLE_MS = (0.05, 60_000.0)


class Measurement(NamedTuple):
    """One measured point. Times are in seconds, the rest as the columns say."""

    line: int
    model: str
    hf_model: str
    gpu: str
    engine: str
    kind: str
    n_gpus: int
    replicas: int
    tp: int
    pp: int
    attn_dp: int
    ep: int
    batch: float
    isl: float
    osl: float
    weight_prec: str
    kv_prec: str
    spec_decode: str
    tpot: float
    ttft: float | None
    out_rate: float | None = None
    """Output tokens/s of all requests, per accelerator of `n_gpus`."""


class BadRow(NamedTuple):
    """A row that cannot be used, and why."""

    line: int
    reason: str


def read_measurements(path: str | Path, *, on_bad: str = "refuse") -> tuple[list[Measurement], list[BadRow]]:
    """The rows of a CSV file with the columns `COLUMNS`.

    Args:
        path: the file, UTF-8, with a header line.
        on_bad: "refuse" to raise for the first bad row, "skip" to return them beside the good ones.

    Raises:
        InputError: for an unreadable file, a missing column, no usable row, or, with "refuse", a bad
            row, named by its line.
    """
    if on_bad not in ("refuse", "skip"):
        raise InputError(f"on_bad is 'refuse' or 'skip', got {on_bad!r}")
    good: list[Measurement] = []
    bad: list[BadRow] = []
    for line, row in _rows(Path(path)):
        try:
            good.append(parse(row, line))
        except InputError as error:
            if on_bad == "refuse":
                raise InputError(f"{path}, line {line}: {error}") from error
            bad.append(BadRow(line, str(error)))
    if not good:
        first = f"; the first, line {bad[0].line}: {bad[0].reason}" if bad else ""
        raise InputError(f"'{path}' has no usable row{first}")
    return good, bad


def _rows(path: Path) -> Iterable[tuple[int, dict[str, str]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error
    reader = csv.DictReader(text.splitlines())
    names = reader.fieldnames or []
    for name in NEEDED:
        if name not in names:
            raise InputError(f"'{path}' lacks the column '{name}' ({COLUMNS[name]}); {nearest(name, names)}")
    try:
        for row in reader:
            yield reader.line_num, {k: (v or "").strip() for k, v in row.items() if k is not None}
    except csv.Error as error:
        raise InputError(f"'{path}', line {reader.line_num}: {error}") from error


def parse(row: dict[str, str], line: int) -> Measurement:
    """One row from its texts.

    Raises:
        InputError: naming the column and what would be right.
    """
    texts = {k: row.get(k, "") for k in COLUMNS}
    for name in NEEDED:
        if not texts[name]:
            raise InputError(f"'{name}' is empty; expected {COLUMNS[name]}")
    kind = texts["kind"] or "serving_agg"
    if kind not in KINDS:
        raise InputError(f"'kind' is {kind!r}; {nearest(kind, KINDS)}")
    counts = {k: _count(texts[k], k) for k in _COUNTS if k != "n_gpus"}
    counts["n_gpus"] = (
        _count(texts["n_gpus"], "n_gpus")
        if texts["n_gpus"]
        else counts["tp"] * counts["pp"] * counts["attn_dp"] * counts["replicas"]
    )
    sizes = {k: _positive(texts[k], k) for k in _SIZES if texts[k]}
    milliseconds = _positive(texts["tpot_ms"], "tpot_ms")
    low, high = _PLAUSIBLE_MS
    if not low <= milliseconds <= high:
        raise InputError(f"'tpot_ms' is {milliseconds:g}; expected milliseconds, {low:g} to {high:g}")
    if counts["n_gpus"] % counts["replicas"]:
        raise InputError(f"{counts['n_gpus']} accelerators do not make {counts['replicas']} equal replicas")
    ttft = _positive(texts["ttft_ms"], "ttft_ms") / 1e3 if texts["ttft_ms"] else None
    rate = texts["out_tok_s_per_gpu"]
    return Measurement(
        line=line,
        kind=kind,
        tpot=milliseconds / 1e3,
        ttft=ttft,
        out_rate=_positive(rate, "out_tok_s_per_gpu") if rate else None,
        batch=sizes["batch"],
        isl=sizes.get("isl", 1024.0),
        osl=sizes.get("osl", 512.0),
        **{
            k: texts[k]
            for k in ("model", "hf_model", "gpu", "engine", "weight_prec", "kv_prec", "spec_decode")
        },
        **counts,
    )


def _positive(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(f"'{name}' is {text!r}; expected a positive number, {COLUMNS[name]}")
    return value


def _count(text: str, name: str) -> int:
    value = _positive(text, name) if text else 1.0
    if value != int(value):
        raise InputError(f"'{name}' is {text!r}; expected a whole number, {COLUMNS[name]}")
    return int(value)
