"""Scaling exponents: d ln speed / d ln size at each member of a family, and of a fitted power law."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import stdtrit

from .._errors import InfeasibleError, InputError
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ._families import PowerFamily
from ._parameters import vector
from ._solved import limits, refined, slopes, solve

_STEP = 1e-4


class ScalingExponent(eqx.Module):
    """Exponents of speed along a family, over its relaxed optima."""

    scale: np.ndarray
    size: np.ndarray
    """The abscissa: what the speed is compared with."""
    speed: np.ndarray
    """Tokens/s of one request."""
    local: np.ndarray
    """d ln speed / d ln size at each member, by the envelope theorem."""
    fitted: float
    """Slope of ln speed against ln size by least squares."""
    interval: tuple[float, float]
    """95 % interval of the slope, by Student's t; what it measures is how far the members are
    from one power law."""
    residuals: np.ndarray
    """ln speed less the fitted line."""


def scaling_exponent(
    family: Callable[[Array], Any],
    budget: float | None,
    scales: Any = None,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> ScalingExponent:
    """Local and fitted exponents of the optimal speed along a family.

    Args:
        family: from a scale (an array without axes) to a scenario, such as `power_family` or
            `size_family` give; its `size` attribute, where there is one, gives the abscissa.
        budget: US dollars per million output tokens at every member; None for no budget.
        scales: at least 3 of them; by default 9 from 1/4 to 4, evenly in the logarithm.

    Raises:
        InputError: for fewer than 3 scales, or scales that are not positive and different.
        InfeasibleError: naming the scale at which no layout meets the budget.
    """
    scales = np.geomspace(0.25, 4.0, 9) if scales is None else np.asarray(scales, dtype=np.float64)
    if scales.ndim != 1 or len(scales) < 3 or not np.all(np.isfinite(scales) & (scales > 0)):
        raise InputError("a fit needs at least 3 scales, all positive numbers")
    if len(np.unique(scales)) < 3:
        raise InputError("a fit needs at least 3 different scales")
    bounds = limits(budget, max_accelerators, max_batch)

    def one(log_scale: float) -> tuple[float, float, float]:
        scale = jnp.asarray(log_scale)
        (log_size, logs), (slope, moves) = _jvp(family, scale)
        try:
            solved = solve(family(jnp.exp(scale)), bounds)
            if solved.status == "success":
                x, _ = refined(solved.scenario, bounds, solved.solution)
                by_parameter = np.asarray(slopes(solved.scenario, bounds, solved.solution, x)[0])
                rise = float(by_parameter @ np.asarray(moves))
            else:
                ends = [solve(family(jnp.exp(scale + d)), bounds).log_speed for d in (-_STEP, _STEP)]
                rise = (ends[1] - ends[0]) / (2.0 * _STEP)
        except InfeasibleError as error:
            raise InfeasibleError(f"at scale {np.exp(log_scale):g}: {error}") from error
        return float(log_size), solved.log_speed, rise / float(slope)

    log_size, log_speed, local = np.array([one(x) for x in np.log(scales)]).T
    fitted, interval, residuals = fit(log_size, log_speed)
    return ScalingExponent(scales, np.exp(log_size), np.exp(log_speed), local, fitted, interval, residuals)


def _jvp(family: Callable[[Array], Any], log_scale: Array) -> Any:
    """((ln size, numbers), their derivatives) in ln scale; zero numbers have derivative 0."""
    size = family.size if isinstance(family, PowerFamily) else getattr(family, "size", lambda s: s)

    def at(log_scale: Array) -> tuple[Array, Array]:
        scale = jnp.exp(log_scale)
        return jnp.log(size(scale)), vector(family(scale))

    (log_size, numbers), (slope, change) = jax.jvp(at, (log_scale,), (jnp.ones(()),))
    moves = jnp.where(numbers == 0.0, 0.0, change / jnp.where(numbers == 0.0, 1.0, numbers))
    return (log_size, numbers), (slope, moves)


def fit(log_size: np.ndarray, log_speed: np.ndarray) -> tuple[float, tuple[float, float], np.ndarray]:
    """(slope, 95 % interval, residuals) of a least-squares line."""
    x, y = log_size - log_size.mean(), log_speed - log_speed.mean()
    slope = float(x @ y / (x @ x))
    residuals = y - slope * x
    freedom = len(x) - 2
    error = float(np.sqrt(residuals @ residuals / freedom / (x @ x)))
    half = float(stdtrit(freedom, 0.975)) * error
    return slope, (slope - half, slope + half), residuals
