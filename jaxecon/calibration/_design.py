"""The work of all measured rows, stacked, so that one compiled function times them all."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics import EXACT
from ..cost._interference import TokenWork, prompt_delay, token_work
from ..cost._serving_network import Exchange
from ..cost._serving_step import Engine, PassWork, pass_seconds
from ..specs import Accelerator, Layout, Model, Workload
from ._apply import Places, Vector, calibrated, profile_of, stacked_places
from ._cases import CHUNK_TOKENS, SIZE, Block, Case, blocks_of, fitting_batches, stacked
from ._constants import PRIOR_MEAN

_KINDS = ("head", "attention", "projection", "feed_forward", "expert")


class Design(eqx.Module):
    """Rows whose engines choose among the same collectives, ready to be timed."""

    work: TokenWork
    accelerator: Accelerator
    """Full rates and links of each row's accelerator."""
    places: Places
    aggregated: Array
    tokens_per_step: Array
    rows: tuple[int, ...] = eqx.field(static=True)
    """Positions of the rows among all."""
    engine: str = eqx.field(static=True)
    """One of the engines; its name changes no number."""

    def seconds(self, vector: Vector) -> Float[Array, " rows"]:
        """Seconds per output token of every row, at unconstrained constants."""

        def one(work, accelerator, where, aggregated, per_step):
            hardware = calibrated(vector, accelerator, self.engine, where)
            profile = profile_of(hardware)
            none = jnp.zeros_like(profile.step_overhead)
            engine = Engine(profile.kernels_per_layer, none, none + 1.0, profile)
            step = pass_seconds(work.decode, hardware, engine, EXACT).total + profile.step_overhead
            delay = prompt_delay(work, hardware, engine, profile.step_overhead, EXACT)
            return (step + aggregated * delay) / per_step

        return jax.vmap(one)(self.work, self.accelerator, self.places, self.aggregated, self.tokens_per_step)

    def first_token_seconds(self, vector: Vector) -> Float[Array, " rows"]:
        """Seconds to the first token where a replica ingests its own prompts.

        A request's own prompt, the share of the others' that falls before first tokens and not between
        later ones, and half a decode step until its turn. Nothing is fitted to first tokens.
        """

        def one(work: TokenWork, accelerator: Accelerator, where: Places) -> Array:
            hardware = calibrated(vector, accelerator, self.engine, where)
            profile = profile_of(hardware)
            none = jnp.zeros_like(profile.step_overhead)
            engine = Engine(profile.kernels_per_layer, none, none + 1.0, profile)
            chunk = pass_seconds(work.chunk, hardware, engine, EXACT).total + profile.step_overhead
            step = pass_seconds(work.decode, hardware, engine, EXACT).total + profile.step_overhead
            others = jnp.maximum(work.decode.sequences - 1.0 / work.decode.data, 0.0)
            before = 1.0 + (1.0 - profile.prompt_exposure) * others
            return work.passes * chunk * before + 0.5 * step

        return jax.vmap(one)(self.work, self.accelerator, self.places)


def designs_of(cases: list[Case]) -> tuple[Design, ...]:
    """The rows by the collectives of their engines, each with the batch that really decodes.

    That is at most what fits in memory. Where a row's requests wait for their first token, a request
    decodes for the share output T/(wait + output T) of its life, with T at the prior constants.
    """
    blocks = blocks_of(cases)
    batches = fitting_batches(cases, blocks)
    works = works_of(blocks, batches)
    waiting = [i for i, c in enumerate(cases) if c.waiting is not None]
    for _ in range(2 if waiting else 0):
        guess = seconds_of(_split(cases, works), jnp.asarray(PRIOR_MEAN), len(cases))
        for i in waiting:
            life = cases[i].output * guess[i]
            share = life / (life + (cases[i].waiting or 0.0))
            most = min(share * float(cases[i].layout.batch), batches[i])
            batches[i] = max(most, float(cases[i].layout.pipeline))
        concerned = [b for b in blocks if set(b.rows) & set(waiting)]
        changed, rows = works_of(concerned, batches, like=works), sum((b.rows for b in concerned), [])
        for old, new in zip(jax.tree.leaves(works), jax.tree.leaves(changed), strict=True):
            old[rows] = new
    return _split(cases, works)


def bounds_of(designs: tuple[Design, ...], rows: int) -> np.ndarray:
    """Seconds per output token that no efficiency can beat: the roofline of decoding at full rates."""
    found = np.zeros(rows)
    for design in designs:
        decode = design.work.decode
        busy = jnp.sum(decode.count * jnp.maximum(decode.arithmetic, decode.memory), axis=-1)
        found[list(design.rows)] = np.asarray(busy / design.tokens_per_step)
    return found


def seconds_of(designs: tuple[Design, ...], vector: Vector, rows: int) -> np.ndarray:
    """Seconds per output token of all rows, in their order."""
    found = np.zeros(rows)
    for design in designs:
        found[list(design.rows)] = np.asarray(_seconds(design, vector))
    return found


@eqx.filter_jit
def _seconds(design: Design, vector: Vector) -> Array:
    return design.seconds(vector)


