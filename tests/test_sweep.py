"""Sweeps end to end: right figures, whole files, and the same file after any interruption."""

import csv
import errno
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jaxecon as je
from jaxecon.sweep import _processes, run_sweep
from jaxecon.sweep import _store

ROOT = Path(__file__).resolve().parents[1]
CONFIG = """
budget = [0.2, 1.0]
rows_per_chunk = 64
seed = 5
max_accelerators = 64
[scenario]
model = ["llama-3.1-8b", "llama-3.1-70b"]
accelerator = "h100-sxm"
[sample]
count = 320
[axes]
"accelerator.hbm_bandwidth" = { low = "x0.5", high = "x2" }
"workload.context" = { low = 100, high = 100000, scale = "log" }
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(configuration, an uninterrupted result)."""
    folder = tmp_path_factory.mktemp("sweep")
    config, out = folder / "sweep.toml", folder / "whole.csv"
    config.write_text(CONFIG)
    summary = run_sweep(config, out)
    assert summary.rows == 1280 and summary.computed == summary.chunks == 20
    assert sorted(p.name for p in folder.iterdir()) == ["sweep.toml", "whole.csv", "whole.csv.json"]
    return config, out


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_are_those_of_single_searches(whole):
    rows = rows_of(whole[1])
    assert [int(r["row"]) for r in rows] == list(range(1280))
    for row in rows[::97]:
        scenario = je.Serving(
            je.load_model(row["model"]), je.load_accelerator(row["accelerator"]), je.Workload(4096)
        )
        names = ("accelerator.hbm_bandwidth", "workload.context")
        scenario = je.with_parameters(scenario, {k: float(row[k]) for k in names})
        try:
            best = je.certified_optimum(scenario, float(row["budget"]), max_accelerators=64)
        except je.InfeasibleError:
            assert row["status"] != "optimal" and row["speed_tokens_per_s"] == ""
            continue
        assert row["status"] == "optimal"
        assert float(row["speed_tokens_per_s"]) == pytest.approx(best.speed, rel=1e-14)
        assert int(row["layout.batch"]) == int(best.layout.batch)
        assert int(row["layout.tensor"]) == int(best.layout.tensor)
    assert {r["status"] for r in rows} >= {"optimal", "budget unreachable"}


def test_provenance(whole):
    record = json.loads(Path(f"{whole[1]}.json").read_text())
    rows = rows_of(whole[1])
    assert {r["config_sha256"] for r in rows} == {record["config_sha256"][:16]}
    assert {r["seed"] for r in rows} == {"5"} and {r["jaxecon_version"] for r in rows} == {je.__version__}


def test_a_complete_sweep_is_not_computed_again(whole):
    before = whole[1].stat().st_mtime_ns
    assert run_sweep(*whole).computed == 0 and whole[1].stat().st_mtime_ns == before


