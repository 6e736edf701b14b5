"""From measured rows to scenarios: who runs what where, and how many sequences decode at once."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT
from ..cost._serving_memory import cache_bytes
from ..scenarios import Serving
from ..specs import Accelerator, Layout, Model, PeakRates, Workload, load_accelerator
from ._apply import choosing
from ._names import Precisions, accelerator_name, engine_name, model_of, precisions_of
from ._sharing import AGGREGATED, prompt_load, shared_tokens
from ._table import Measurement

STATIC_CACHE = ("neuron", "gpt-fast")
"""Engines that read the whole cache of a sequence's final length at every step, windows or not."""
GROWN_CACHE = ("vllm",)
"""Engines that allocate the cache as it grows; others reserve it to a request's final length."""


CHUNK_TOKENS = 8192.0
"""Prompt tokens of one pass, at most: the token budget that engines ship with."""


OLDER = 0.1
"""Weight of rows whose time is a whole static batch's, prompts included, over its tokens: older
engines and a looser meaning, but many small models and machines."""


class Case(NamedTuple):
    """A measured row as a question to the cost model, and what it belongs to."""

    model: Model
    accelerator: Accelerator
    layout: Layout
    context: float
    """Tokens in the cache on average."""
    output: float
    tokens_per_step: float
    aggregated: bool
    """Whether the replica ingests its own prompts, and they are not in its cache already."""
    waiting: float | None
    """Seconds to the first token, where the batch counts requests that still wait for it."""
    allocated: float
    """Tokens that the engine holds memory for, per sequence."""
    engine: str
    machine: str
    model_name: str
    dense: bool
    weight: float = 1.0
    """What the row counts in a fit; rows of less than 1 are reported apart."""
    prompt_load: float = 0.0
    """Share of the accelerators' time that prompts fill at peak, by a stated output rate (`_sharing`)."""
    shared: float = 0.0
    """Tokens at the start of every prompt that all requests have in common: where `prompt_load` exceeds
    1, the prompt; they are stored once and read once a step."""


