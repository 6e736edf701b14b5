"""Preset `Serving`: what engineers deploy. Tensor and pipeline parallelism, real precisions."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic, Scalar, optional_scalar, scalar
from ..cost._interference import prompt_delay, token_work
from ..cost._serving_memory import Ledger, activation_bytes, buffer_bytes, cache_bytes, weight_bytes
from ..cost._serving_network import taken
from ..cost._serving_step import Engine, pass_messages, pass_time
from ..cost._step import StepTime
from ..specs import Accelerator, Layout, Model, Speculation, Workload
from ._base import Family, Scenario
from ._legal import draft_obstacle, pipeline_degrees, pipeline_obstacle, stage_degrees, stage_obstacle
from ._serving_families import serving_families


class Serving(Scenario):
    """A model served with tensor and pipeline parallelism and optional speculative decoding.

    Args:
        model: the served model.
        accelerator: what it runs on.
        workload: context, output and demand.
        speculation: the draft model, its acceptance and the longest draft; None without.
        reserve: share of memory kept for the runtime, fragmentation and buffers.
        kernels_per_layer: launches per layer and pass; the fitted engine's where the accelerator
            has one, else 4 (as the paper counts).
        engine_overhead: seconds per step outside the accelerator's work; likewise, else 0.
        overlap: share of communication that proceeds beside the accelerator's work, from 0 (the
            paper) to 1.
        expert_imbalance: tokens on the busiest expert group over the mean, at least 1.
        chunk_tokens: tokens of a prompt that enter a step beside decoding (chunked prefill); None
            where prompts are ingested elsewhere, by replicas of their own.

    Raises:
        InputError: for an overlap outside 0 to 1, a reserve outside [0, 1), a negative overhead, an
            imbalance below 1 or chunks of less than a token.
    """

    model: Model
    accelerator: Accelerator
    workload: Workload
    speculation: Speculation | None
    reserve: Scalar
    kernels_per_layer: Scalar
    engine_overhead: Scalar
    """Seconds per step spent outside the accelerator's work."""
    overlap: Scalar
    expert_imbalance: Scalar
    chunk_tokens: Scalar | None

    def __init__(
        self,
        model: Model,
        accelerator: Accelerator,
        workload: Workload,
        *,
        speculation: Speculation | None = None,
        reserve: float = 0.1,
        kernels_per_layer: float | None = None,
        engine_overhead: float | None = None,
        overlap: float = 0.0,
        expert_imbalance: float = 1.0,
        chunk_tokens: float | None = None,
    ) -> None:
        if not 0.0 <= float(reserve) < 1.0:
            raise InputError(f"reserve is a share of memory from 0 up to 1, got {reserve}")
        if chunk_tokens is not None and not float(chunk_tokens) >= 1.0:
            raise InputError(f"chunk_tokens is a number of tokens of at least 1, got {chunk_tokens}")
        if not 0.0 <= float(overlap) <= 1.0:
            raise InputError(f"overlap is a share of communication from 0 to 1, got {overlap}")
        if not float(expert_imbalance) >= 1.0:
            raise InputError(f"expert_imbalance is a ratio of at least 1, got {expert_imbalance}")
        profile = accelerator.engine
        own = (4.0, 0.0) if profile is None else (profile.kernels_per_layer, profile.step_overhead)
        if engine_overhead is not None and not float(engine_overhead) >= 0.0:
            raise InputError(f"engine_overhead is a time in seconds, got {engine_overhead}")
        self.model = model
        self.accelerator = accelerator
        self.workload = workload
        self.speculation = speculation
        self.reserve = scalar(reserve)
        self.kernels_per_layer = scalar(own[0] if kernels_per_layer is None else kernels_per_layer)
        self.engine_overhead = scalar(own[1] if engine_overhead is None else engine_overhead)
        self.overlap = scalar(overlap)
        self.expert_imbalance = scalar(expert_imbalance)
        self.chunk_tokens = optional_scalar(chunk_tokens)

    def tokens_per_step(self, layout: Layout) -> Array:
        """1, or what `Speculation.tokens_per_step` expects of the drafted tokens."""
        if self.speculation is None:
            return jnp.ones_like(layout.draft_tokens)
        return self.speculation.tokens_per_step(layout.draft_tokens)

    def step_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        """Seconds of a decode step and, where the replica ingests prompts, of those in between.

        Each of b sequences brings one prompt every `output` tokens, so that a step of n tokens a
        sequence takes T_decode + b n T_prompt/output; with a fitted engine, as it schedules prompts
        (`prompt_delay`).
        """
        layout = broadcast(layout)
        return self.with_prompts(layout, self.decode_time(layout, arithmetic), arithmetic)

    def with_prompts(
        self, layout: Layout, time: StepTime, arithmetic: Arithmetic = EXACT, ingest: Array | None = None
    ) -> StepTime:
        """`step_time` at a known `decode_time` and, where it is at hand, `prompt_pass`."""
        if self.chunk_tokens is None:
            return time
        tokens = self.tokens_per_step(layout)
        if self.accelerator.engine is None:
            ingest = self.prompt_pass(layout, arithmetic) if ingest is None else ingest
            each = ingest / (layout.pipeline * layout.data)
            prompts = layout.batch * tokens / self.workload.output * each
        else:
            prompts = tokens * self._prompt_delay(layout, arithmetic)
        return eqx.tree_at(lambda t: (t.total, t.prompts), time, (time.total + prompts, prompts))

    def decode_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        """T_target(q = gamma + 1) + gamma T_draft(q = 1), the draft on the same accelerators."""
        layout = broadcast(layout)
        gamma, context = layout.draft_tokens, self.workload.context
        time = self._pass(self.model, context, gamma + 1.0, layout, arithmetic)
        parts = [time.arithmetic, time.memory, time.network_bandwidth, time.network_latency]
        launch, total = time.launch + self.engine_overhead, time.total + self.engine_overhead
        if self.speculation is not None:
            draft = self._pass(self.speculation.draft, context, jnp.ones_like(gamma), layout, arithmetic)
            extra = [draft.arithmetic, draft.memory, draft.network_bandwidth, draft.network_latency]
            parts = [a + gamma * b for a, b in zip(parts, extra, strict=True)]
            launch, total = launch + gamma * draft.launch, total + gamma * draft.total
        return StepTime(*parts, launch, total, jnp.zeros_like(total))

    def _prompt_delay(self, layout: Layout, arithmetic: Arithmetic) -> Array:
        work = token_work(
            self.model,
            self.accelerator,
            self.workload,
            layout,
            self.chunk_tokens,
            self.expert_imbalance,
            arithmetic,
        )
        return prompt_delay(work, self.accelerator, self._engine, self.engine_overhead, arithmetic)

    @property
    def _engine(self) -> Engine:
        return Engine(self.kernels_per_layer, self.overlap, self.expert_imbalance, self.accelerator.engine)

    def collectives(self, layout: Layout) -> dict[str, Array]:
        """The number of the algorithm taken for each message of a decode step (`cost` names them)."""
        layout = broadcast(layout)
        queries = layout.draft_tokens + 1.0
        sent = pass_messages(
            self.model, self.accelerator, self.workload.context, queries, layout, self.expert_imbalance
        )
        return taken(sent, self.accelerator.network)

    def prompt_pass(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """Seconds to ingest one prompt on every data rank of every stage, by the draft too.

        The tokens that no earlier request has left in the cache, at least one, in a single pass.
        """
        layout = broadcast(layout)
        layout = eqx.tree_at(lambda x: x.batch, layout, layout.pipeline * layout.data)
        cached = self.workload.prompt_tokens * self.workload.hit_rate
        new = self._uncached(arithmetic) + 0.0 * layout.batch
        models = [self.model] + ([] if self.speculation is None else [self.speculation.draft])
        times = [self._pass(m, cached, new, layout, arithmetic, prompt=True).total for m in models]
        return sum(times, start=self.engine_overhead)

    def prompt_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """Seconds of the whole replica that one prompt takes."""
        return self.prompt_pass(layout, arithmetic) / (layout.pipeline * layout.data)

    def time_to_first_token(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """Seconds from a prompt's turn to its first token; a decode step goes with every chunk."""
        first = self.prompt_pass(layout, arithmetic)
        if self.chunk_tokens is None:
            return first
        return self.first_token(first, self.decode_time(layout, arithmetic), arithmetic)

    def first_token(self, ingest: Array, time: StepTime, arithmetic: Arithmetic = EXACT) -> Array:
        """`time_to_first_token` at a known `prompt_pass` and `decode_time`."""
        if self.chunk_tokens is None:
            return ingest
        return ingest + arithmetic.ceil(self._uncached(arithmetic) / self.chunk_tokens) * time.total

    def _pass(
        self,
        model: Model,
        context: Array,
        queries: Array,
        layout: Layout,
        arithmetic: Arithmetic,
        prompt: bool = False,
    ) -> StepTime:
        return pass_time(
            model,
            self.accelerator,
            context,
            queries,
            layout,
            self._engine,
            arithmetic,
            prompt=prompt,
        )

    def ledger(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Ledger:
        """Bytes on the fullest accelerator: the whole batch at full context."""
        layout = broadcast(layout)
        full = self.workload.full_context + 0.0 * layout.batch
        draft, queries = jnp.zeros_like(layout.batch), layout.draft_tokens + 1.0
        if self.speculation is not None:
            model = self.speculation.draft
            draft = weight_bytes(model, layout, arithmetic)
            draft = draft + cache_bytes(model, full, layout, arithmetic)
        return Ledger(
            weight_bytes(self.model, layout, arithmetic),
            cache_bytes(self.model, full, layout, arithmetic),
            draft,
            activation_bytes(self.model, queries, self._chunk(arithmetic), layout, arithmetic),
            buffer_bytes(self.model, queries, layout, self.expert_imbalance, arithmetic),
            self.reserve * self.accelerator.hbm_size + jnp.zeros_like(layout.batch),
            self.accelerator.hbm_size + jnp.zeros_like(layout.batch),
        )

    def least_batch(self, layout: Layout) -> Array:
        """One sequence for every data rank of every stage."""
        return jnp.maximum(layout.pipeline * layout.data, 1.0)

    def _uncached(self, arithmetic: Arithmetic) -> Array:
        """Tokens of a prompt that have to be computed, at least the last."""
        tokens = self.workload.prompt_tokens
        return arithmetic.maximum(tokens * (1.0 - self.workload.hit_rate), jnp.ones(()))

    def _chunk(self, arithmetic: Arithmetic) -> Array:
        """Tokens of a prompt that are in flight on a data rank beside decoding."""
        if self.chunk_tokens is None:
            return jnp.zeros(())
        return arithmetic.minimum(self.chunk_tokens, self._uncached(arithmetic))

    def memory_margin(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        return self.ledger(layout, arithmetic).margin

    def degrees(self, max_accelerators: int) -> tuple[Layout, ...]:
        """Every set of degrees that some engine accepts for the model and its draft, at batch 1.

        Stages divide the layers evenly. A drafting layout has one pipeline stage, as the engines
        require.
        """
        speculation = self.speculation
        across = stage_degrees(self.model, max_accelerators)
        if speculation is not None:
            fits = [draft_obstacle(speculation.draft, *map(int, row)) is None for row in across]
            across = across[np.asarray(fits, dtype=bool)]
        longest = 0 if speculation is None else speculation.max_draft_tokens
        tables = [np.empty((0, 5))]
        for stages in pipeline_degrees(self.model, max_accelerators):
            rows = across[across[:, 0] * across[:, 1] * stages <= max_accelerators]
            for gamma in range(0, (longest if stages == 1 else 0) + 1):
                rest = np.broadcast_to([float(stages), float(gamma)], (len(rows), 2))
                tables.append(np.concatenate([rows, rest], axis=1))
        table = np.concatenate(tables)
        table = table[np.lexsort(table[:, (4, 2, 1, 3, 0)].T)]
        tensor, data, expert, stages_, gamma_ = np.ascontiguousarray(table.T)
        return (Layout(tensor, stages_, expert, data, stages_ * data, gamma_),)

    def families(self, max_accelerators: Array) -> tuple[Family, ...]:
        """Stages without drafting, and drafting on a single stage; see `serving_families`."""
        if self.speculation is None:
            return serving_families((self.model,), max_accelerators, self.model.layers, None)
        models = (self.model, self.speculation.draft)
        longest = jnp.asarray(float(self.speculation.max_draft_tokens))
        plain = serving_families(models, max_accelerators, self.model.layers, None)
        return plain + serving_families(models, max_accelerators, None, longest)


def broadcast(layout: Layout) -> Layout:
    """The same layout with all fields of one shape."""
    fields = jnp.broadcast_arrays(
        layout.tensor, layout.pipeline, layout.expert, layout.data, layout.batch, layout.draft_tokens
    )
    return Layout(*fields, nodes=layout.nodes, partition=layout.partition)


def why_illegal(scenario: Serving, layout: Layout) -> str | None:
    """What an engine would object to in an integer layout; None where it accepts it."""
    tensor, data, expert = int(layout.tensor), int(layout.data), int(layout.expert)
    stages, draft = int(layout.pipeline), int(layout.draft_tokens)
    speculation = scenario.speculation
    reason = stage_obstacle(scenario.model, tensor, data, expert)
    if reason is None:
        reason = pipeline_obstacle(scenario.model, stages)
    if reason is None and float(layout.batch) < stages * data:
        what = f"{stages} pipeline stages" + (f" of {data} data ranks" if data > 1 else "")
        reason = f"a batch of {int(layout.batch)} does not fill {what}"
    if reason is None and draft and speculation is None:
        reason = "tokens are drafted without a draft model"
    if reason is None and draft and stages > 1:
        reason = "speculative decoding needs a single pipeline stage"
    if reason is None and speculation is not None:
        reason = draft_obstacle(speculation.draft, tensor, data, expert)
    return reason