def _split(cases: list[Case], works: TokenWork) -> tuple[Design, ...]:
    sets: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        network = case.accelerator.network
        sets.setdefault((network.kind, network.algorithms), []).append(i)
    return tuple(
        Design(
            jax.tree.map(lambda x, rows=rows: jnp.asarray(x[rows]), works),
            stacked([cases[i].accelerator for i in rows]),
            stacked_places([(cases[i].machine, cases[i].engine) for i in rows]),
            jnp.asarray([float(cases[i].aggregated) for i in rows]),
            jnp.asarray([cases[i].tokens_per_step for i in rows]),
            tuple(rows),
            cases[rows[0]].engine,
        )
        for rows in sets.values()
    )


def works_of(blocks: list[Block], batches: np.ndarray, like: TokenWork | None = None) -> TokenWork:
    """The blocks' work as NumPy arrays, operation groups in one order, absent ones with no work.

    Rows come in their order among all where `blocks` hold all, else in the blocks' order and with the
    operation groups laid out as in `like`.
    """
    works = [_work(b, batches) for b in blocks]
    if like is not None:
        width = {kind: like.decode.kinds.count(kind) for kind in _KINDS}
        exchange = like.decode.messages.experts
        experts = 1 if exchange is None else exchange.layers.shape[-1]
        return jax.tree.map(lambda *x: np.concatenate(x), *[_padded(w, width, experts) for w in works])
    width = {kind: max(w.decode.kinds.count(kind) for w in works) for kind in _KINDS}
    sparse = [w.decode.messages.experts for w in works]
    experts = max((e.layers.shape[-1] for e in sparse if e is not None), default=1)
    back = np.argsort(sum((b.rows for b in blocks), []))
    return jax.tree.map(lambda *x: np.concatenate(x)[back], *[_padded(w, width, experts) for w in works])


def _work(block: Block, batches: np.ndarray) -> TokenWork:
    def work(
        model: Model, accelerator: Accelerator, layout: Layout, context: Array, output: Array, shared: Array
    ) -> TokenWork:
        chunk, one = jnp.asarray(CHUNK_TOKENS), jnp.asarray(1.0)
        hits = jnp.minimum(shared / Workload(context, output).prompt_tokens, 1.0)
        workload = Workload(context, output, hit_rate=hits)
        return token_work(model, accelerator, workload, layout, chunk, one, EXACT, shared=shared)

    batch = np.pad(batches[block.rows], (0, SIZE - len(block.rows)), mode="edge")
    layout = eqx.tree_at(lambda x: x.batch, block.layout, jnp.asarray(batch))
    lengths = (block.context, block.output, block.shared)
    found = jax.vmap(work)(block.model, block.accelerator, layout, *lengths)
    return jax.tree.map(lambda x: np.asarray(x)[: len(block.rows)], found)


def _padded(work: TokenWork, width: dict[str, int], experts: int) -> TokenWork:
    return TokenWork(
        _padded_pass(work.decode, width, experts),
        _padded_pass(work.chunk, width, experts),
        work.passes,
        work.output,
    )


def _padded_pass(work: PassWork, width: dict[str, int], experts: int) -> PassWork:
    slots: list[int] = []
    kinds: list[str] = []
    for kind, number in width.items():
        own = [i for i, k in enumerate(work.kinds) if k == kind]
        slots += own + [-1] * (number - len(own))
        kinds += [kind] * number

    def lay(x: np.ndarray, empty: float) -> np.ndarray:
        columns = [x[..., i] if i >= 0 else np.full_like(x[..., 0], empty) for i in slots]
        return np.stack(columns, axis=-1)

    fields = {name: getattr(work, name) for name in type(work).__dataclass_fields__}
    fields |= {name: lay(np.asarray(fields[name]), 0.0) for name in ("arithmetic", "memory", "count")}
    fields |= {name: lay(np.asarray(fields[name]), 16.0) for name in ("arithmetic_bits", "memory_bits")}
    sent = fields["messages"]
    fields["messages"] = eqx.tree_at(
        lambda m: m.experts,
        sent,
        _padded_exchange(sent.experts, sent.tensor, experts),
        is_leaf=lambda x: x is None,
    )
    return PassWork(**fields | {"kinds": tuple(kinds)})


def _padded_exchange(sent: Exchange | None, like: Array, experts: int) -> Exchange:
    """The exchange with `experts` kinds of experts; of none, an exchange in no layer."""
    one = np.ones(like.shape)
    if sent is None:
        none = np.zeros((*like.shape, experts))
        bytes_ = np.ones((*like.shape, experts, 2))
        return Exchange(one, one, one, one, one, none, bytes_, bytes_)
    missing = experts - sent.layers.shape[-1]

    def pad(x: Array, axis: int, empty: float) -> np.ndarray:
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, missing)
        return np.pad(np.asarray(x), widths, constant_values=empty)

    return eqx.tree_at(
        lambda e: [e.layers, e.sent, e.crossing],
        jax.tree.map(np.asarray, sent),
        [pad(sent.layers, -1, 0.0), pad(sent.sent, -2, 1.0), pad(sent.crossing, -2, 1.0)],
    )
