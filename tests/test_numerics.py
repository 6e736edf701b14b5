"""Safe functions at their singular points, and smooth functions below the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxecon._numerics import (
    EXACT,
    Smooth,
    geometric_sum,
    one_minus_power,
    safe_divide,
    safe_log,
    safe_sqrt,
)


@pytest.mark.parametrize("function", [safe_log, safe_sqrt, lambda x: safe_divide(jnp.ones(()), x)])
def test_gradient_is_finite_at_zero(function):
    value, slope = jax.value_and_grad(function)(jnp.asarray(0.0))
    assert np.isfinite(value) and slope == 0.0


def test_powers_and_sums_at_their_ends():
    one, zero, five = jnp.asarray(1.0), jnp.asarray(0.0), jnp.asarray(5.0)
    assert one_minus_power(zero, five) == 1.0 and one_minus_power(one, five) == 0.0
    assert geometric_sum(one, five) == 5.0 and geometric_sum(zero, five) == 1.0
    assert geometric_sum(jnp.asarray(1.0 - 1e-7), five) == pytest.approx(5.0 - 1e-6, rel=1e-12)


@pytest.mark.parametrize("temperature", [0.3, 0.03, 0.003])
@pytest.mark.parametrize(("side", "sign"), [("below", 1.0), ("above", -1.0)])
def test_smooth_bounds_the_exact_from_its_side(temperature, side, sign):
    smooth = Smooth(temperature, side)
    a, b = jnp.exp(jax.random.normal(jax.random.key(0), (2, 200)))
    both = jnp.stack([a, b], axis=-1)
    for name in ("maximum", "minimum"):
        exact, found = getattr(EXACT, name)(a, b), getattr(smooth, name)(a, b)
        gap = sign * jnp.log(exact / found)
        assert bool(jnp.all(gap >= -1e-12))
        assert bool(jnp.all(gap <= temperature * np.log(2.0) + 1e-12))
        weights = getattr(smooth, f"{name[:3]}_weights")(both)
        np.testing.assert_allclose(jnp.sum(weights * both, axis=-1), found, rtol=1e-10)
    x = jnp.linspace(0.0, 5.0, 101)
    assert bool(jnp.all(smooth.ceil(x) <= jnp.ceil(x)))
    whole = jnp.arange(5.0)
    assert bool(jnp.all(smooth.ceil(whole) == whole))


def test_gradient_at_a_tie_is_shared():
    slope = jax.grad(lambda y: Smooth(1e-3).maximum(y, 2.0 - y))(jnp.asarray(1.0))
    assert abs(float(slope)) < 1e-9


def test_the_quickest_way_has_the_least_sum():
    ways = [tuple(jnp.exp(jax.random.normal(jax.random.key(i), (2, 50)))) for i in range(3)]
    columns = [jnp.stack(column, axis=-1) for column in zip(*ways, strict=True)]
    weights = EXACT.min_weights(columns[0] + columns[1])
    found = EXACT.quickest(ways)
    for part, column in zip(found, columns, strict=True):
        np.testing.assert_array_equal(part, jnp.sum(weights * column, axis=-1))
    smooth = Smooth(1e-4, "above").quickest(ways)
    np.testing.assert_allclose(smooth[0] + smooth[1], found[0] + found[1], rtol=2e-3)
    # Of equal ways the first one, whatever its parts.
    tied = EXACT.quickest([(jnp.asarray(1.0), jnp.asarray(2.0)), (jnp.asarray(2.0), jnp.asarray(1.0))])
    assert tuple(map(float, tied)) == (1.0, 2.0)
