"""Step time of a served model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import Arithmetic
from ..specs import Accelerator, Layout, Model

from ._serving_layer import Share, Work, attention_core, feed_forward, head, projections
from ._serving_network import communication
from ._step import StepTime


class Engine(eqx.Module):
    """What the serving engine adds or hides."""

    kernels: Array
    """Launches per layer and pass."""
    overlap: Array
    """Share of communication that proceeds beside the accelerator's work, 0 to 1."""
    imbalance: Array
    """Tokens on the busiest expert group over the mean."""


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
    sequences = layout.batch / (layout.pipeline * layout.data)
    share = Share(
        layout.tensor,
        sequences,
        queries,
        context,
        layout.data,
        layout.expert,
        engine.imbalance,
        prompt,
    )
    works, counts, kinds = _works(model, share, arithmetic)
    count = jnp.stack(jnp.broadcast_arrays(*counts), axis=-1)
    flop_times, memory_times = _times(works, kinds, model, accelerator)
    groups = jnp.stack([flop_times, memory_times], axis=-1)
    busy = jnp.sum(count * arithmetic.max(groups), axis=-1)
    latency, bandwidth = communication(model, accelerator, share, layout, arithmetic)
    launch = engine.kernels * model.layers * accelerator.kernel_launch_latency + 0.0 * share.tokens
    apart = latency + bandwidth + busy
    beside = arithmetic.maximum(latency + bandwidth, busy)
    return StepTime(
        jnp.sum(count * flop_times, axis=-1),
        jnp.sum(count * memory_times, axis=-1),
        bandwidth,
        latency,
        launch,
        launch + (1.0 - engine.overlap) * apart + engine.overlap * beside,
    )


def _works(model: Model, share: Share, arithmetic: Arithmetic) -> tuple[list[Work], list[Array], list[str]]:
    """Every operation group's work on one accelerator, how often it occurs, and its kind."""
    works = [head(model, share, share.sequences if share.prompt else share.tokens)]
    counts, kinds = [jnp.ones_like(share.tokens)], ["head"]
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
        counts += [group.count + 0.0 * share.tokens] * len(parts)
    return works, counts, kinds


def _times(
    works: list[Work], kinds: list[str], model: Model, accelerator: Accelerator
) -> tuple[Array, Array]:
    """(arithmetic, memory) seconds of each operation group, on a last axis."""
    precision, extra = model.precision, accelerator.efficiencies
    peaks, shares = [], []
    for kind in kinds:
        bits = precision.attention_bits if kind == "attention" else precision.compute_bits
        peaks.append(accelerator.peak.at(bits) * getattr(extra, f"{kind}_arithmetic"))
        shares.append(getattr(extra, f"{kind}_memory"))
    peak = accelerator.arithmetic_efficiency * jnp.stack(peaks)
    rate = accelerator.hbm_bandwidth * accelerator.memory_efficiency * jnp.stack(shares)
    flop = jnp.stack(jnp.broadcast_arrays(*(w.flop for w in works)), axis=-1)
    traffic = jnp.stack(jnp.broadcast_arrays(*(w.bytes for w in works)), axis=-1)
    return flop / peak, traffic / rate
