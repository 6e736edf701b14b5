"""Error on what a fit has not seen: whole models, accelerators or engines left out."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from ._solver import Fit, Residuals, maximise, normal_equations

Splits = dict[str, list[str]]
"""By what to leave out -> the group of every row."""


class HeldOut(NamedTuple):
    """Predictions of rows by fits without their group."""

    groups: list[str]
    residuals: np.ndarray
    """ln predicted - ln measured."""
    deviation: np.ndarray
    """Standard deviation of ln predicted that comes from the constants of that fit."""
    counted: np.ndarray
    """Which rows were held out: those of full weight."""
    coverage: float
    """Share of rows inside their 90 % interval, whose width no row of their group has influenced."""

    def worst_groups(self) -> list[tuple[str, int, float]]:
        """(group, rows, mean absolute relative error), largest error first."""
        share = np.abs(np.expm1(self.residuals[self.counted]))
        names = np.asarray(self.groups)[self.counted]
        groups = set(names.tolist())
        rows = [(g, int(np.sum(names == g)), float(np.mean(share[names == g]))) for g in groups]
        return sorted(rows, key=lambda row: -row[2])


def held_out_errors(
    residuals: Residuals,
    fit: Fit,
    groups: list[str],
    sweeps: Sequence[Hashable],
    counts: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
) -> HeldOut:
    """Refit without each group that has a row of full weight, from the full fit, and predict it."""
    names, counted = np.asarray(groups), counts >= 1.0
    errors, deviation = fit.residuals.copy(), np.zeros(len(names))
    weights = counts * sweep_weights(sweeps)
    for group in sorted(set(names[counted].tolist())):
        out = names == group
        without = maximise(residuals, fit.vector, counts * ~out, mean, spread)
        covariance = covariance_of(without, weights * ~out, mean, spread)
        errors[out] = without.residuals[out]
        rows = without.jacobian[out]
        deviation[out] = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
    noise = noise_of(fit.residuals[counted])
    coverage = coverage_of(names[counted], errors[counted], deviation[counted], noise)
    return HeldOut(groups, errors, deviation, counted, coverage)


def sweep_weights(sweeps: Sequence[Hashable]) -> np.ndarray:
    """1/(rows of the same sweep): rows of one sweep err together and count as one."""
    sizes: dict[Hashable, int] = {}
    for sweep in sweeps:
        sizes[sweep] = sizes.get(sweep, 0) + 1
    return np.asarray([1.0 / sizes[sweep] for sweep in sweeps])


def covariance_of(fit: Fit, weights: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Laplace's covariance of the unconstrained constants: the inverse Gauss-Newton Hessian."""
    _, hessian = normal_equations(fit.residuals, fit.jacobian, fit.vector, weights, mean, spread)
    return np.linalg.inv(hessian)


def noise_of(residuals: np.ndarray) -> float:
    """Robust standard deviation of log errors: 1.4826 times their median absolute value."""
    return float(1.4826 * np.median(np.abs(residuals)))


def coverage_of(names: np.ndarray, errors: np.ndarray, deviation: np.ndarray, noise: float) -> float:
    """Share of rows within q sqrt(deviation^2 + noise^2), q from the other groups' rows."""
    ratio = np.abs(errors) / np.sqrt(deviation**2 + noise**2)
    inside = np.zeros(len(names), dtype=bool)
    for group in set(names.tolist()):
        own = names == group
        others = ratio[~own] if np.any(~own) else ratio
        inside[own] = ratio[own] <= np.quantile(others, 0.9)
    return float(np.mean(inside))
