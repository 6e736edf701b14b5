"""The answers to a range of rows, as columns and as CSV text."""

import csv
import io
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh

from .. import __version__
from ..optimum import STATUSES, certified_many, elasticities_many, relaxed_many
from ._plan import Plan, Structure

_DEGREES = ("accelerators", "tensor", "pipeline", "expert", "data", "batch", "draft_tokens")
_LAYOUT = tuple(f"layout.{d}" for d in (*_DEGREES, "partition"))
_FIGURES = ("speed_tokens_per_s", "cost_usd_per_million_tokens", *_LAYOUT)


def columns_of(plan: Plan) -> list[str]:
    """Names of the columns, in order."""
    names = ["row", *plan.config.scenario, *(a.name for a in plan.config.axes)]
    if "certified" in plan.config.outputs:
        names += [*_FIGURES, "certificate.examined", "status"]
    if "relaxed" in plan.config.outputs:
        names += [f"relaxed.{n}" for n in (*_FIGURES, "residual", "status")] + ["shadow_price"]
    names += [f"elasticity.{n}" for n in plan.elasticities]
    return [*names, "jaxecon_version", "config_sha256", "seed"]


def local_mesh() -> Mesh | None:
    """All devices of this process along one axis; None where there is one."""
    devices = jax.local_devices()
    return Mesh(np.array(devices), ("pairs",)) if len(devices) > 1 else None


def solve_chunk(plan: Plan, chunk: int) -> str:
    """The rows of one chunk as CSV text without a header; an absent figure is an empty field."""
    columns = _solve(plan, *plan.range_of(chunk))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows(zip(*(_cells(columns[name]) for name in columns_of(plan)), strict=True))
    return buffer.getvalue()


def _cells(values: np.ndarray) -> list[Any]:
    """Python values; whole figures as integers, nan as an empty field."""
    if values.dtype.kind != "f":
        return values.tolist()
    return ["" if v != v else int(v) if v.is_integer() and abs(v) < 1e15 else v for v in values.tolist()]


def _solve(plan: Plan, start: int, stop: int) -> dict[str, np.ndarray]:
    combination, axes = plan.points.at(start, stop)
    count = stop - start
    columns: dict[str, np.ndarray] = {"row": np.arange(start, stop)}
    for key, options in plan.config.scenario.items():
        known = np.array([c[key] for c in plan.combinations])
        columns[key] = known[combination] if len(options) > 1 else np.full(count, known[0])
    columns["budget"] = axes["budget"][0]
    home = np.array(plan.home)[combination]
    for number, structure in enumerate(plan.structures):
        at = np.flatnonzero(home[:, 0] == number)
        if len(at):
            here = {name: (v[at], relative[at]) for name, (v, relative) in axes.items()}
            for name, values in _answers(plan, structure, home[at, 1], here).items():
                if name not in columns:
                    columns[name] = np.full(count, "" if values.dtype.kind == "U" else np.nan, values.dtype)
                if columns[name].dtype.kind == "U":
                    wide = np.promote_types(columns[name].dtype, values.dtype)
                    columns[name] = columns[name].astype(wide)
                columns[name][at] = values
    columns["jaxecon_version"] = np.full(count, __version__)
    columns["config_sha256"] = np.full(count, plan.hash[:16])
    columns["seed"] = np.full(count, plan.config.seed)
    return columns


def _answers(
    plan: Plan, structure: Structure, row: np.ndarray, axes: dict[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Answers to scenarios of one structure; `row` is the combination of each."""
    leaves = structure.values[row]
    columns: dict[str, np.ndarray] = {}
    for name, (number, relative) in axes.items():
        if name != "budget":
            place = plan.place(structure, name)
            leaves[:, place] = np.where(relative, number * leaves[:, place], number)
            columns[name] = leaves[:, place]
    parts = [leaves[:, i] if v else leaves[0, i] for i, v in enumerate(structure.varies)]
    scenario = structure.scenario(np.asarray(p) for p in parts)
    budget, mesh = axes["budget"][0], local_mesh()
    config = plan.config
    limits = {"max_batch": config.max_batch, "mesh": mesh}
    if "certified" in config.outputs:
        degrees, table = _degrees(plan, structure, row, leaves)
        columns |= _certified(certified_many(scenario, budget, degrees=degrees, table=table, **limits))
    flags = structure.scenario(bool(v) for v in structure.varies)
    varying, fixed = eqx.partition(scenario, flags)
    limits["max_accelerators"] = config.max_accelerators
    if "relaxed" in config.outputs:
        columns |= _relaxed(relaxed_many(varying, fixed, budget, **limits))
    if plan.elasticities:
        places = [None if n == "budget" else plan.place(structure, n) for n in plan.elasticities]
        slopes = elasticities_many(varying, fixed, budget, places, **limits)
        columns |= {f"elasticity.{n}": s for n, s in zip(plan.elasticities, slopes.T, strict=True)}
    return columns


def _degrees(
    plan: Plan, structure: Structure, row: np.ndarray, leaves: np.ndarray
) -> tuple[list[Any], np.ndarray]:
    """(distinct lists of legal degrees, which of them each scenario has)."""
    keys = np.column_stack([row, leaves[:, structure.shaping]])
    _, first, table = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return [plan.degrees_of(structure, int(row[i]), leaves[i]) for i in first], table.reshape(-1)


def _certified(found: Any) -> dict[str, np.ndarray]:
    columns = {"speed_tokens_per_s": found.speed, "cost_usd_per_million_tokens": found.cost}
    columns |= {f"layout.{d}": np.asarray(getattr(found.layout, d)) for d in _DEGREES}
    columns |= {"layout.partition": found.partition, "certificate.examined": found.examined.astype(float)}
    return columns | {"status": np.array(STATUSES)[found.status]}


def _relaxed(found: Any) -> dict[str, np.ndarray]:
    columns = {"relaxed.speed_tokens_per_s": found.speed}
    columns["relaxed.cost_usd_per_million_tokens"] = found.cost
    columns |= {f"relaxed.layout.{d}": np.asarray(getattr(found.layout, d)) for d in _DEGREES}
    columns |= {"relaxed.layout.partition": found.partition, "relaxed.residual": found.residual}
    return columns | {"relaxed.status": found.status, "shadow_price": found.shadow_price}
