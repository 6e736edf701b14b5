"""Constants of the cost model from measured points: fit, intervals, residuals, held-out error."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from ._cases import Case, case_of
from ._constants import CONSTANTS, PRIOR_MEAN, PRIOR_SPREAD
from ._design import Design, Vector, bounds_of, designs_of
from ._heldout import HeldOut, Splits, held_out_errors
from ._posterior import Estimate, Spread, Tangle, estimates, posterior_spread, tangles
from ._solver import Fit, Residuals, maximise
from ._table import Measurement, read_measurements


class Point(NamedTuple):
    """A measured row beside its prediction; seconds per output token."""

    line: int
    model: str
    accelerator: str
    engine: str
    kind: str
    dense: bool
    weight: float
    """What the row counted in the fit; rows below 1 are older engines, reported apart."""
    measured: float
    predicted: float
    low: float
    high: float
    """Ends of the 90 % interval of a prediction that has not seen this row's model."""
    bound: float
    """What no accelerator as described can beat: the roofline of decoding at full rates."""
    prompt_load: float = 0.0
    """Share of the accelerators' time that prompts would fill at peak, by the row's output rate."""

    @property
    def shared(self) -> bool:
        """Whether the row's requests are proven to share their prompts."""
        return self.prompt_load > 1.0

    @property
    def impossible(self) -> bool:
        """Whether the row claims to be faster than full rates allow, so that it describes something
        else than it says."""
        return self.measured < self.bound

    @property
    def error(self) -> float:
        """predicted/measured - 1."""
        return self.predicted / self.measured - 1.0


class Errors(NamedTuple):
    """Absolute relative errors |predicted/measured - 1| of some rows."""

    rows: int
    mean: float
    median: float


class Calibration(NamedTuple):
    """What `calibrate` found."""

    constants: dict[str, Estimate]
    points: list[Point]
    held_out: dict[str, HeldOut]
    """By what was left out: "model", "accelerator", "engine"."""
    spread: Spread
    """Covariance of the unconstrained constants, and the scales of prediction intervals."""
    tangled: list[Tangle]
    """Groups of constants that the data cannot tell apart."""
    fit: Fit
    seconds: float
    """Wall time of everything."""

    def errors(
        self,
        dense: bool | None = None,
        held_out: str | None = None,
        *,
        possible: bool = False,
        older: bool = False,
        shared: bool | None = None,
    ) -> Errors:
        """Errors of all rows, or of dense or sparse models only; fitted, or held out by something.

        With `possible`, without the rows that claim more than full rates allow; with `older`, of the
        rows of less than full weight, which count nowhere else; with `shared`, of those alone whose
        prompts are proven to be shared, or (False) of all others.
        """
        if held_out is None:
            logs = self.fit.residuals
        elif held_out in self.held_out:
            logs = self.held_out[held_out].residuals
        else:
            raise InputError(f"nothing was held out by {held_out!r}; there is {sorted(self.held_out)}")
        chosen = [
            (dense is None or p.dense == dense)
            and not (possible and p.impossible)
            and (p.weight < 1.0) == older
            and (shared is None or p.shared == shared)
            for p in self.points
        ]
        return errors_of(logs[np.asarray(chosen)])


def errors_of(logs: np.ndarray) -> Errors:
    """Summary of log errors."""
    share = np.abs(np.expm1(logs))
    if not len(share):
        return Errors(0, float("nan"), float("nan"))
    return Errors(len(share), float(np.mean(share)), float(np.median(share)))


