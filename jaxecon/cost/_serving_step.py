"""Step time of a served model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import EXACT, Arithmetic
from ..specs import Accelerator, EngineProfile, LatentAttention, Layout, MixtureOfExperts, Model
from ..specs import RecurrentMixer

from ._serving_layer import Share, Work, attention_core, feed_forward, head, projections
from ._serving_network import Messages, message_times, messages
from ._step import StepTime


class Engine(eqx.Module):
    """What the serving engine adds or hides."""

    kernels: Array
    """Launches per layer and pass."""
    overlap: Array
    """Share of communication that proceeds beside the accelerator's work, 0 to 1."""
    imbalance: Array
    """Tokens on the busiest expert group over the mean."""
    profile: EngineProfile | None = None
    """Further launches and host time; None for none."""


class PassWork(eqx.Module):
    """One forward pass before any efficiency: what one accelerator has to do and send.

    Operation groups lie on the last axis. What does not depend on the layout has no axes of layouts.
    """

    arithmetic: Array
    """Seconds at the peak rate of the group's operands, of one layer."""
    memory: Array
    """Seconds at the full memory bandwidth, of one layer."""
    arithmetic_bits: Array
    """Width of the operands of matrix products."""
    memory_bits: Array
    """Nominal width of what is read: 16, 8 or 4."""
    count: Array
    """Layers of the group."""
    residual: Array
    """Seconds at the full memory bandwidth to move the residual stream through all layers once."""
    layers: Array
    expert_layers: Array
    latent_layers: Array
    """Layers with latent attention or a recurrence."""
    narrow_layers: Array
    """Layers whose matrix products have 4-bit operands."""
    sequences: Array
    """Sequences of the microbatch on one data rank."""
    data: Array
    messages: Messages
    kinds: tuple[str, ...] = eqx.field(static=True)


def pass_time(
    model: Model,
    accelerator: Accelerator,
    context: Array,
    queries: Array,
    layout: Layout,
    engine: Engine,
    arithmetic: Arithmetic,
    *,
    prompt: bool = False,
) -> StepTime:
    """Seconds of one forward pass of `queries` tokens of each of `layout.batch` sequences.

    Each pipeline stage works on its own microbatch of batch/P sequences, and a token passes all
    stages: the time is that of all L layers on one stage with one microbatch, plus P - 1 hand-overs.
    Every operation group takes the larger of its memory and arithmetic time. Of communication c and
    work w, c + w is spent without overlap, max(c, w) with full overlap, and a mean of the two in
    between. With `prompt` the new tokens attend to each other and only the last of each sequence
    passes the output head.
    """
    work = pass_work(
        model, accelerator, context, queries, layout, engine.imbalance, arithmetic, prompt=prompt
    )
    return pass_seconds(work, accelerator, engine, arithmetic)


def pass_work(
    model: Model,
    accelerator: Accelerator,
    context: Array,
    queries: Array,
    layout: Layout,
    imbalance: Array,
    arithmetic: Arithmetic,
    *,
    prompt: bool = False,
    shared: Array | None = None,
) -> PassWork:
    """The work of a pass; depends on full rates and on no efficiency or latency.

    `shared` tokens of the context are the same in all sequences and read once; None for none.
    """
    share = _share(context, queries, layout, imbalance, prompt, shared)
    sequences = share.sequences
    works, counts, kinds = _works(model, share, arithmetic)
    count = jnp.stack(counts)
    flop = jnp.stack(jnp.broadcast_arrays(*(w.flop for w in works)), axis=-1)
    traffic = jnp.stack(jnp.broadcast_arrays(*(w.bytes for w in works)), axis=-1)
    bits = [_operand_bits(kind, model) for kind in kinds]
    peak = jnp.stack([accelerator.peak.at(b) for b in bits])
    stream = 2.0 * model.width * share.tokens * model.precision.activation * model.layers
    return PassWork(
        flop / peak,
        traffic / accelerator.hbm_bandwidth,
        jnp.asarray(bits, dtype=flop.dtype),
        jnp.stack([_stored_bits(kind, model) for kind in kinds]),
        count,
        stream / accelerator.hbm_bandwidth,
        model.layers,
        _layers(model, lambda g: isinstance(g.feed_forward, MixtureOfExperts)),
        _layers(model, lambda g: isinstance(g.mixer, LatentAttention | RecurrentMixer)),
        model.layers if model.precision.compute_bits == 4 else jnp.zeros_like(model.layers),
        sequences,
        layout.data,
        messages(model, accelerator.network, share, layout, arithmetic),
        tuple(kinds),
    )


def pass_messages(
    model: Model, accelerator: Accelerator, context: Array, queries: Array, layout: Layout, imbalance: Array
) -> Messages:
    """What a decode pass sends."""
    return messages(model, accelerator.network, _share(context, queries, layout, imbalance), layout, EXACT)


