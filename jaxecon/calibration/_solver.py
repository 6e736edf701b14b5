r"""Robust maximum a posteriori by damped Gauss-Newton steps.

With residuals r = ln predicted - ln measured, a Student t likelihood of scale s and nu degrees of
freedom, and normal priors on the unconstrained constants x,

$$F(x) = \sum_i w_i \frac{\nu + 1}{2} \ln(1 + r_i^2/(\nu s^2)) + \tfrac12 \sum_k ((x_k - m_k)/\sigma_k)^2.$$

Each step solves the reweighted normal equations (Lange, Little and Taylor 1989,
doi:10.1080/01621459.1989.10478852) with Levenberg-Marquardt damping. The exact Jacobian is of one
compiled function that all refits share.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

SCALE = 0.05
"""Scale of log errors that the likelihood takes as ordinary: the spread of repeated settings."""
FREEDOM = 2.0
"""Degrees of freedom of the Student t likelihood; few, since some rows describe something else."""
_CALLS = 60
_ENOUGH = 1e-3
_LEAST_DAMPING = 1e-4
"""So that eight attempts, each five times as damped, reach short steps down the gradient: optima lie on
kinks, which full steps overshoot."""


class Fit(NamedTuple):
    """A maximum of the posterior, and how it was reached."""

    vector: np.ndarray
    residuals: np.ndarray
    """ln predicted - ln measured of all rows, weighted or not."""
    jacobian: np.ndarray
    objective: float
    steps: int
    converged: bool
    """Whether the last step promised less than 1e-3 of a log-likelihood unit."""
    gradient: float
    """Largest absolute entry of the objective's gradient, in prior standard deviations."""


Residuals = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Residuals and their Jacobian at a vector."""


def maximise(
    residuals: Residuals,
    start: np.ndarray,
    weights: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
) -> Fit:
    """The vector of largest posterior density, from `start`. Rows of weight 0 take no part."""
    x = np.array(start)
    r, jac = residuals(x)
    value = _objective(r, x, weights, mean, spread)
    damping, steps, converged = 1e-2, 0, False
    while steps < _CALLS and not converged:
        steps += 1
        gradient, hessian = normal_equations(r, jac, x, weights, mean, spread)
        for _ in range(8):
            step = -np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            step = np.clip(step, -1.0, 1.0)
            found = residuals(x + step)
            new = _objective(found[0], x + step, weights, mean, spread)
            if new < value:
                break
            damping *= 5.0
        else:
            converged = bool(-gradient @ step < 1.0)
            break
        converged = value - new < _ENOUGH
        x, (r, jac), value, damping = x + step, found, new, max(damping / 5.0, _LEAST_DAMPING)
    gradient, _ = normal_equations(r, jac, x, weights, mean, spread)
    return Fit(x, r, jac, value, steps, converged, float(np.max(np.abs(gradient * spread))))


def normal_equations(
    r: np.ndarray,
    jac: np.ndarray,
    x: np.ndarray,
    weights: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(gradient, Gauss-Newton Hessian) of the objective at the current reweighting."""
    w = weights * (FREEDOM + 1.0) / (FREEDOM * SCALE**2 + r**2)
    gradient = jac.T @ (w * r) + (x - mean) / spread**2
    return gradient, (jac * w[:, None]).T @ jac + np.diag(1.0 / spread**2)


def _objective(
    r: np.ndarray, x: np.ndarray, weights: np.ndarray, mean: np.ndarray, spread: np.ndarray
) -> float:
    if not np.all(np.isfinite(r)):
        return np.inf
    loss = 0.5 * (FREEDOM + 1.0) * np.log1p(r**2 / (FREEDOM * SCALE**2))
    return float(np.sum(weights * loss) + 0.5 * np.sum(((x - mean) / spread) ** 2))
