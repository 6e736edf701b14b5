"""Latencies and rates of collectives, machine by machine, from measured calls."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import EXACT
from ..cost._algorithms import all_gather, all_reduce, all_to_all
from ..specs import Network, load_accelerator
from ._names import accelerator_name
from ._posterior import NORMAL_90
from ._solver import Fit, maximise, normal_equations

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
_CONSTANTS = (
    ("library_latency", False, 1.0, 0.7),
    ("direct_latency", False, 2.5e-6, 0.5),
    ("scale_up_hop", False, 1e-6, 0.7),
    ("library_efficiency", True, 0.75, 0.4),
    ("own_efficiency", True, 0.75, 0.4),
)


class Call(NamedTuple):
    """One measured collective inside a scale-up domain."""

    line: int
    machine: str
    operation: str
    implementation: str
    own: bool
    """Whether by an engine's own kernels, not the communication library."""
    ranks: float
    size: float
    """Bytes of the whole buffer."""
    seconds: float


class CollectiveFit(NamedTuple):
    """Constants of one machine; values with 90 % intervals."""

    machine: str
    constants: dict[str, tuple[float, float, float]]
    """Name -> (value, low, high): factor on the library's latencies, seconds per call and per hop of
    own kernels, and the share of the link rate that either reaches."""
    calls: list[Call]
    predicted: np.ndarray
    """Seconds."""

    def errors(self) -> tuple[float, float]:
        """(mean, median) of |predicted/measured - 1|."""
        share = np.abs(self.predicted / np.asarray([c.seconds for c in self.calls]) - 1.0)
        return float(np.mean(share)), float(np.median(share))


def read_collectives(path: str | Path) -> list[Call]:
    """Calls on one domain of catalogued accelerators, whose size is that of the whole buffer.

    Others (several nodes, expert dispatch with its own size conventions, unknown machines) are left out.

    Raises:
        InputError: for an unreadable file or one without such calls.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error
    reader, calls = csv.DictReader(text.splitlines()), []
    for row in reader:
        if (
            row["op"] not in OPERATIONS
            or row["n_nodes"] != "1.0"
            or not row["size_convention"].startswith("total")
        ):
            continue
        try:
            machine = accelerator_name(row["gpu"])
            numbers = [float(row[k]) for k in ("n_ranks", "message_bytes", "latency_us")]
        except (InputError, ValueError):
            continue
        if all(math.isfinite(x) and x > 0 for x in numbers):
            own = row["impl"].startswith("custom")
            calls.append(
                Call(reader.line_num, machine, row["op"], row["impl"], own, *numbers[:2], numbers[2] / 1e6)
            )
    if not calls:
        raise InputError(f"'{path}' has no collective inside a domain of a catalogued accelerator")
    return calls


def fit_collectives(calls: Sequence[Call]) -> dict[str, CollectiveFit]:
    """Constants of each machine that has calls, by the cost model's own formulas."""
    found = {}
    for machine in sorted({c.machine for c in calls}):
        own = [c for c in calls if c.machine == machine]
        network = load_accelerator(machine, price_per_hour=1.0).network
        arrays = _arrays(own)
        logs = np.log([c.seconds for c in own])

        def residuals(
            x: np.ndarray, network=network, arrays=arrays, logs=logs
        ) -> tuple[np.ndarray, np.ndarray]:
            value, jacobian = _logs(jnp.asarray(x), network, arrays)
            return np.asarray(value) - logs, np.asarray(jacobian)

        mean = np.asarray([math.log(p / (1 - p)) if share else math.log(p) for _, share, p, _ in _CONSTANTS])
        spread = np.asarray([s for *_, s in _CONSTANTS])
        fit = maximise(residuals, mean, np.ones(len(own)), mean, spread)
        found[machine] = CollectiveFit(
            machine, _estimates(fit, mean, spread), own, np.exp(fit.residuals + logs)
        )
    return found


def _estimates(fit: Fit, mean: np.ndarray, spread: np.ndarray) -> dict[str, tuple[float, float, float]]:
    _, hessian = normal_equations(
        fit.residuals, fit.jacobian, fit.vector, np.ones(len(fit.residuals)), mean, spread
    )
    deviation = np.sqrt(np.diag(np.linalg.inv(hessian)))
    rows = {}
    for (name, share, *_), x, d in zip(_CONSTANTS, fit.vector, deviation, strict=True):
        ends = x + NORMAL_90 * d * np.asarray([0.0, -1.0, 1.0])
        values = 1.0 / (1.0 + np.exp(-ends)) if share else np.exp(ends)
        rows[name] = (float(values[0]), float(values[1]), float(values[2]))
    return rows


def _arrays(calls: Sequence[Call]) -> dict[str, Array]:
    return {
        "operation": jnp.asarray([OPERATIONS.index(c.operation) for c in calls]),
        "own": jnp.asarray([c.own for c in calls]),
        "ranks": jnp.asarray([c.ranks for c in calls]),
        "size": jnp.asarray([c.size for c in calls]),
    }


@eqx.filter_jit
def _logs(x: Array, network: Network, calls: dict[str, Array]) -> tuple[Array, Array]:
    def logs(x: Array) -> tuple[Array, Array]:
        value = jnp.log(collective_seconds(x, network, calls))
        return value, value

    jacobian, value = jax.jacfwd(logs, has_aux=True)(x)
    return value, jacobian


def collective_seconds(x: Array, network: Network, calls: dict[str, Array]) -> Array:
    """Seconds of calls inside a domain, at unconstrained constants in the order of the fit."""
    one = jnp.ones_like(calls["size"])

    def seconds(efficiency: Array, algorithms: tuple[str, ...]) -> Array:
        links = Network(
            network.scale_up_bandwidth,
            network.scale_out_bandwidth,
            network.domain_size,
            network.kind,
            algorithms,
            library_latency=jnp.exp(x[0]),
            direct_latency=jnp.exp(x[1]),
            scale_up_hop=jnp.exp(x[2]),
            scale_up_efficiency=efficiency,
        )
        ranks, size = calls["ranks"], calls["size"]
        reduce = sum(all_reduce(links, ranks, one, size, EXACT))
        gather = sum(all_gather(links, ranks, one, size, EXACT))
        exchange = sum(all_to_all(links, ranks, one, size, size, EXACT))
        kind = calls["operation"]
        return jnp.where(kind == 0, reduce, jnp.where(kind == 3, exchange, gather))

    library = seconds(jax.nn.sigmoid(x[3]), ("library",))
    own = seconds(jax.nn.sigmoid(x[4]), ("library", "one_shot", "two_shot", "pairwise"))
    return jnp.where(calls["own"], own, library)