def calibrate(
    scenario_of: Callable[[Measurement], Case] | None = None,
    measurements: Sequence[Measurement] | str | Path = (),
    *,
    held_out: Sequence[str] = ("model", "accelerator", "engine"),
    prior_mean: np.ndarray | None = None,
    prior_spread: np.ndarray | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Fit the constants of `Serving` to measured times per output token.

    The constants (`CONSTANTS`) are efficiencies by operation group and precision, latencies of
    launches, collectives and hosts, and how prompts delay decoding; factors of families of
    accelerators, single machines and engines are drawn towards 1, so that one with few points borrows
    from the others. Errors are logarithmic and robust (Student t), gradients exact.

    Args:
        scenario_of: turns a measurement into a question; by default `case_of`.
        measurements: rows, or the path of a CSV file with the columns `COLUMNS`.
        held_out: by what to leave rows out and predict them: any of "model", "accelerator", "engine".
            Intervals are widened until those of held-out rows cover 90 % of them.
        prior_mean, prior_spread: normal priors of the unconstrained constants, in the order of
            `CONSTANTS`; by default those of physics.
        progress: called with what happens next.

    Raises:
        InputError: for no measurements, a bad row, or an unknown way of holding out.
    """
    start = time.perf_counter()
    if isinstance(measurements, str | Path):
        measurements, _ = read_measurements(measurements)
    if not measurements:
        raise InputError("there are no measurements to fit")
    cases = [(scenario_of or case_of)(m) for m in measurements]
    mean = PRIOR_MEAN if prior_mean is None else np.asarray(prior_mean)
    spread = PRIOR_SPREAD if prior_spread is None else np.asarray(prior_spread)
    progress(f"reading {len(cases)} rows as work")
    designs = designs_of(cases)
    residuals = residuals_of(designs, np.asarray([m.tpot for m in measurements]))
    progress(f"fitting {len(CONSTANTS)} constants")
    counts = np.asarray([c.weight for c in cases])
    fit = maximise(residuals, mean, counts, mean, spread)
    splits: Splits = {
        "model": [c.model_name for c in cases],
        "accelerator": [c.machine for c in cases],
        "engine": [c.engine for c in cases],
    }
    for name in held_out:
        if name not in splits:
            raise InputError(f"rows are held out by {', '.join(splits)}, not by {name!r}")
    sweeps = [_sweep(m, c) for m, c in zip(measurements, cases, strict=True)]
    without = {}
    for name in held_out:
        progress(f"refitting without each {name}")
        without[name] = held_out_errors(residuals, fit, splits[name], sweeps, counts, mean, spread)
    found = posterior_spread(fit, sweeps, counts, mean, spread, without)
    return Calibration(
        estimates(fit, found, spread),
        _points(measurements, cases, fit, found, bounds_of(designs, len(cases))),
        without,
        found,
        tangles(found),
        fit,
        time.perf_counter() - start,
    )


def _sweep(row: Measurement, case: Case) -> tuple:
    """What rows of one sweep over batch and lengths share; they err together."""
    layout = case.layout
    degrees = (float(layout.tensor), float(layout.data), float(layout.expert))
    return (case.model_name, case.machine, case.engine, row.weight_prec, row.kind, degrees)


def _points(
    measurements: Sequence[Measurement],
    cases: Sequence[Case],
    fit: Fit,
    found: Spread,
    bounds: np.ndarray,
) -> list[Point]:
    half = found.half_width(fit.jacobian)
    return [
        Point(
            m.line,
            c.model_name,
            c.machine,
            c.engine,
            m.kind,
            c.dense,
            c.weight,
            m.tpot,
            m.tpot * float(np.exp(r)),
            m.tpot * float(np.exp(r - h)),
            m.tpot * float(np.exp(r + h)),
            float(b),
            c.prompt_load,
        )
        for m, c, r, h, b in zip(measurements, cases, fit.residuals, half, bounds, strict=True)
    ]


def residuals_of(designs: tuple[Design, ...], measured: np.ndarray) -> Residuals:
    """ln predicted - ln measured of all rows and its Jacobian, as a function of the constants."""
    order = np.concatenate([d.rows for d in designs])
    back = np.argsort(order)
    logs = np.log(measured)

    def residuals(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = _logs(designs, jnp.asarray(vector))
        return np.asarray(value)[back] - logs, np.asarray(jacobian)[back]

    return residuals


@eqx.filter_jit
def _logs(designs: tuple[Design, ...], vector: Vector) -> tuple[Array, Array]:
    def logs(x: Vector) -> tuple[Array, Array]:
        value = jnp.concatenate([jnp.log(d.seconds(x)) for d in designs])
        return value, value

    jacobian, value = jax.jacfwd(logs, has_aux=True)(vector)
    return value, jacobian
