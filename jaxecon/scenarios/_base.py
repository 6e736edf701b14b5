"""The interface that every cost model has."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._numerics import EXACT, Arithmetic
from .._programs import array_program, program
from ..cost._step import StepTime
from ..specs import Accelerator, Layout, Workload


def _one() -> Array:
    return jnp.ones(())


def _zero() -> Array:
    return jnp.zeros(())


class Across(eqx.Module):
    """How one free degree sets those across a pipeline stage.

    The free degree counts tensor ranks beside `data` data ranks or, where `spread` is 1, data ranks
    beside `tensor` tensor ranks. The default is tensor parallelism alone.
    """

    tensor: Array = eqx.field(default_factory=_one)
    data: Array = eqx.field(default_factory=_one)
    spread: Array = eqx.field(default_factory=_zero)
    expert: Array = eqx.field(default_factory=_one)
    """Expert degree where `follow` is 0."""
    follow: Array = eqx.field(default_factory=_zero)
    """1 where the expert degree is the size of the stage, 0 where it is fixed."""

    @property
    def fixed(self) -> Array:
        """Accelerators of a stage where the free degree is 1."""
        return self.tensor * self.data

    def log_data(self, log_free: Array) -> Array:
        """ln of the data degree at ln of the free degree."""
        return jnp.log(self.data) + self.spread * log_free

    def degrees(self, log_free: Array) -> tuple[Array, Array, Array]:
        """(tensor, data, expert) at ln of the free degree."""
        tensor = self.tensor * jnp.exp((1.0 - self.spread) * log_free)
        data = self.data * jnp.exp(self.spread * log_free)
        stage = jnp.exp(self.follow * (jnp.log(self.fixed) + log_free))
        return tensor, data, self.expert * stage


class Family(eqx.Module):
    """A part of the relaxed layout space: real degrees between bounds, at one partition."""

    tensor_high: Array
    """Largest value of the free degree of `across`."""
    pipeline_low: Array
    pipeline_high: Array
    draft_low: Array
    draft_high: Array
    fixed_pipeline: bool = eqx.field(static=True)
    """Whether the two pipeline bounds are equal."""
    drafted: bool = eqx.field(static=True)
    """Whether the number of drafted tokens is free."""
    partition: str = eqx.field(static=True, default="1d")
    tensor_low: Array = eqx.field(default_factory=_one)
    """Least value of the free degree; above `tensor_high` where the family is empty."""
    across: Across = eqx.field(default_factory=Across)


class Scenario(eqx.Module):
    """A question: a model on an accelerator under a workload. Leaves are all its numbers."""

    model: eqx.AbstractVar[Any]
    accelerator: eqx.AbstractVar[Accelerator]
    workload: eqx.AbstractVar[Workload]

    @abc.abstractmethod
    def step_time(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> StepTime:
        """Seconds of one step, draft included; layout fields broadcast."""

    @abc.abstractmethod
    def memory_margin(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """Free bytes per accelerator; negative where the layout does not fit."""

    @abc.abstractmethod
    def degrees(self, max_accelerators: int) -> tuple[Layout, ...]:
        """All legal integer layouts at batch 1, as layouts with flat NumPy-like array fields."""

    @abc.abstractmethod
    def families(self, max_accelerators: Array) -> tuple[Family, ...]:
        """The relaxed layout space, in families that together hold every legal layout."""

    @abc.abstractmethod
    def tokens_per_step(self, layout: Layout) -> Array:
        """Expected tokens that one sequence gains per step."""

    def least_batch(self, layout: Layout) -> Array:
        """The smallest batch that fills the pipeline."""
        return jnp.maximum(layout.pipeline, 1.0)

    def speed(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """Tokens/s of one request: tokens per step / T."""
        return self.speed_at_time(layout, self.step_time(layout, arithmetic))

    def speed_at_time(self, layout: Layout, time: StepTime) -> Array:
        """Tokens/s of one request at a known step time."""
        return self.tokens_per_step(layout) / time.total

    def cost(self, layout: Layout, arithmetic: Arithmetic = EXACT) -> Array:
        """US dollars per million output tokens: 1e6 N price T / (b tokens per step)."""
        return self.cost_at_speed(layout, self.speed(layout, arithmetic))

    def cost_at_speed(self, layout: Layout, speed: Array) -> Array:
        """US dollars per million output tokens at a known speed."""
        return 1e6 * layout.accelerators * self.accelerator.price / (layout.batch * speed)

    def demand_margin(self, layout: Layout, speed: Array) -> Array:
        """ln(demand / (batch x speed)); negative where the replica outruns the demand."""
        if self.workload.demand is None:
            return jnp.full_like(speed, jnp.inf)
        return jnp.log(self.workload.demand / (layout.batch * speed))


class Inspection(eqx.Module):
    """All that is to be said of layouts, and the model's own counts."""

    time: StepTime
    speed: Array
    """Tokens/s of one request."""
    cost: Array
    """US dollars per million output tokens."""
    margin: Array
    """Free bytes per accelerator."""
    ledger: Any
    """Bytes by use, where the cost model tells them apart; else None."""
    tokens_per_step: Array
    parameters: Array
    active_parameters: Array
    embedding_parameters: Array
    cache_bytes: Array
    """Bytes that one sequence keeps at the workload's context."""
    collectives: dict[str, Array] | None
    """Numbers of the algorithms taken, where the cost model has several; else None."""


@program
def inspect_layouts(scenario: Scenario, layouts: Layout) -> Inspection:
    """Everything about layouts in one compiled program; operation by operation there would be dozens."""
    # Each part is traced once, which a cold start waits for.
    time, model = scenario.step_time(layouts), scenario.model
    speed = scenario.speed_at_time(layouts, time)
    ledger = scenario.ledger(layouts) if hasattr(scenario, "ledger") else None
    return Inspection(
        time=time,
        speed=speed,
        cost=scenario.cost_at_speed(layouts, speed),
        margin=scenario.memory_margin(layouts) if ledger is None else ledger.margin,
        ledger=ledger,
        tokens_per_step=scenario.tokens_per_step(layouts),
        parameters=model.total_parameters,
        active_parameters=model.active_parameters,
        embedding_parameters=model.embedding_parameters,
        cache_bytes=model.kv_cache_bytes(scenario.workload.context),
        collectives=scenario.collectives(layouts) if hasattr(scenario, "collectives") else None,
    )


@array_program
def evaluate_layouts(scenario: Scenario, layouts: Layout) -> tuple[Array, Array, Array, Array]:
    """(speed, cost, step time, free bytes per accelerator) of layouts with array fields."""
    time = scenario.step_time(layouts)
    speed = scenario.speed_at_time(layouts, time)
    return speed, scenario.cost_at_speed(layouts, speed), time.total, scenario.memory_margin(layouts)
