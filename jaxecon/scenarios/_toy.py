"""Preset `Toy`: infinite network bandwidth, all-reduce latency growing as sqrt(N)."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT, Arithmetic, Scalar, safe_sqrt, scalar
from ..cost._erdil_model import ErdilModel
from ..cost._step import StepTime
from ..specs import Accelerator, Layout, Model, Workload
from ._base import Family, Scenario
from ._fields import accelerator_from_fields, model_from_fields
from ._homogeneous import as_erdil_model


class Toy(Scenario):
    """T(N) = L R (hop max(sqrt(N) - 1, 0) + base) + max(w params/(N B), 2 params b/(N peak)).

    One token per sequence and step; `params` are all parameters, also of sparse models.

    R = 4 all-reduces a layer, 2 with parallel attention. The paper has hop 2e-6 s and base 6e-6 s;
    with base = hop the latency is L R hop sqrt(N) from N = 1 on, where the optimum has a closed
    form: N* = (2W/(B L g))^(2/3), T* = (2^(1/3) + 2^(-2/3)) (L g)^(2/3) (W/B)^(1/3), with W bytes
    of weights and g = R hop. Source: Erdil 2025, toy model.
    """

    model: ErdilModel
    accelerator: Accelerator
    workload: Workload
    hop_latency: Scalar
    """Seconds of an all-reduce per unit of sqrt(N) - 1."""
    base_latency: Scalar
    """Seconds of an all-reduce on one accelerator."""

    def __init__(
        self,
        model: Model | ErdilModel,
        accelerator: Accelerator,
        workload: Workload,
        *,
        hop_latency: float = 2e-6,
        base_latency: float = 6e-6,
    ) -> None:
        self.model = as_erdil_model(model)
        self.accelerator = accelerator
        self.workload = workload
        self.hop_latency = scalar(hop_latency)
        self.base_latency = scalar(base_latency)

    @classmethod
    def from_fields(
        cls,
        model: Mapping[str, Any],
        accelerator: Mapping[str, Any],
        *,
        context: float = 0.0,
        tokens_per_step: float = 1.0,
        draft: None = None,
        acceptance: None = None,
        gamma_max: int = 0,
        demand: float | None = None,
    ) -> "Toy":
        """A scenario from two dictionaries with the keys of the paper's tables.

        The toy model generates one token per sequence and step: `tokens_per_step` is accepted
        so that it can stand in for `Erdil2025`, and has no effect; a draft is refused.
        """
        if draft is not None or acceptance is not None or gamma_max:
            raise InputError("the toy model has no speculative decoding; use Erdil2025")
        target = model_from_fields(model)
        return cls(
            target,
            accelerator_from_fields(accelerator, target.compute_bits),
            Workload(context=context, output=1.0, demand=demand),
        )

    def tokens_per_step(self, layout: Layout) -> Array:
        """One."""
        return jnp.ones_like(layout.batch)

    def step_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        n, batch = jnp.broadcast_arrays(layout.accelerators, layout.batch)
        reduces = 2.0 if self.model.parallel_attention else 4.0
        hops = jnp.maximum(safe_sqrt(n) - 1.0, 0.0)
        latency = self.model.layers * reduces * (self.hop_latency * hops + self.base_latency)
        latency = latency * self.accelerator.network.library_latency
        weights = self.model.weight_bytes * self.model.total_parameters
        memory = weights / (n * self.accelerator.hbm_bandwidth)
        peak = self.accelerator.peak.at(self.model.compute_bits)
        flop_time = 2.0 * self.model.total_parameters * batch / (n * peak)
        zero = jnp.zeros_like(n)
        total = latency + arithmetic.maximum(memory, flop_time)
        return StepTime(flop_time, memory, zero, latency, zero, total)

    def best_step_time(self, n: Any, batch: Any) -> Array:
        """Seconds at N accelerators and batch b; arrays broadcast."""
        layout = Layout(tensor=jnp.asarray(n, float), batch=jnp.asarray(batch, float))
        fits = self.memory_margin(layout) >= 0.0
        return jnp.where(fits, self.step_time(layout).total, jnp.inf)

    def memory_margin(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """HBM size - (kv(b) + w params)/N, bytes per accelerator."""
        need = self.model.kv_cache_bytes(self.workload.context) * layout.batch
        need = need + self.model.weight_bytes * self.model.total_parameters
        return self.accelerator.hbm_size - need / layout.accelerators

    def degrees(self, max_accelerators: int) -> tuple[Layout, ...]:
        n = jnp.arange(1.0, max_accelerators + 1.0)
        one = jnp.ones_like(n)
        return (Layout(n, one, one, one, one, 0.0 * one),)

    def families(self, max_accelerators: Array) -> tuple[Family, ...]:
        """Any real number of accelerators."""
        one = jnp.ones(())
        return (Family(max_accelerators, one, one, 0.0 * one, 0.0 * one, True, False),)
