"""Measured rows: what is read, what is refused, and what the rows come to mean."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._errors import InputError
from jaxecon._numerics import EXACT
from jaxecon.calibration import case_of, read_measurements
from jaxecon.calibration._cases import blocks_of, fitting_batches
from jaxecon.calibration._design import works_of
from jaxecon.calibration._names import accelerator_name, engine_name, precisions_of
from jaxecon.calibration._sharing import least_prompt_flop
from jaxecon.calibration._table import parse
from jaxecon.cost._serving_layer import Share, attention_core

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
        ({"out_tok_s_per_gpu": "0"}, "'out_tok_s_per_gpu' is '0'; expected a positive number, output"),
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


def _load(**changes: str) -> float:
    """16 requests of 15000 + 500 tokens at 5 ms would put out 800 tokens/s on each of 4."""
    base = {"tpot_ms": "5", "isl": "15000", "osl": "500", "out_tok_s_per_gpu": "700"}
    return _case(**base | changes).prompt_load


def test_a_stated_rate_says_how_much_of_the_peak_its_prompts_need():
    needed = 700 / 500 * 15000 * 2 * 68.5e9  # 80 layers of 855,638,016 matrix weights
    assert _load() == pytest.approx(needed / 1979e12, rel=2e-3)
    assert _load(weight_prec="fp8") == _load(weight_prec="bf16"), "the highest rate of any operand width"
    assert _load(replicas="2", n_gpus="8", batch="32") == pytest.approx(_load())
    assert _load(isl="30000") == pytest.approx(2 * _load())


@pytest.mark.parametrize(
    "changes",
    [
        {"out_tok_s_per_gpu": ""},
        {"kind": "decode_steady"},
        {"kind": "serving_disagg"},
        {"out_tok_s_per_gpu": "25000"},
    ],
)
def test_nothing_is_proven_without_a_rate_of_output_tokens(changes):
    """No rate; prompts ingested elsewhere; more than one token per request and 5 ms."""
    assert _load(**changes) == 0.0


def test_only_active_weights_of_a_prompt_token_count():
    flop = {name: least_prompt_flop(je.load_model(name)) for name in ("llama-3.1-8b", "mixtral-8x7b-v0.1")}
    assert flop["llama-3.1-8b"] == 2 * 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    experts = 32 * (4096 * (2 * 4096 + 2 * 1024) + 2 * 3 * 4096 * 14336 + 8 * 4096)
    assert flop["mixtral-8x7b-v0.1"] == 2 * experts


def test_rows_beyond_the_peak_share_their_prompts_and_no_others():
    base = {"batch": "300", "tpot_ms": "5", "isl": "15000", "osl": "500"}
    below, above, silent = (_case(**base | {"out_tok_s_per_gpu": r}) for r in ("400", "12000", ""))
    assert below.prompt_load < 1.0 < above.prompt_load
    assert (below.shared, above.shared, silent.shared) == (0.0, 15000.0, 0.0)
    assert below.aggregated and silent.aggregated and not above.aggregated
    assert above._replace(prompt_load=0.0, shared=0.0, aggregated=True)[2:] == silent[2:]


def test_shared_prompts_are_stored_once_and_read_once_a_step():
    base = {"batch": "300", "tpot_ms": "5", "isl": "15000", "osl": "500", "attn_dp": "2", "n_gpus": "8"}
    shared, plain = (_case(**base | {"out_tok_s_per_gpu": r}) for r in ("6000", ""))
    batches = fitting_batches([shared, plain], blocks_of([shared, plain]))
    assert batches[0] == 300.0 and batches[1] < 150.0

    cases = [shared, plain, plain._replace(context=250.0), plain._replace(context=15000.0)]
    blocks = blocks_of(cases)
    work = works_of(blocks, np.asarray([300.0, 300.0, 300.0, 2.0])).decode
    attention = np.asarray([kind == "attention" for kind in work.kinds])
    own, whole, output, prefix = (work.memory * attention).sum(axis=1)
    assert own == pytest.approx(output + prefix), "150 sequences' own tokens and one prompt on a data rank"
    assert whole > 10 * own
    np.testing.assert_array_equal(work.memory[0, ~attention], work.memory[1, ~attention])
    np.testing.assert_array_equal(work.arithmetic[0], work.arithmetic[1])


def test_windows_read_less_of_what_is_shared():
    model = je.load_model("gemma-3-27b-it")
    group = next(g for g in model.groups if g.mixer.window is not None)
    one, window = jnp.ones(()), float(group.mixer.window)

    def elements(shared):
        share = Share(one, 8.0 * one, one, 5000.0 * one, shared=shared)
        return float(attention_core(model, group, share, EXACT).bytes)

    none, zero, some, most = elements(None), *(elements(jnp.asarray(x)) for x in (0.0, 4900.0, 5000.0))
    assert none == zero
    assert some / none == pytest.approx((8 * 100 + window - 100) / (8 * window))
    assert most / none == pytest.approx(1 / 8)
