"""How well the constants are known, and how wide predictions are."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ._constants import CONSTANTS, NAMES
from ._heldout import HeldOut, covariance_of, noise_of, sweep_weights
from ._solver import Fit

NORMAL_90 = 1.6449


class Estimate(NamedTuple):
    """A fitted constant in its own units."""

    value: float
    low: float
    high: float
    """Ends of the 90 % interval (Laplace)."""
    prior: float
    informed: float
    """1 - posterior/prior variance of the unconstrained constant: 0 where the data say nothing."""
    meaning: str


class Tangle(NamedTuple):
    """Two constants that the data hardly tell apart."""

    first: str
    second: str
    correlation: float


class Spread(NamedTuple):
    """Covariance of the unconstrained constants and the scales of prediction intervals."""

    covariance: np.ndarray
    noise: float
    """Robust standard deviation of fitted log errors."""
    quantiles: dict[str, float]
    """By what is new ("nothing", "model", "accelerator", "engine"): the 90 % quantile of
    |log error|/sqrt(deviation^2 + noise^2), measured on rows held out in that way."""

    def half_width(self, gradients: np.ndarray, new: str = "model") -> np.ndarray:
        """Half the width of 90 % intervals of ln seconds, from gradients in the constants.

        Args:
            gradients: d ln seconds / d constants, rows by constants.
            new: what about the predicted rows the fit has not seen.
        """
        rows = np.atleast_2d(gradients)
        deviation = np.einsum("ij,jk,ik->i", rows, self.covariance, rows)
        quantile = self.quantiles.get(new, self.quantiles["nothing"])
        return quantile * np.sqrt(deviation + self.noise**2)


def posterior_spread(
    fit: Fit,
    sweeps: Sequence[Hashable],
    counts: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    held_out: Mapping[str, HeldOut],
) -> Spread:
    """Laplace's covariance with rows of one sweep as one, and interval scales from held-out rows."""
    covariance = covariance_of(fit, counts * sweep_weights(sweeps), mean, spread)
    full = counts >= 1.0
    noise = noise_of(fit.residuals[full])

    def quantile(errors: np.ndarray, variance: np.ndarray) -> float:
        ratio = np.abs(errors) / np.sqrt(variance + noise**2)
        return float(np.quantile(ratio[full], 0.9))

    own = np.einsum("ij,jk,ik->i", fit.jacobian, covariance, fit.jacobian)
    quantiles = {"nothing": quantile(fit.residuals, own)}
    for name, found in held_out.items():
        quantiles[name] = quantile(found.residuals, found.deviation**2)
    return Spread(covariance, noise, quantiles)


def estimates(fit: Fit, found: Spread, spread: np.ndarray) -> dict[str, Estimate]:
    """Every constant in its own units, with its interval."""
    deviation = np.sqrt(np.diag(found.covariance))
    rows = {}
    for constant, x, d, s in zip(CONSTANTS, fit.vector, deviation, spread, strict=True):
        ends = (constant.value(x - NORMAL_90 * d), constant.value(x + NORMAL_90 * d))
        informed = float(max(0.0, 1.0 - (d / s) ** 2))
        rows[constant.name] = Estimate(constant.value(x), *ends, constant.prior, informed, constant.meaning)
    return rows


def tangles(found: Spread, least: float = 0.7) -> list[Tangle]:
    """Pairs of constants whose estimates are correlated by at least `least`, the closest first."""
    deviation = np.sqrt(np.diag(found.covariance))
    correlation = found.covariance / np.outer(deviation, deviation)
    first, second = np.where(np.triu(np.abs(correlation), 1) >= least)
    rows = [Tangle(NAMES[i], NAMES[j], float(correlation[i, j])) for i, j in zip(first, second, strict=True)]
    return sorted(rows, key=lambda row: -abs(row.correlation))
