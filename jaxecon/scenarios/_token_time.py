"""Time between two tokens of one request, also where prompts are ingested beside decoding."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic
from ..cost._interference import chunks, prompt_delay
from ..cost._serving_step import Engine, PassWork, pass_work
from ..specs import Layout
from ._serving import Serving, broadcast


class TokenWork(eqx.Module):
    """A decode step and a chunk of another request's prompt, as work that knows no efficiency."""

    decode: PassWork
    chunk: PassWork
    passes: Array
    """Chunks of one prompt."""
    output: Array
    """Tokens generated per request."""


def token_work(scenario: Serving, layout: Layout, arithmetic: Arithmetic = EXACT) -> TokenWork:
    """The work behind one token: all sequences decode; one prompt at a time on every data rank.

    The prompt has context - output/2 tokens, what a sequence starts with.
    """
    layout, workload = broadcast(layout), scenario.workload
    model, accelerator, one = scenario.model, scenario.accelerator, jnp.ones_like(layout.batch)
    passes, tokens, before = chunks(jnp.maximum(workload.context - 0.5 * workload.output, 1.0) * one)
    decode = pass_work(
        model,
        accelerator,
        workload.context,
        layout.draft_tokens + one,
        layout,
        scenario.expert_imbalance,
        arithmetic,
    )
    alone = eqx.tree_at(lambda x: x.batch, layout, layout.pipeline * layout.data)
    chunk = pass_work(
        model, accelerator, before, tokens, alone, scenario.expert_imbalance, arithmetic, prompt=True
    )
    return TokenWork(decode, chunk, passes, workload.output * one)


def token_time(
    scenario: Serving, layout: Layout, arithmetic: Arithmetic = EXACT, *, aggregated: bool = True
) -> Array:
    """Seconds between two tokens of one request.

    `aggregated` replicas ingest the prompts of their requests themselves; others only decode.

    Raises:
        InputError: where an aggregated replica's accelerator has no engine profile, which says how
            prompts and decoding share it.
    """
    step = scenario.step_time(layout, arithmetic).total / scenario.tokens_per_step(layout)
    if not aggregated:
        return step
    profile = scenario.accelerator.engine
    if profile is None:
        raise InputError("prompts delay tokens as the engine schedules them; load the accelerator with engine=")
    work = token_work(scenario, layout, arithmetic)
    engine = Engine(scenario.kernels_per_layer, scenario.overlap, scenario.expert_imbalance, profile)
    delay = prompt_delay(
        work.decode,
        work.chunk,
        work.passes,
        work.output,
        scenario.accelerator,
        engine,
        scenario.engine_overhead,
        arithmetic,
    )
    return step + delay / scenario.tokens_per_step(layout)
