"""Preset `Erdil2025`: the paper's equations in both revisions."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic, Scalar, geometric_sum, optional_scalar
from ..cost import _erdil_may, _erdil_september
from ..cost._erdil_model import ErdilModel
from ..cost._step import StepTime
from ..specs import Accelerator, Layout, Model, Workload
from ._base import Family, Scenario
from ._fields import accelerator_from_fields, model_from_fields
from ._homogeneous import as_erdil_model

PIPELINES = (1.0, 2.0, 4.0, 6.0)
REVISIONS = ("2024-09", "2025-05")
_NEAR = 1.0 + 1e-3


class Erdil2025(Scenario):
    """The paper's model of serving (arXiv:2506.04645); degrees and batch may be real.

    `model` may be a `Model` whose layers are all alike. The draft of speculative decoding
    takes no memory, as in the paper.
    """

    model: ErdilModel
    accelerator: Accelerator
    workload: Workload
    draft: ErdilModel | None
    acceptance: Scalar | None
    tokens_per_sequence: Scalar
    gamma_max: int = eqx.field(static=True)
    revision: str = eqx.field(static=True)

    def __init__(
        self,
        model: Model | ErdilModel,
        accelerator: Accelerator,
        workload: Workload,
        *,
        draft: Model | ErdilModel | None = None,
        acceptance: float | None = None,
        gamma_max: int = 0,
        tokens_per_step: float = 1.0,
        revision: str = "2024-09",
    ) -> None:
        if revision not in REVISIONS:
            raise InputError(f"revision must be one of {', '.join(REVISIONS)}, got {revision!r}")
        if (draft is None) != (acceptance is None):
            raise InputError("speculative decoding needs both draft and acceptance")
        if acceptance is not None and not 0.0 <= float(acceptance) <= 1.0:
            raise InputError(f"acceptance must lie between 0 and 1, got {acceptance}")
        if isinstance(gamma_max, bool) or int(gamma_max) != gamma_max or gamma_max < 0:
            raise InputError(f"gamma_max must be a whole number of at least 0, got {gamma_max}")
        self.model = as_erdil_model(model)
        self.accelerator = accelerator
        self.workload = workload
        self.draft = None if draft is None else as_erdil_model(draft)
        self.acceptance = optional_scalar(acceptance)
        self.tokens_per_sequence = jnp.asarray(tokens_per_step, jnp.float64)
        self.gamma_max = int(gamma_max) if draft is not None else 0
        self.revision = revision

    @classmethod
    def from_fields(
        cls,
        model: Mapping[str, Any],
        accelerator: Mapping[str, Any],
        *,
        context: float,
        tokens_per_step: float = 1,
        draft: Mapping[str, Any] | None = None,
        acceptance: float | None = None,
        gamma_max: int = 0,
        demand: float | None = None,
        revision: str = "2024-09",
    ) -> "Erdil2025":
        """A scenario from two dictionaries with the keys of the paper's tables.

        Raises:
            InputError: for a missing, unknown or absurd entry.
        """
        target = model_from_fields(model)
        return cls(
            target,
            accelerator_from_fields(accelerator, target.compute_bits),
            Workload(context=context, output=1.0, demand=demand),
            draft=None if draft is None else model_from_fields(draft),
            acceptance=acceptance,
            gamma_max=gamma_max,
            tokens_per_step=tokens_per_step,
            revision=revision,
        )

    # Speed and cost of a layout.

    def tokens_per_step(self, layout: Layout) -> Array:
        """1 without drafting; else (1 - alpha^k)/(1 - alpha), k = gamma + 1 (gamma in 2025-05)."""
        if self.acceptance is None:
            return jnp.ones_like(layout.draft_tokens)
        return self.tokens_gained(layout.draft_tokens)

    def tokens_gained(self, gamma: Array) -> Array:
        """Expected tokens of a step with so many drafted ones."""
        assert self.acceptance is not None
        return geometric_sum(self.acceptance, self.verified_tokens(gamma))

    def verified_tokens(self, gamma: Array) -> Array:
        """Tokens that one sequence brings to a verifying pass."""
        if self.revision == "2024-09":
            return gamma + 1.0
        return jnp.maximum(gamma, 1.0)

    def step_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        """T_target(q) + gamma T_draft(1); the draft runs in its own best structure."""
        return self._step_time(layout, jnp.asarray(layout.partition == "2d"), arithmetic)

    def speed_among(self, layout: Layout, two_d: Array, draft_time: Array | None = None) -> Array:
        """Exact speed of layouts in 2-D where `two_d`, in 1-D elsewhere, in one evaluation of the equations.

        `draft_time` states the seconds of a drafted token where they are known.
        """
        time = self.target_time(layout, two_d).total
        if self.draft is not None:
            draft_time = self.draft_time(layout).total if draft_time is None else draft_time
            time = time + layout.draft_tokens * draft_time
        return self.tokens_per_step(layout) / time

    def _step_time(self, layout: Layout, two_d: Array, arithmetic: Arithmetic) -> StepTime:
        time = self.target_time(layout, two_d, arithmetic)
        if self.draft is None:
            return StepTime(*jnp.broadcast_arrays(*_parts(time)))
        gamma, extra = layout.draft_tokens, self.draft_time(layout, arithmetic=arithmetic)
        parts = [a + gamma * b for a, b in zip(_parts(time), _parts(extra), strict=True)]
        return StepTime(*jnp.broadcast_arrays(*parts))

    def target_time(self, layout: Layout, two_d: Array, arithmetic: Arithmetic = EXACT) -> StepTime:
        """T_target(q): seconds of the pass that verifies drafted tokens, or of a plain one."""
        queries = self.tokens_per_sequence * self.verified_tokens(layout.draft_tokens)
        structure = (layout.pipeline, two_d, jnp.ones(()))
        at = (layout.accelerators, layout.batch, *structure)
        return self._structured(self.model, queries, *at, arithmetic, layout.nodes)

    # The draft runs in a structure of its own, whatever the partition of the layout.

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Whole numbers of drafted tokens; only 0 without a draft."""
        first = 0 if self.revision == "2024-09" else min(2, self.gamma_max)
        return tuple(range(first, self.gamma_max + 1))

    def draft_time(
        self, layout: Layout, structure: Array | None = None, arithmetic: Arithmetic = EXACT
    ) -> StepTime:
        """Seconds of a drafted token, in the quickest structure or in one from `draft_structure`."""
        assert self.draft is not None
        n, batch = layout.accelerators, layout.batch
        if structure is None:
            return self._best(self.draft, self.tokens_per_sequence, n, batch, arithmetic)
        given = (_taken(x, structure) for x in self._structures(n))
        return self._structured(self.draft, self.tokens_per_sequence, n, batch, *given, arithmetic)

    def draft_structure(self, layout: Layout) -> Array:
        """The index of the draft's quickest structure, of those that a hair more would make legal."""
        assert self.draft is not None
        n, batch = jnp.broadcast_arrays(layout.accelerators, layout.batch)
        # Structures are the first axis, so that the reductions take vector instructions.
        pipeline, two_d, scale = (
            jnp.moveaxis(jnp.broadcast_to(x, (*n.shape, x.shape[-1])), -1, 0) for x in self._structures(n)
        )
        given = (self.tokens_per_sequence, n, batch, pipeline, two_d, scale)
        total = self._structured(self.draft, *given, EXACT).total
        total = jnp.where(self._legal(pipeline, n, batch, _NEAR), total, jnp.inf)
        number = jnp.arange(len(total)).reshape(-1, *[1] * n.ndim)
        return jnp.min(jnp.where(total == jnp.min(total, axis=0), number, len(total)), axis=0)

    def _legal(self, pipeline: Array, n: Array, batch: Array, near: float = 1.0) -> Array:
        """Whether accelerators and sequences, or a hair more of them, fill every stage."""
        return (pipeline <= near * jnp.minimum(n, batch)) | (self.revision == "2025-05")

    @property
    def pipelines(self) -> tuple[float, ...]:
        """Pipeline degrees that a model, or its draft, may have."""
        return PIPELINES if self.revision == "2024-09" else (1.0,)

    def draft_pipeline(self, structure: Array) -> Array:
        """The pipeline degree of a structure from `draft_structure`."""
        return _taken(self._structures(jnp.ones(()))[0], structure)

    def memory_margin(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """HBM size - (kv(b) + w params)/N, bytes per accelerator."""
        need = self.model.kv_cache_bytes(self.workload.context) * layout.batch
        need = need + self.model.weight_bytes * self.model.total_parameters
        return self.accelerator.hbm_size - need / layout.accelerators

    def degrees(self, max_accelerators: int) -> tuple[Layout, ...]:
        """Whole tensor degrees; pipeline 1, 2, 4 or 6 (1 in 2025-05); 1-D and 2-D."""
        rows = [
            (float(m), p, float(g))
            for p in self.pipelines
            for m in range(1, int(max_accelerators // p) + 1)
            for g in self.draft_lengths
        ]
        t, p, g = (jnp.asarray(c) for c in np.asarray(rows, float).reshape(-1, 3).T)
        one = jnp.ones_like(t)
        return tuple(Layout(t, p, one, one, p, g, partition=kind) for kind in ("1d", "2d"))

    def families(self, max_accelerators: Array) -> tuple[Family, ...]:
        """Each pipeline degree in 1-D and in 2-D; the tensor degree is real."""
        first, last = (jnp.asarray(float(self.draft_lengths[i])) for i in (0, -1))
        return tuple(
            Family(
                tensor_high=max_accelerators / p,
                pipeline_low=jnp.asarray(p),
                pipeline_high=jnp.asarray(p),
                draft_low=first,
                draft_high=last,
                fixed_pipeline=True,
                drafted=self.draft is not None,
                partition=kind,
            )
            for kind in ("1d", "2d")
            for p in self.pipelines
        )

    # The paper's own search, over real N and batch.

    def best_step_time(self, n: Any, batch: Any) -> Array:
        """Seconds of the step by the paper's search over structures; inf where infeasible.

        With a draft, the least over gamma of time per token gained is taken, and the step
        time returned is time per token: T/(tokens per step).
        """
        return self._search(*_points(n, batch))

    @eqx.filter_jit
    def _search(self, n: Array, batch: Array) -> Array:
        if self.draft is None:
            total = self._best(self.model, self.tokens_per_sequence, n, batch, EXACT).total
        else:
            total = self._best_speculative(n, batch)
        return self._feasible(n, batch, total)

    def section35_step_time(self, n: Any, batch: Any) -> Array:
        """Seconds in the 2-D, one-stage case of section 3.5; inf where infeasible."""
        return self._section35(*_points(n, batch))

    @eqx.filter_jit
    def _section35(self, n: Array, batch: Array) -> Array:
        one = jnp.ones_like(n)
        time = self._structured(self.model, self.tokens_per_sequence, n, batch, one, one > 0, one, EXACT)
        return self._feasible(n, batch, time.total)

    def unscaled_step_time(self, n: Any, batch: Any) -> Array:
        """Seconds with attention scale-down 1 (2025-05), the better of 1-D and 2-D."""
        return self._unscaled(*_points(n, batch))

    @eqx.filter_jit
    def _unscaled(self, n: Array, batch: Array) -> Array:
        two_d = jnp.asarray([True, False])
        n1, b1 = n[..., None], batch[..., None]
        one = jnp.ones_like(n1) * jnp.ones(2)
        time = self._structured(
            self.model, self.tokens_per_sequence, n1 * one, b1 * one, one, two_d & (one > 0), one, EXACT
        )
        return self._feasible(n, batch, jnp.min(time.total, axis=-1))

    def _feasible(self, n: Array, batch: Array, total: Array) -> Array:
        margin = self.memory_margin(Layout(tensor=n, batch=batch))
        return jnp.where((margin >= 0.0) & jnp.isfinite(total), total, jnp.inf)

    def _best_speculative(self, n: Array, batch: Array) -> Array:
        assert self.draft is not None
        draft = self._best(self.draft, self.tokens_per_sequence, n, batch, EXACT).total
        gamma = jnp.asarray(self.draft_lengths, jnp.float64)
        queries = self.tokens_per_sequence * self.verified_tokens(gamma)
        target = self._best(self.model, queries, n[..., None], batch[..., None], EXACT).total
        gained = self.tokens_per_step(Layout(draft_tokens=gamma))
        return jnp.min((target + gamma * draft[..., None]) / gained, axis=-1)

    def _best(
        self, model: ErdilModel, queries: Array, n: Array, batch: Array, arithmetic: Arithmetic
    ) -> StepTime:
        """The quickest structure at each point; structures are a last axis, then chosen."""
        n, batch, queries = (jnp.asarray(x)[..., None] for x in (n, batch, queries))
        structure = self._structures(n[..., 0])
        time = self._structured(model, queries, n, batch, *structure, arithmetic)
        total = jnp.where(self._legal(structure[0], n, batch), time.total, jnp.inf)
        choice = jnp.argmin(total, axis=-1, keepdims=True)
        parts = [jnp.broadcast_to(x, total.shape) for x in (*_parts(time)[:-1], total)]
        return StepTime(*(jnp.take_along_axis(x, choice, -1)[..., 0] for x in parts))

    def _structures(self, n: Array) -> tuple[Array, Array, Array]:
        """Pipeline degree, whether 2-D, and attention scale-down of every structure (last axis)."""
        if self.revision == "2024-09":
            return jnp.asarray(PIPELINES * 2), jnp.asarray([True] * 4 + [False] * 4), jnp.ones(8)
        scale = jnp.maximum(n[..., None], 1.0) ** jnp.linspace(0.0, 1.0, 6)
        return jnp.ones(12), jnp.asarray([True] * 6 + [False] * 6), jnp.concatenate([scale] * 2, axis=-1)

    def _structured(
        self,
        model: ErdilModel,
        queries: Array,
        n: Array,
        batch: Array,
        pipeline: Array,
        two_d: Array,
        scale_down: Array,
        arithmetic: Arithmetic,
        nodes: Array | None = None,
    ) -> StepTime:
        context = self.workload.context
        if self.revision == "2024-09":
            return _erdil_september.step_time(
                model, self.accelerator, context, queries, n, batch, pipeline, two_d, arithmetic, nodes
            )
        every = (queries, n, batch, pipeline, two_d, scale_down)
        if nodes is not None:
            nodes = jnp.broadcast_to(nodes, jnp.broadcast_shapes(*(jnp.shape(x) for x in every)))
        wide = jnp.broadcast_arrays(*every)
        return _erdil_may.step_time(model, self.accelerator, context, *wide, arithmetic, nodes)


def _points(n: Any, batch: Any) -> tuple[Array, Array]:
    n, batch = jnp.asarray(n, jnp.float64), jnp.asarray(batch, jnp.float64)
    n, batch = jnp.broadcast_arrays(n, batch)
    return n, batch


def _taken(x: Array, index: Array) -> Array:
    """Entries of the last axis; a gather would take no vector instructions."""
    chosen = x[..., 0]
    for i in range(1, x.shape[-1]):
        chosen = jnp.where(index == i, x[..., i], chosen)
    return chosen


def _parts(time: StepTime) -> tuple[Array, ...]:
    return (
        time.arithmetic,
        time.memory,
        time.network_bandwidth,
        time.network_latency,
        time.launch,
        time.total,
    )