def case_of(row: Measurement) -> Case:
    """The question behind one row.

    A tensor degree beyond the row's accelerators counts the cores of each, which then are the
    accelerators. A tensor x data degree beyond a replica means that data ranks share it.

    Raises:
        InputError: for an unknown model or accelerator, or degrees that contradict each other.
    """
    precisions = precisions_of(row.weight_prec, row.kv_prec)
    machine, engine = accelerator_name(row.gpu), engine_name(row.engine)
    model = _served(row.model, row.hf_model, precisions, engine not in STATIC_CACHE)
    accelerator = _hardware(machine, engine)
    count = row.n_gpus // row.replicas
    tensor, data = row.tp, row.attn_dp
    if tensor > count and data == 1 and tensor % count == 0:
        accelerator = cores(accelerator, tensor // count)
        count = tensor
    if tensor * data * row.pp > count:
        tensor = count // (data * row.pp)
    if tensor < 1 or tensor * data * row.pp != count:
        raise InputError(
            f"tp {row.tp} x attn_dp {row.attn_dp} x pp {row.pp} is not the {count} accelerators of a replica"
        )
    expert = row.ep if row.ep <= tensor * data else 1
    full = row.isl + row.osl
    half = row.isl + 0.5 * row.osl
    accepted, drafted = _speculation(row.spec_decode)
    load = prompt_load(row, precisions, accelerator, float(count))
    shared = shared_tokens(load, row.isl)
    return Case(
        model,
        accelerator,
        Layout(float(tensor), float(row.pp), float(expert), float(data), row.batch / row.replicas, drafted),
        context=full if engine in STATIC_CACHE else half,
        output=row.osl,
        tokens_per_step=accepted,
        aggregated=row.kind in AGGREGATED and shared == 0.0,
        waiting=row.ttft if row.kind == "serving_disagg" else None,
        allocated=half if engine in GROWN_CACHE else full,
        engine=engine,
        machine=machine,
        model_name=row.model,
        dense=not any(hasattr(g.feed_forward, "experts") for g in model.groups),
        weight=OLDER if row.kind == "e2e_offline" else 1.0,
        prompt_load=load,
        shared=shared,
    )


def _speculation(text: str) -> tuple[float, float]:
    """(tokens per step, drafted tokens) from a text such as 'MTP2, acceptance length 2.58'."""
    words = text.replace(",", " ").split()
    if not words or not words[0].upper().startswith("MTP"):
        return 1.0, 0.0
    try:
        return float(words[-1]), float(words[0][3:])
    except ValueError:
        raise InputError(f"'spec_decode' is {text!r}; expected 'MTP<k>, acceptance length <a>'") from None


@functools.cache
def _served(name: str, repository: str, precisions: Precisions, windows: bool) -> Model:
    model = model_of(name, repository, precisions)
    return model if windows else without_windows(model)


@functools.cache
def _hardware(name: str, engine: str) -> Accelerator:
    return choosing(filled(load_accelerator(name, price_per_hour=1.0)), engine)


def filled(accelerator: Accelerator) -> Accelerator:
    """The same accelerator with every width's peak stated, so that all have one structure."""
    peak = accelerator.peak
    every = PeakRates(peak.bits16, peak.at(8), peak.at(4))
    return eqx.tree_at(lambda a: a.peak, accelerator, every)


def cores(accelerator: Accelerator, parts: int) -> Accelerator:
    """One of `parts` equal cores of an accelerator."""

    def where(a: Accelerator) -> list[Array]:
        rates = [x for x in (a.peak.bits16, a.peak.bits8, a.peak.bits4) if x is not None]
        return [*rates, a.hbm_bandwidth, a.hbm_size, a.network.scale_up_bandwidth]

    accelerator = eqx.tree_at(where, accelerator, replace_fn=lambda x: x / parts)
    return eqx.tree_at(lambda a: a.network.domain_size, accelerator, replace_fn=lambda x: x * parts)


def without_windows(model: Model) -> Model:
    """The same model with every attention reading the whole cache."""
    groups = []
    for group in model.groups:
        if getattr(group.mixer, "window", None) is not None:
            group = eqx.tree_at(lambda g: g.mixer.window, group, None)
        groups.append(group)
    return eqx.tree_at(lambda m: m.groups, model, tuple(groups))


def scenario_of(case: Case) -> Serving:
    """The cost model's scenario of a case, which knows nothing of shared prompts."""
    chunk = CHUNK_TOKENS if case.aggregated else None
    return Serving(case.model, case.accelerator, Workload(case.context, case.output), chunk_tokens=chunk)


def stacked(items: list[eqx.Module]) -> eqx.Module:
    """Modules of one structure with their leaves stacked on a first axis."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(x) for x in leaves])), *items)


class Block(NamedTuple):
    """Rows whose models and accelerators differ in numbers only, stacked; `SIZE` of them.

    The last row is repeated where there are fewer, so that every operation has one shape only.
    """

    rows: list[int]
    """Positions among all cases, without the repetitions."""
    model: Model
    accelerator: Accelerator
    layout: Layout
    context: Array
    output: Array
    allocated: Array
    shared: Array


SIZE = 256


def blocks_of(cases: list[Case]) -> list[Block]:
    """All cases in blocks of one structure each."""
    groups: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        key = (jax.tree.structure(case.model), case.accelerator.network.kind)
        groups.setdefault(key, []).append(i)
    found = []
    for group in groups.values():
        for start in range(0, len(group), SIZE):
            rows = group[start : start + SIZE]
            every = [cases[rows[min(i, len(rows) - 1)]] for i in range(SIZE)]
            found.append(
                Block(
                    rows,
                    stacked([c.model for c in every]),
                    stacked([choosing(c.accelerator, None) for c in every]),
                    stacked([c.layout for c in every]),
                    jnp.asarray([c.context for c in every]),
                    jnp.asarray([c.output for c in every]),
                    jnp.asarray([c.allocated for c in every]),
                    jnp.asarray([c.shared for c in every]),
                )
            )
    return found


def fitting_batches(cases: list[Case], blocks: list[Block]) -> np.ndarray:
    """Sequences of each case that its accelerators have memory for, at most the case's own.

    The ledger of memory is linear in the batch, so that two points give where its margin ends. Tokens
    that all requests share are stored once on every data rank.
    """
    found = np.zeros(len(cases))

    def margin(
        model: Model, accelerator: Accelerator, layout: Layout, tokens: Array, shared: Array, copies: Array
    ) -> Array:
        # A context with output/2 = 1/2 beyond it fills the cache to a sequence's own tokens.
        own = tokens - shared
        scenario = Serving(model, accelerator, Workload(own - 0.5, 1.0), reserve=0.1)

        def holding(copies: Array) -> Layout:
            return eqx.tree_at(lambda x: x.batch, layout, copies * layout.pipeline * layout.data)

        once = [cache_bytes(model, x, holding(jnp.ones_like(tokens)), EXACT) for x in (tokens, own)]
        return scenario.memory_margin(holding(copies)) - (once[0] - once[1])

    several = jax.vmap(margin, in_axes=(0, 0, 0, 0, 0, None))
    for b in blocks:
        first, second = (
            np.asarray(several(b.model, b.accelerator, b.layout, b.allocated, b.shared, jnp.asarray(k)))
            for k in (1.0, 2.0)
        )
        one = np.asarray(b.layout.pipeline * b.layout.data)
        room = one * (1.0 + np.maximum(first, 0.0) / np.maximum(first - second, 1.0))
        most = np.minimum(np.asarray(b.layout.batch), np.maximum(room, 1.0))
        found[b.rows] = most[: len(b.rows)]
    return found
