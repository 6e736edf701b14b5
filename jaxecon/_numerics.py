"""Scalar conversion, safe elementary functions, and the two arithmetics.

Every formula of the cost model takes an `Arithmetic`, which says what `maximum`,
`minimum` and `ceil` mean. `Exact` is the ordinary meaning. `Smooth` replaces each by
a differentiable function that bounds it from a chosen side, so that a smooth step time
bounds the exact one from that side, and tends to it as the temperature goes to 0.

Divisions, logarithms and roots near zero are taken only here.
"""

import abc
import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._errors import InputError

Scalar = Float[Array, ""]
"""A float64 array without axes. Inside the package also any shape it broadcasts to."""


def require_float64() -> None:
    """Refuse to run in single precision, where products such as 1e15 * 1e9 * 1e16 overflow.

    Raises:
        RuntimeError: if JAX's 64-bit mode is off.
    """
    if not jax.config.read("jax_enable_x64"):
        raise RuntimeError(
            "jaxecon computes in float64, but JAX's 64-bit mode is off; "
            "call jax.config.update('jax_enable_x64', True) or unset JAX_ENABLE_X64"
        )


def scalar(value: Any) -> Scalar:
    """The one converter of numbers to float64 array leaves.

    Raises:
        InputError: if `value` is not a number.
        RuntimeError: if JAX's 64-bit mode is off.
    """
    require_float64()
    if isinstance(value, jax.Array) and value.dtype == jnp.float64:
        return value
    try:
        if isinstance(value, jax.Array):
            return jnp.asarray(value, dtype=jnp.float64)
        if value is None or isinstance(value, str | bytes | complex):
            raise TypeError
        # Of the right dtype already, the array is moved to the device without compiling a program.
        return jnp.asarray(np.asarray(value, np.float64), dtype=jnp.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected a number, got {value!r}") from error


def optional_scalar(value: Any) -> Scalar | None:
    """Like `scalar`, but None stays None (a part of the structure)."""
    return None if value is None else scalar(value)


def is_concrete(value: Any) -> bool:
    """Whether a leaf holds numbers that can be looked at, and is not being traced."""
    return eqx.is_array(value) and not isinstance(value, jax.core.Tracer)


def safe_divide(a: Array, b: Array, otherwise: float = 0.0) -> Array:
    """a / b, and `otherwise` where b = 0; the gradient there is 0 in both arguments."""
    zero = b == 0
    return jnp.where(zero, otherwise, a / jnp.where(zero, 1.0, b))


def safe_log(x: Array, floor: float = 1e-300) -> Array:
    """log x, and log `floor` where x <= `floor`; the gradient there is 0."""
    low = x <= floor
    return jnp.where(low, math.log(floor), jnp.log(jnp.where(low, 1.0, x)))


def safe_sqrt(x: Array) -> Array:
    """Square root of x, and 0 where x <= 0; the gradient there is 0."""
    low = x <= 0
    return jnp.where(low, 0.0, jnp.sqrt(jnp.where(low, 1.0, x)))


def one_minus_power(base: Array, exponent: Array) -> Array:
    """1 - base**exponent for 0 <= base <= 1 and exponent >= 0, without cancellation.

    Evaluated as -expm1(exponent * log(base)). At base = 0 it is 1 for a positive exponent and
    0 for exponent 0; the gradients in base and exponent are 0 there.
    """
    log_base = safe_log(base)
    return -jnp.expm1(exponent * log_base)


def geometric_sum(ratio: Array, terms: Array) -> Array:
    """1 + ratio + ... + ratio**(terms - 1) = (1 - ratio**terms)/(1 - ratio), for 0 <= ratio <= 1.

    Real `terms` are allowed. Near ratio = 1 the second-order series of the quotient is used,
    whose value at 1 is `terms`; at ratio = 0 the value is 1 (0 where terms = 0).
    """
    gap = 1.0 - ratio
    near = jnp.abs(gap) < 1e-6
    series = terms * (1.0 - 0.5 * (terms - 1.0) * gap + (terms - 1.0) * (terms - 2.0) * gap**2 / 6.0)
    quotient = one_minus_power(jnp.where(near, 0.5, ratio), terms) / jnp.where(near, 0.5, gap)
    return jnp.where(near, series, quotient)


class Arithmetic(eqx.Module):
    """What max, min and ceil mean. Reductions run over the last axis of `x`."""

    @abc.abstractmethod
    def max_weights(self, x: Array) -> Array:
        """Weights w >= 0, shaped like `x`, with sum(w * x) the maximum over the last axis."""

    @abc.abstractmethod
    def min_weights(self, x: Array) -> Array:
        """Weights w >= 0, shaped like `x`, with sum(w * x) the minimum over the last axis."""

    @abc.abstractmethod
    def ceil(self, x: Array) -> Array:
        """The least integer not below x."""

    def max(self, x: Array) -> Array:
        """Maximum over the last axis; entries must be positive."""
        return jnp.sum(self.max_weights(x) * x, axis=-1)

    def maximum(self, a: Array, b: Array) -> Array:
        """Elementwise maximum of two positive arrays."""
        return self.max(jnp.stack(jnp.broadcast_arrays(a, b), axis=-1))

    def minimum(self, a: Array, b: Array) -> Array:
        """Elementwise minimum of two positive arrays."""
        x = jnp.stack(jnp.broadcast_arrays(a, b), axis=-1)
        return jnp.sum(self.min_weights(x) * x, axis=-1)

    def quickest(self, ways: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Both parts of the pair of positive arrays with the least sum."""
        columns = (jnp.stack(jnp.broadcast_arrays(*column), axis=-1) for column in zip(*ways, strict=True))
        first, second = jnp.broadcast_arrays(*columns)
        weights = self.min_weights(first + second)
        return jnp.sum(weights * first, axis=-1), jnp.sum(weights * second, axis=-1)


def _one_hot(index: Array, like: Array) -> Array:
    return jax.nn.one_hot(index, like.shape[-1], dtype=like.dtype)


class Exact(Arithmetic):
    """Ordinary max, min and ceil. At a tie the first entry takes the whole gradient."""

    def max_weights(self, x: Array) -> Array:
        return _one_hot(jnp.argmax(x, axis=-1), x)

    def min_weights(self, x: Array) -> Array:
        return _one_hot(jnp.argmin(x, axis=-1), x)

    def max(self, x: Array) -> Array:
        return jnp.max(x, axis=-1)

    def maximum(self, a: Array, b: Array) -> Array:
        return jnp.maximum(a, b)

    def minimum(self, a: Array, b: Array) -> Array:
        return jnp.minimum(a, b)

    def ceil(self, x: Array) -> Array:
        return jnp.ceil(x)

    def quickest(self, ways: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        # One after the other, so that nothing of a further axis is ever written to memory.
        best = ways[0]
        for way in ways[1:]:
            better = way[0] + way[1] < best[0] + best[1]
            best = jnp.where(better, way[0], best[0]), jnp.where(better, way[1], best[1])
        return best


@functools.partial(jax.jit, static_argnums=(2, 3))
def _power_mean(x: Array, temperature: Scalar, sign: float, factor: float) -> tuple[Array, Array]:
    """(ln x, ln of the mean with p = sign/temperature); compiled as one, it is traced once for a shape."""
    logs = safe_log(x)
    p = sign / temperature
    scaled = p * logs
    top = jnp.max(jax.lax.stop_gradient(scaled), axis=-1, keepdims=True)
    total = jnp.log(jnp.sum(jnp.exp(scaled - top), axis=-1, keepdims=True)) + top + math.log(factor)
    return logs, total / p


class Smooth(Arithmetic):
    r"""Power means and a ramped staircase, all at or below, or all at or above, the exact ones.

    With p = 1/temperature and n entries,

    $\max_\tau x = (c \sum_i x_i^p)^{1/p}, \qquad \min_\tau x = (c' \sum_i x_i^{-p})^{-1/p},$

    where c = 1/n, c' = 1 for `side="below"` and c = 1, c' = 1/n for `side="above"`. Both are
    homogeneous of degree one, so that their gradients w satisfy sum(w x) = value (Euler); the
    gradients at a tie are the shares of the tied terms. Relative errors are at most
    n**temperature - 1, and both sides tend to the exact value monotonically. `ceil` climbs from k
    to k + 1 over k <= x <= k + temperature by a cubic with flat ends, on either side: no
    continuous function above the staircase agrees with it at the integers.
    """

    temperature: Scalar = eqx.field(converter=scalar)
    side: str = eqx.field(static=True, default="below")

    def _mean(self, x: Array, sign: float) -> tuple[Array, Array, float]:
        """(logs, log of the mean, the factor c)."""
        normalised = (sign > 0) == (self.side == "below")
        factor = 1.0 / x.shape[-1] if normalised else 1.0
        return *_power_mean(x, self.temperature, sign, factor), factor

    def max_weights(self, x: Array) -> Array:
        logs, mean, factor = self._mean(x, 1.0)
        return factor * jnp.exp((1.0 / self.temperature - 1.0) * (logs - mean))

    def min_weights(self, x: Array) -> Array:
        logs, mean, factor = self._mean(x, -1.0)
        return factor * jnp.exp((1.0 + 1.0 / self.temperature) * (mean - logs))

    def max(self, x: Array) -> Array:
        return jnp.exp(self._mean(x, 1.0)[1][..., 0])

    def minimum(self, a: Array, b: Array) -> Array:
        x = jnp.stack(jnp.broadcast_arrays(a, b), axis=-1)
        return jnp.exp(self._mean(x, -1.0)[1][..., 0])

    def ceil(self, x: Array) -> Array:
        floor = jax.lax.stop_gradient(jnp.floor(x))
        ramp = jnp.clip((x - floor) / jnp.minimum(self.temperature, 1.0), 0.0, 1.0)
        return floor + ramp**2 * (3.0 - 2.0 * ramp)


EXACT = Exact()