def _share(
    context: Array,
    queries: Array,
    layout: Layout,
    imbalance: Array,
    prompt: bool = False,
    shared: Array | None = None,
) -> Share:
    sequences = layout.batch / (layout.pipeline * layout.data)
    return Share(
        layout.tensor, sequences, queries, context, layout.data, layout.expert, imbalance, prompt, shared
    )


def pass_seconds(
    work: PassWork, accelerator: Accelerator, engine: Engine, arithmetic: Arithmetic
) -> StepTime:
    """Seconds of a pass whose work is known, with the efficiencies and latencies of the hardware."""
    flop_times, memory_times = group_times(work, accelerator)
    busy = jnp.sum(work.count * arithmetic.max(jnp.stack([flop_times, memory_times], axis=-1)), axis=-1)
    moved = jnp.zeros_like(work.residual)
    launches = engine.kernels * work.layers
    host = jnp.zeros_like(work.sequences)
    if (profile := engine.profile) is not None:
        rate = accelerator.memory_efficiency * accelerator.efficiencies.feed_forward_memory
        moved = profile.residual_passes * work.residual / rate
        launches = launches + profile.expert_kernels * work.expert_layers
        launches = launches + profile.latent_kernels * work.latent_layers
        launches = launches + profile.narrow_kernels * work.narrow_layers
        host = profile.sequence_overhead * work.sequences
    latency, bandwidth = message_times(work.messages, accelerator.network, arithmetic)
    launch = launches * accelerator.kernel_launch_latency + host
    busy = busy + moved
    apart = latency + bandwidth + busy
    beside = arithmetic.maximum(latency + bandwidth, busy)
    return StepTime(
        jnp.sum(work.count * flop_times, axis=-1),
        jnp.sum(work.count * memory_times, axis=-1) + moved,
        bandwidth,
        latency,
        launch,
        launch + (1.0 - engine.overlap) * apart + engine.overlap * beside,
    )


def group_times(work: PassWork, accelerator: Accelerator) -> tuple[Array, Array]:
    """(arithmetic, memory) seconds of each operation group, one layer each, on a last axis."""
    extra, kinds = accelerator.efficiencies, work.kinds
    one = jnp.ones_like(extra.memory_8bit)
    matrix = jnp.asarray([kind != "attention" for kind in kinds])
    shares = jnp.stack([getattr(extra, f"{kind}_arithmetic") for kind in kinds])
    by_width = _by_bits(work.arithmetic_bits, extra.arithmetic_8bit, extra.arithmetic_4bit)
    peak = accelerator.arithmetic_efficiency * shares * jnp.where(matrix, by_width, one)
    shares = jnp.stack([getattr(extra, f"{kind}_memory") for kind in kinds])
    dense = jnp.asarray([kind in ("projection", "feed_forward") for kind in kinds])
    routed = jnp.asarray([kind == "expert" for kind in kinds])
    by_width = jnp.where(dense, _by_bits(work.memory_bits, extra.memory_8bit, extra.memory_4bit), one)
    expert = _by_bits(work.memory_bits, extra.expert_memory_8bit, extra.expert_memory_4bit)
    rate = accelerator.memory_efficiency * shares * jnp.where(routed, expert, by_width)
    return work.arithmetic / peak, work.memory / rate


def _by_bits(bits: Array, eight: Array, four: Array) -> Array:
    return jnp.where(bits > 12.0, jnp.ones_like(eight), jnp.where(bits > 6.0, eight, four))


def _operand_bits(kind: str, model: Model) -> int:
    return model.precision.attention_bits if kind == "attention" else model.precision.compute_bits


def _stored_bits(kind: str, model: Model) -> Array:
    """Nominal width of stored matrices; scales do not count, the cache is not distinguished."""
    precision = model.precision
    stored = precision.expert if kind == "expert" else precision.weight
    if kind in ("head", "attention"):
        return jnp.full_like(precision.weight, 16.0)
    return jnp.where(stored > 1.5, 16.0, jnp.where(stored > 0.75, 8.0, 4.0))


def _layers(model: Model, chosen) -> Array:
    return sum((g.count for g in model.groups if chosen(g)), start=jnp.zeros_like(model.width))


def _works(model: Model, share: Share, arithmetic: Arithmetic) -> tuple[list[Work], list[Array], list[str]]:
    """Every operation group's work on one accelerator, how often it occurs, and its kind."""
    works = [head(model, share, share.sequences if share.prompt else share.tokens)]
    counts, kinds = [jnp.ones_like(model.width)], ["head"]
    for group in model.groups:
        common, experts = feed_forward(model, group, share)
        parts = [
            (attention_core(model, group, share, arithmetic), "attention"),
            (projections(model, group, share), "projection"),
            (common, "feed_forward"),
        ]
        if experts is not None:
            parts.append((experts, "expert"))
        works += [work for work, _ in parts]
        kinds += [kind for _, kind in parts]
        counts += [group.count] * len(parts)
    return works, counts, kinds
