"""Agreement with the published tables to a relative 1e-9, infeasible points included."""

import collections
import csv
import json

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._numerics import EXACT
from jaxecon.cost._collectives import collective_time
from jaxecon.cost._erdil_september import memory_bytes
from jaxecon.scenarios._fields import accelerator_from_fields

TABLES = {
    "2024-09": ("erdil2025_specs.json", "erdil2025_step_times.csv"),
    "2025-05": ("erdil2025_may_specs.json", "erdil2025_may_step_times.csv"),
}


def _groups(folder, revision):
    specs, table = TABLES[revision]
    groups = collections.defaultdict(list)
    with open(folder / table) as file:
        for row in csv.DictReader(file):
            key = row["model"], row["accelerator"], row["context"], row["tokens_per_step"]
            groups[key].append(row)
    return json.loads((folder / specs).read_text()), groups


def _column(rows, name):
    return np.array([float(r[name]) if r[name] else np.inf for r in rows])


def _padded(values, size=64):
    return np.resize(values, size)


def _agree(found, stated):
    found = np.asarray(found)[: len(stated)]
    np.testing.assert_array_equal(np.isinf(found), np.isinf(stated))
    finite = np.isfinite(stated)
    np.testing.assert_allclose(found[finite], stated[finite], rtol=1e-9)


@pytest.mark.parametrize("revision", list(TABLES))
def test_step_times(reference, revision):
    specs, groups = _groups(reference, revision)
    seen = 0
    for (model, accelerator, context, queries), rows in groups.items():
        arguments = specs["models"][model], specs["accelerators"][accelerator]
        options = {"context": float(context), "tokens_per_step": int(queries)}
        scenario = je.Erdil2025.from_fields(*arguments, revision=revision, **options)
        n, batch = _padded(_column(rows, "n_gpus")), _padded(_column(rows, "batch"))
        assert len(rows) <= len(n)
        _agree(scenario.best_step_time(n, batch), _column(rows, "step_time_search_s"))
        if revision == "2025-05":
            _agree(scenario.unscaled_step_time(n, batch), _column(rows, "step_time_unscaled_s"))
        else:
            _agree(scenario.section35_step_time(n, batch), _column(rows, "step_time_section35_s"))
            toy = je.Toy.from_fields(*arguments, **options)
            _agree(toy.best_step_time(n, batch), _column(rows, "step_time_toy_s"))
            _agree_counts(scenario, n, batch, int(queries), rows)
        seen += len(rows)
    assert seen == {"2024-09": 1500, "2025-05": 1000}[revision]


def _agree_counts(scenario, n, batch, queries, rows):
    context = scenario.workload.context
    flop = scenario.model.flop(context, jnp.asarray(batch * queries))
    _agree(flop, _column(rows, "arithmetic_flop"))
    root = jnp.asarray(np.sqrt(n))
    tokens = jnp.asarray(batch * queries)
    traffic = memory_bytes(scenario.model, context, jnp.asarray(batch), tokens, root, root)
    _agree(traffic, _column(rows, "memory_bytes_2d"))


def test_collectives(reference):
    specs = json.loads((reference / "erdil2025_specs.json").read_text())
    network = accelerator_from_fields(specs["accelerators"]["H100"], 16).network
    with open(reference / "erdil2025_collectives.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    for kind in ("allreduce", "p2p"):
        part = [r for r in rows if r["collective"] == kind]
        ranks, nodes, size = (jnp.asarray(_column(part, k)) for k in ("ranks", "nodes", "bytes"))
        found = collective_time(network, ranks, nodes, size, EXACT, all_reduce=kind == "allreduce")
        _agree(found[0], _column(part, "latency_s"))
        _agree(found[1], _column(part, "bandwidth_s"))


def test_frontiers(reference):
    specs = json.loads((reference / "erdil2025_specs.json").read_text())
    settings = json.loads((reference / "erdil2025_frontiers.json").read_text())
    assert len(settings) == 16
    for s in settings:
        draft = specs["models"][s["draft"]] if s["draft"] else None
        scenario = je.Erdil2025.from_fields(
            specs["models"][s["model"]],
            specs["accelerators"][s["accelerator"]],
            context=s["context"],
            draft=draft,
            acceptance=s["acceptance"],
            gamma_max=s["gamma_max"],
        )
        n, batch = (_padded(np.array(s[k]), 256) for k in ("n_accelerators", "batch"))
        time = np.asarray(scenario.best_step_time(n, batch))
        count = len(s["batch"])
        _agree(1.0 / time[:count], np.array(s["speed_tokens_per_s"]))
        cost = 1e6 * n * float(scenario.accelerator.price) * time / batch
        _agree(cost[:count], np.array(s["cost_usd_per_million"]))
