"""Preset `Serving`: what engineers deploy. Tensor and pipeline parallelism, real precisions."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic, Scalar, scalar
from ..cost._serving_memory import Ledger, activation_bytes, buffer_bytes, cache_bytes, weight_bytes
from ..cost._serving_step import Engine, pass_time
from ..cost._step import StepTime
from ..specs import Accelerator, Layout, Model, Speculation, Workload
from ._base import Family, Scenario, expected_tokens
from ._legal import largest_tensor, pipeline_degrees, stage_obstacle, tensor_degrees, tensor_obstacle


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

    Raises:
        InputError: for an acceptance or overlap outside 0 to 1, a reserve outside [0, 1), a negative
            overhead or an imbalance below 1.
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
    ) -> None:
        if not 0.0 <= float(reserve) < 1.0:
            raise InputError(f"reserve is a share of memory from 0 up to 1, got {reserve}")
        if speculation is not None and not 0.0 <= float(speculation.acceptance) <= 1.0:
            raise InputError(f"acceptance must lie between 0 and 1, got {speculation.acceptance}")
        if not 0.0 <= float(overlap) <= 1.0:
            raise InputError(f"overlap is a share of communication from 0 to 1, got {overlap}")
        if not float(expert_imbalance) >= 1.0:
            raise InputError(f"expert_imbalance is a ratio of at least 1, got {expert_imbalance}")
        profile = accelerator.engine
        if kernels_per_layer is None:
            kernels_per_layer = 4.0 if profile is None else profile.kernels_per_layer
        if engine_overhead is None:
            engine_overhead = 0.0 if profile is None else profile.step_overhead
        elif not float(engine_overhead) >= 0.0:
            raise InputError(f"engine_overhead is a time in seconds, got {engine_overhead}")
        self.model = model
        self.accelerator = accelerator
        self.workload = workload
        self.speculation = speculation
        self.reserve = scalar(reserve)
        self.kernels_per_layer = scalar(kernels_per_layer)
        self.engine_overhead = scalar(engine_overhead)
        self.overlap = scalar(overlap)
        self.expert_imbalance = scalar(expert_imbalance)

    def tokens_per_step(self, layout: Layout) -> Array:
        """1, or (1 - alpha^(gamma+1))/(1 - alpha) with gamma drafted tokens."""
        if self.speculation is None:
            return jnp.ones_like(layout.draft_tokens)
        return expected_tokens(self.speculation.acceptance, layout.draft_tokens)

    def step_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        """T_target(q = gamma + 1) + gamma T_draft(q = 1), the draft on the same accelerators."""
        layout = broadcast(layout)
        gamma = layout.draft_tokens
        time = self._pass(self.model, gamma + 1.0, layout, arithmetic)
        parts = [time.arithmetic, time.memory, time.network_bandwidth, time.network_latency]
        launch, total = time.launch + self.engine_overhead, time.total + self.engine_overhead
        if self.speculation is None:
            return StepTime(*parts, launch, total)
        draft = self._pass(self.speculation.draft, jnp.ones_like(gamma), layout, arithmetic)
        extra = [draft.arithmetic, draft.memory, draft.network_bandwidth, draft.network_latency]
        parts = [a + gamma * b for a, b in zip(parts, extra, strict=True)]
        return StepTime(*parts, launch + gamma * draft.launch, total + gamma * draft.total)

    def _pass(self, model: Model, queries: Array, layout: Layout, arithmetic: Arithmetic) -> StepTime:
        return pass_time(
            model,
            self.accelerator,
            self.workload.context,
            queries,
            layout,
            Engine(self.kernels_per_layer, self.overlap, self.expert_imbalance, self.accelerator.engine),
            arithmetic,
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
            activation_bytes(self.model, queries, layout, arithmetic),
            buffer_bytes(self.model, queries, layout, self.expert_imbalance, arithmetic),
            self.reserve * self.accelerator.hbm_size + jnp.zeros_like(layout.batch),
            self.accelerator.hbm_size + jnp.zeros_like(layout.batch),
        )

    def least_batch(self, layout: Layout) -> Array:
        """One sequence for every data rank of every stage."""
        return jnp.maximum(layout.pipeline * layout.data, 1.0)

    def memory_margin(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        return self.ledger(layout, arithmetic).margin

    def degrees(self, max_accelerators: int) -> tuple[Layout, ...]:
        """Tensor degrees that divide heads, hidden widths and blocks; stages that divide layers.

        A drafting layout has one pipeline stage, as the engines require.
        """
        rows = []
        longest = 0 if self.speculation is None else self.speculation.max_draft_tokens
        draft = None if self.speculation is None else self.speculation.draft
        drafted = set() if draft is None else set(tensor_degrees(draft, max_accelerators))
        for tensor in tensor_degrees(self.model, max_accelerators):
            for stages in pipeline_degrees(self.model, max_accelerators // tensor):
                if draft is not None and tensor not in drafted:
                    continue
                for gamma in range(0, (longest if stages == 1 else 0) + 1):
                    rows.append((tensor, stages, gamma))
        table = np.asarray(rows, dtype=np.float64).reshape(-1, 3)
        tensor_, stages_, gamma_ = (jnp.asarray(c) for c in table.T)
        one = jnp.ones_like(tensor_)
        return (Layout(tensor_, stages_, one, one, stages_, gamma_),)

    def families(self, max_accelerators: Array) -> tuple[Family, ...]:
        """Stages without drafting, and drafting on a single stage; real tensor degrees."""
        one, none = jnp.ones(()), jnp.zeros(())
        high = jnp.minimum(largest_tensor(self.model), max_accelerators)
        plain = Family(high, one, self.model.layers, none, none, False, False)
        if self.speculation is None:
            return (plain,)
        high = jnp.minimum(high, largest_tensor(self.speculation.draft))
        plain = Family(high, one, self.model.layers, none, none, False, False)
        longest = jnp.asarray(float(self.speculation.max_draft_tokens))
        return plain, Family(high, one, one, none, longest, True, True)


def broadcast(layout: Layout) -> Layout:
    """The same layout with all fields of one shape."""
    fields = jnp.broadcast_arrays(
        layout.tensor, layout.pipeline, layout.expert, layout.data, layout.batch, layout.draft_tokens
    )
    return Layout(*fields, nodes=layout.nodes, partition=layout.partition)


def why_illegal(scenario: Serving, layout: Layout) -> str | None:
    """What an engine would object to in an integer layout; None where it accepts it."""
    tensor, stages, draft = int(layout.tensor), int(layout.pipeline), int(layout.draft_tokens)
    speculation = scenario.speculation
    reason = tensor_obstacle(scenario.model, tensor) or stage_obstacle(scenario.model, stages)
    if reason is None and float(layout.batch) < stages:
        reason = f"a batch of {int(layout.batch)} does not fill {stages} pipeline stages"
    if reason is None and draft and speculation is None:
        reason = "tokens are drafted without a draft model"
    if reason is None and draft and stages > 1:
        reason = "speculative decoding needs a single pipeline stage"
    if reason is None and speculation is not None:
        reason = tensor_obstacle(speculation.draft, tensor)
    return reason