def command(config, out, cache, *words, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    main = [sys.executable, "-c", "from jaxecon.cli import main; main()", "sweep", str(config)]
    main += ["--out", str(out), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(main, env=environment, **pipes)


def chunks(out):
    return len(list(Path(f"{out}.parts").glob("*.csv")))


def until(done, process):
    """Wait for a condition while a process runs."""
    limit = time.monotonic() + 120
    while not done() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)


def test_killed_at_random_times(whole, tmp_path):
    config, expected = whole
    out, chance = tmp_path / "killed.csv", random.Random(0)
    for _ in range(3):
        process, seen = command(config, out, tmp_path / "cache"), chunks(out)
        until(lambda seen=seen: chunks(out) > seen, process)
        time.sleep(chance.uniform(0.0, 0.15))
        process.kill()
        process.communicate()
        assert not out.exists() or out.read_bytes() == expected.read_bytes()
    assert chunks(out) >= 3
    # The rest on two devices: the figures do not depend on how the work is divided.
    left = 20 - chunks(out)
    printed, _ = command(config, out, tmp_path / "cache", "--json", devices=2).communicate()
    assert json.loads(printed)["chunks_computed"] == left
    assert out.read_bytes() == expected.read_bytes()
    assert not Path(f"{out}.parts").exists()


def test_a_lost_process_ends_the_others_and_the_sweep_resumes(whole, tmp_path):
    config, expected = whole
    out = tmp_path / "lost.csv"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process")
    both = [command(config, out, tmp_path / "cache", *words, str(i)) for i in range(2)]
    until(lambda: chunks(out) >= 2, both[0])
    both[1].kill()
    _, said = both[0].communicate(timeout=100)
    both[1].communicate()
    if both[0].returncode == 0:  # it was done before the other was gone
        pytest.skip("the machine was too fast")
    assert both[0].returncode == 2 and "a process of this sweep was lost" in said
    done = chunks(out)
    assert run_sweep(config, out).computed == 20 - done
    assert out.read_bytes() == expected.read_bytes()


@pytest.fixture
def partial(whole, tmp_path, monkeypatch):
    """A sweep whose disk is full after three chunks."""
    out, flush = tmp_path / "partial.csv", _store._flush

    def full(path):
        if "00000003" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    with monkeypatch.context() as patch:
        patch.setattr(_store, "_flush", full)
        with pytest.raises(je.InputError, match="disk is full.*00000003.csv.*3 of 20 chunks are done"):
            run_sweep(whole[0], out)
    assert chunks(out) == 3 and not out.exists()
    assert not list(Path(f"{out}.parts").glob("*.tmp-*"))
    return whole[0], out, whole[1]


def test_full_disk_then_space(partial):
    config, out, expected = partial
    assert run_sweep(config, out).computed == 17
    assert out.read_bytes() == expected.read_bytes()


def test_corrupt_chunk_is_named(partial):
    config, out, expected = partial
    chunk = Path(f"{out}.parts") / "00000001.csv"
    content = chunk.read_bytes()
    for damage in (content[:-7], content.replace(b"h100", b"h200", 1), b""):
        chunk.write_bytes(damage)
        with pytest.raises(je.InputError, match="00000001.csv' is corrupt.*delete it"):
            run_sweep(config, out)
    chunk.unlink()
    assert run_sweep(config, out).computed == 18
    assert out.read_bytes() == expected.read_bytes()


def test_changed_config_is_named(partial, tmp_path):
    _, out, _ = partial
    changed = tmp_path / "changed.toml"
    changed.write_text(CONFIG.replace("0.2, 1.0", "0.2, 1.1"))
    with pytest.raises(je.InputError, match="another sweep"):
        run_sweep(changed, out)


def test_other_files_are_left_alone(whole, tmp_path):
    config, expected = whole
    out = tmp_path / "mine.csv"
    out.write_text("precious")
    with pytest.raises(je.InputError, match="no result of this sweep"):
        run_sweep(config, out)
    assert out.read_text() == "precious"
    changed = tmp_path / "changed.toml"
    changed.write_text(CONFIG.replace("seed = 5", "seed = 6"))
    with pytest.raises(je.InputError, match="another sweep"):
        run_sweep(changed, expected)
    with pytest.raises(je.InputError, match="no folder"):
        run_sweep(config, tmp_path / "absent" / "a.csv")
    with pytest.raises(je.InputError, match=".csv or .parquet"):
        run_sweep(config, tmp_path / "a.txt")


def test_a_second_run_at_the_same_time_is_refused(whole, tmp_path):
    config, out = whole[0], tmp_path / "twice.csv"
    refused = []

    def again(done, total):
        if done == 1:
            with pytest.raises(je.InputError, match="another process is writing"):
                run_sweep(config, out)
            refused.append(done)

    run_sweep(config, out, progress=again)
    assert refused == [1] and out.read_bytes() == whole[1].read_bytes()


def test_edited_results_are_noticed(whole, tmp_path):
    config, out = whole[0], tmp_path / "edited.csv"
    out.write_bytes(whole[1].read_bytes() + b"x")
    Path(f"{out}.json").write_text(Path(f"{whole[1]}.json").read_text())
    with pytest.raises(je.InputError, match="was changed"):
        run_sweep(config, out)


RELAXED = """
outputs = ["relaxed", "elasticities"]
budget = [0.3, 1.5]
max_accelerators = 64
[scenario]
model = "llama-3.1-8b"
accelerator = "h100-sxm"
[axes]
"accelerator.hbm_bandwidth" = ["x1", "x2"]
"""


def test_relaxed_and_elasticities(tmp_path):
    config, out = tmp_path / "relaxed.toml", tmp_path / "relaxed.csv"
    config.write_text(RELAXED)
    run_sweep(config, out)
    for row in rows_of(out):
        assert row["relaxed.status"] == "success" and float(row["relaxed.residual"]) < 1e-6
        assert float(row["relaxed.cost_usd_per_million_tokens"]) <= float(row["budget"]) * (1 + 1e-9)
        assert float(row["elasticity.budget"]) == pytest.approx(float(row["shadow_price"]), abs=1e-4)
    # Doubling the bandwidth multiplies speed by about 2 to the mean of both elasticities.
    speed = [float(r["relaxed.speed_tokens_per_s"]) for r in rows_of(out)]
    slope = [float(r["elasticity.accelerator.hbm_bandwidth"]) for r in rows_of(out)]
    for i in range(2):
        assert np.log(speed[i + 2] / speed[i]) / np.log(2) == pytest.approx(
            (slope[i] + slope[i + 2]) / 2, abs=0.03
        )


def test_parquet(whole, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    out = tmp_path / "sweep.parquet"
    run_sweep(whole[0], out)
    table = parquet.read_table(out)
    rows = rows_of(whole[1])
    assert table.num_rows == len(rows)
    speed = [float(r["speed_tokens_per_s"] or "nan") for r in rows]
    np.testing.assert_array_equal(np.array(table["speed_tokens_per_s"].to_pylist(), float), speed)
    assert b"jaxecon.config_sha256" in table.schema.metadata


def test_parquet_without_pyarrow(whole, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(je.InputError, match="pyarrow"):
        run_sweep(whole[0], tmp_path / "sweep.parquet")
    assert not list(tmp_path.iterdir())


def test_processes_need_their_options(monkeypatch):
    from jaxecon.cli._sweep import _processes as chosen

    with pytest.raises(je.InputError, match="--process too"):
        chosen(("localhost:1", 2, None), False)
    with pytest.raises(je.InputError, match="below --processes"):
        chosen(("localhost:1", 2, 2), False)
    with pytest.raises(je.InputError, match="HOST:PORT"):
        chosen(("localhost", 2, 1), False)
    assert chosen((None, None, None), False) == _processes.Processes()
