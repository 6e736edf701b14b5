"""Measured rows: what is read, what is refused, and what the rows come to mean."""

from pathlib import Path

import numpy as np
import pytest

from jaxecon._errors import InputError
from jaxecon.calibration import case_of, read_measurements
from jaxecon.calibration._cases import blocks_of, fitting_batches
from jaxecon.calibration._names import accelerator_name, engine_name, precisions_of
from jaxecon.calibration._table import parse

ROWS = Path(__file__).parent / "data" / "serving_points.csv"
PLAIN = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm",
    "engine": "vllm",
    "tp": "4",
    "batch": "16",
    "tpot_ms": "20",
}


def _case(**changes: str):
    return case_of(parse(PLAIN | changes, 2))


def test_every_row_of_the_fixture_becomes_a_question():
    rows, bad = read_measurements(ROWS)
    assert not bad
    cases = [case_of(r) for r in rows]
    assert {c.engine for c in cases} == {"vllm", "tensorrt-llm", "sglang"}
    assert {c.dense for c in cases} == {True, False}
    for row, case in zip(rows, cases, strict=True):
        assert float(case.layout.accelerators) == row.n_gpus / row.replicas
        assert float(case.layout.batch) == row.batch / row.replicas


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tpot_ms": ""}, "'tpot_ms' is empty"),
        ({"tpot_ms": "0.01"}, "expected milliseconds"),
        ({"tpot_ms": "-3"}, "expected a positive number"),
        ({"batch": "many"}, "'batch' is 'many'"),
        ({"tp": "2.5"}, "expected a whole number"),
        ({"kind": "serving"}, "'kind' is 'serving'; did you mean 'serving_agg'"),
        ({"n_gpus": "9", "replicas": "2"}, "9 accelerators do not make 2 equal replicas"),
    ],
)
def test_bad_fields_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        parse(PLAIN | changes, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lama-3.1-70b"}, "unknown model 'lama-3.1-70b'; did you mean 'llama-3.1-70b'"),
        ({"gpu": "H1000"}, "unknown accelerator 'H1000'"),
        ({"weight_prec": "posit"}, "'weight_prec' is 'posit'; expected bf16"),
        ({"n_gpus": "6"}, "is not the 6 accelerators of a replica"),
        ({"spec_decode": "MTP two, often"}, "expected 'MTP<k>, acceptance length <a>'"),
    ],
)
def test_impossible_questions_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        _case(**changes)


def test_bad_rows_are_refused_or_skipped_by_line(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("model,gpu,batch,tpot_ms\nllama-3-8b,h100-sxm,1,8\nllama-3-8b,h100-sxm,1,\n")
    with pytest.raises(InputError, match="line 3: 'tpot_ms' is empty"):
        read_measurements(path)
    rows, bad = read_measurements(path, on_bad="skip")
    assert [r.line for r in rows] == [2]
    assert [b.line for b in bad] == [3]


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_measurements(tmp_path / "absent.csv")
    path = tmp_path / "points.csv"
    path.write_text("model,gpu,batch,tpot\nllama-3-8b,h100-sxm,1,8\n")
    with pytest.raises(InputError, match="lacks the column 'tpot_ms'"):
        read_measurements(path)
    path.write_text("model,gpu,batch,tpot_ms\nllama-3-8b,h100-sxm,1,\n")
    with pytest.raises(InputError, match="no usable row"):
        read_measurements(path, on_bad="skip")


def test_spellings():
    assert accelerator_name("H100-SXM-80GB") == "h100-sxm"
    assert accelerator_name("A100-SXM-40GB") == "a100-sxm-40gb"
    assert engine_name("TensorRT-LLM + Triton, open-loop") == "tensorrt-llm"
    assert engine_name("homegrown") == "other"
    assert precisions_of("moe nvfp4, gemm nvfp4", "not stated (usually fp8)") == (4.5, 4.5, 8.0, 4)
    assert precisions_of("bf16", "not stated (usually fp8)").kv == 16.0


def test_cores_of_an_accelerator_are_accelerators():
    whole = _case(gpu="inferentia2", engine="neuron", tp="24", n_gpus="12", model="llama-2-13b")
    assert float(whole.layout.tensor) == 24.0
    assert float(whole.accelerator.hbm_bandwidth) == pytest.approx(4.1e11)
    assert whole.context == 1536.0, "a static cache is read in full"


def test_no_more_sequences_decode_than_fit():
    cases = [_case(batch="100000"), _case(batch="2")]
    most, few = fitting_batches(cases, blocks_of(cases))
    assert few == 2.0
    case = cases[0]
    cache = float(case.model.kv_cache_bytes(case.allocated)) / 4
    room = 0.9 * float(case.accelerator.hbm_size) - float(case.model.total_parameters) * 2 / 4
    assert most == pytest.approx(room / cache, rel=0.05)
    assert np.isfinite(most)
