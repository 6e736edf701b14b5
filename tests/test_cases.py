"""Inputs on which public estimators, planners and engines failed, each named after the fault."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._numerics import EXACT, one_minus_power
from jaxecon.cost._serving_layer import Share, attention_core
from jaxecon.scenarios import request_time, time_per_output_token, why_illegal

FIELDS = ("tensor", "pipeline", "expert", "data", "batch")


def serving(name="llama-3.1-70b", machine="h100-sxm", context=4096, model=None, **options):
    output = options.pop("output", 512)
    model = model or je.load_model(name)
    accelerator = je.load_accelerator(machine, price_per_hour=2.0)
    return je.Serving(model, accelerator, je.Workload(context, output), **options)


def test_01_405b_has_8_kv_heads_not_16():
    model = je.load_model("llama-3.1-405b")
    assert int(model.total_parameters) == 405_853_388_800
    assert int(model.kv_cache_bytes(1)) == 516_096


def test_02_deepseek_cache_has_the_rotary_part_and_all_61_layers():
    model = je.load_model("deepseek-v3")
    assert int(model.total_parameters) == 671_026_419_200
    assert int(model.kv_cache_bytes(1)) == 70_272


def test_03_gated_feed_forward_has_three_matrices():
    assert int(je.load_model("llama-2-7b").total_parameters) == 6_738_415_616
    assert int(je.load_model("llama-2-70b").total_parameters) == 68_976_648_192


def test_04_tied_embeddings_are_stored_once_and_norms_are_whole_on_every_rank():
    model = je.load_model("llama-3.2-1b")
    assert model.tied and float(model.embedding_parameters) == 128_256 * 2048
    ledgers = [serving(model=model).ledger(je.Layout(tensor=float(t))) for t in (1, 8)]
    vectors = 2.0 * (16 * 2 * 2048 + 2048)
    whole, eighth = (float(x.weights) for x in ledgers)
    assert eighth - vectors == pytest.approx((whole - vectors) / 8, rel=1e-12)


def test_05_experts_use_their_own_width_and_flop_counts_active_ones():
    model = je.load_model("deepseek-v3")
    moe = model.groups[-1].feed_forward
    assert float(moe.hidden) == 2048 and float(moe.shared_hidden) == 2048
    assert int(model.active_parameters) == 37_552_297_472


@pytest.mark.parametrize("value", [None, 0])
def test_06_no_experts_means_dense_and_does_not_crash(value, tmp_path):
    config = {"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "num_experts": value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = je.load_model(tmp_path)
    assert isinstance(model.groups[0].feed_forward, je.DenseFeedForward)
    assert je.certified_optimum(serving(model=model), 10.0, max_accelerators=2).speed > 0


def test_07_experts_divide_by_both_expert_degrees():
    """384 experts at expert degree 8 are 48 on each rank, halved again by expert tensor degree 2."""
    model = je.load_model("kimi-k2.5")
    feed = model.groups[-1].feed_forward
    assert float(feed.experts) == 384
    layers, one = float(model.groups[-1].count), float(feed.expert_matrix_parameters(model.width))
    without = eqx.tree_at(lambda m: m.groups[-1].feed_forward.hidden, model, jnp.asarray(0.0))
    for degrees, experts in (({"data": 8.0, "expert": 8.0}, 48), ({"data": 16.0, "expert": 8.0}, 24)):
        layout = je.Layout(**degrees, batch=16.0)
        stored = [float(serving(model=m).ledger(layout).weights) for m in (model, without)]
        expected = experts * layers * one * float(model.precision.expert)
        assert stored[0] - stored[1] == pytest.approx(expected, rel=1e-9)


def test_08_shared_expert_model_is_not_four_times_too_large():
    for bits in (8, 16):
        model = je.load_model("glm-4.5-air", weight_bits=bits)
        stored = float(serving(model=model).ledger(je.Layout()).weights)
        assert stored == pytest.approx(106.85e9 * bits / 8, rel=0.02)


def test_09_an_unknown_activation_is_no_reason_to_refuse(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "vocab_size": 100, "hidden_act": "newfangled"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert float(je.load_model(tmp_path).total_parameters) > 0


def test_10_head_width_is_not_width_over_heads():
    assert int(je.load_model("qwen3-4b").kv_cache_bytes(1)) == 147_456


def test_11_grouped_query_decode_reads_each_kv_head_once():
    model = je.load_model("llama-3.1-70b")
    one = jnp.asarray(1.0)
    work = attention_core(model, model.groups[0], Share(one, one, one, jnp.asarray(1000.0)), EXACT)
    assert float(work.bytes) == 2 * 8 * 128 * 2 * 1000


def test_12_half_the_layers_have_a_window():
    cache = float(je.load_model("gpt-oss-120b", kv_bits=8).kv_cache_bytes(65_935))
    assert cache / 2**30 == pytest.approx(1.134, abs=5e-4)


def test_13_windows_shrink_the_cache_to_a_sixth():
    cache = float(je.load_model("gemma-3-27b-it").kv_cache_bytes(131_072))
    assert cache / (62 * 2 * 16 * 128 * 2 * 131_072) == pytest.approx(0.168, abs=5e-4)


def test_14_latent_cache_is_replicated_on_every_tensor_rank():
    scenario = serving("deepseek-v3")
    ledgers = [scenario.ledger(je.Layout(tensor=float(t), batch=4.0)) for t in (1, 2, 16)]
    assert len({float(x.kv_cache) for x in ledgers}) == 1


def test_15_kv_heads_are_replicated_not_split_below_one():
    scenario = serving("qwen3-30b-a3b")
    assert float(scenario.model.groups[0].mixer.kv_heads) == 4
    caches = [float(scenario.ledger(je.Layout(tensor=float(t))).kv_cache) for t in (4, 8, 16)]
    assert caches[0] == caches[1] == caches[2]


def test_16_data_parallelism_does_not_shrink_one_requests_cache():
    """One sequence a rank needs its whole cache there, whatever the number of data ranks."""
    scenario = serving("deepseek-v3")
    caches = [float(scenario.ledger(je.Layout(data=d, batch=d)).kv_cache) for d in (1.0, 4.0, 16.0)]
    assert caches[0] == caches[1] == caches[2]
    whole = scenario.model.kv_cache_bytes(scenario.workload.full_context)
    assert caches[0] == pytest.approx(float(whole))


def test_17_capacity_counts_the_whole_batch_not_one_microbatch():
    scenario = serving()
    staged = scenario.ledger(je.Layout(tensor=1.0, pipeline=8.0, batch=64.0))
    whole = float(scenario.model.kv_cache_bytes(scenario.workload.full_context)) * 64
    assert float(staged.kv_cache) * 8 == pytest.approx(whole, rel=1e-12)


def test_18_the_cache_of_one_token_is_not_a_constant_rate():
    model = je.load_model("gemma-3-27b-it")
    steps = np.diff([float(model.kv_cache_bytes(x)) for x in (1000, 1001, 9000, 9001)])
    assert steps[2] < steps[0] / 5
    assert float(je.load_model("mamba-2.8b").kv_cache_bytes(10)) == float(
        je.load_model("mamba-2.8b").kv_cache_bytes(10_000)
    )


@pytest.mark.parametrize(("name", "n"), [("llama-3.1-405b", 1), ("deepseek-v3", 2)])
def test_19_a_model_that_fits_nowhere_says_what_it_needs(name, n):
    with pytest.raises(je.InfeasibleError, match="needs .* GB per accelerator, which has 85.9 GB"):
        je.certified_optimum(serving(name), 100.0, max_accelerators=n)


def test_20_a_draft_adds_its_own_memory_and_no_multiple_of_the_target():
    speculation = je.Speculation(je.load_model("llama-3.1-8b"), 0.7, max_draft_tokens=8)
    layout = je.Layout(tensor=8.0, batch=8.0, draft_tokens=4.0)
    with_draft, without = serving(speculation=speculation).ledger(layout), serving().ledger(layout)
    assert float(with_draft.kv_cache) == float(without.kv_cache)
    assert 2e9 < float(with_draft.draft) < 3e9


def test_21_activations_grow_with_tokens_in_flight_and_do_not_reject_small_models():
    scenario = serving("llama-3.2-1b", "l4")
    ledgers = [scenario.ledger(je.Layout(batch=b)) for b in (1.0, 64.0)]
    assert float(ledgers[1].activations) == pytest.approx(64 * float(ledgers[0].activations))
    assert je.certified_optimum(scenario, 10.0).speed > 0


def test_22_the_reported_batch_fits():
    found = je.certified_optimum(serving(), 0.6)
    assert float(serving().memory_margin(found.layout)) >= 0


def test_23_gigabytes_are_1e9_bytes_and_said_to_be():
    """80 GiB are 85.9 GB, and a figure in GB is never one in GiB."""
    assert float(serving().accelerator.hbm_size) == 80 * 2**30
    with pytest.raises(je.InfeasibleError, match="which has 85.9 GB"):
        je.certified_optimum(serving("llama-3.1-405b"), 1.0, max_accelerators=1)


def test_24_newer_chip_with_the_same_memory_is_not_slower():
    older, newer = (je.load_accelerator(n) for n in ("b200-sxm", "b300-sxm"))
    assert float(newer.hbm_bandwidth) >= float(older.hbm_bandwidth)


def test_25_low_precision_peaks_are_no_fixed_multiple():
    b300 = je.load_accelerator("b300-sxm")
    assert float(b300.peak.at(4)) > 13e15 and float(b300.peak.at(16)) == 2.25e15


def test_26_domain_size_comes_from_the_spec():
    assert float(je.load_accelerator("gb200-nvl72").network.domain_size) == 72
    inside = serving(machine="gb200-nvl72").step_time(je.Layout(tensor=64.0, batch=8.0))
    outside = serving(machine="b200-sxm").step_time(je.Layout(tensor=64.0, batch=8.0))
    assert float(inside.network_bandwidth) < float(outside.network_bandwidth)


def test_27_degrees_that_engines_refuse_are_named():
    assert "28 attention heads" in str(why_illegal(serving("qwen2.5-7b"), je.Layout(tensor=8.0)))
    uneven = why_illegal(serving("llama-2-13b"), je.Layout(pipeline=3.0, batch=3.0))
    assert "40 layers" in str(uneven) and "3 even stages" in str(uneven)


def test_27_experts_split_over_their_divisors_only():
    reason = why_illegal(serving("deepseek-v3"), je.Layout(data=3.0, expert=3.0, batch=3.0))
    assert "256 experts" in str(reason) and "over 3 ranks" in str(reason)
    for layouts in serving("deepseek-v3").degrees(48):
        assert np.all(256 % np.asarray(layouts.expert) == 0)
        ranks = np.asarray(layouts.tensor * layouts.data)
        assert np.all(ranks % np.asarray(layouts.expert) == 0)


@pytest.mark.parametrize(
    ("degrees", "says"),
    [
        ({"data": 4.0, "expert": 3.0}, "does not divide tensor x data = 4"),
        ({"tensor": 32.0}, "quantization blocks"),
        ({"data": 64.0, "expert": 2.0}, "expert tensor degree 32"),
        ({"data": 8.0, "expert": 8.0, "batch": 4.0}, "8 data ranks"),
    ],
)
def test_27_degrees_of_sparse_models_that_engines_refuse_are_named(degrees, says):
    reason = why_illegal(serving("deepseek-v3"), je.Layout(**{"batch": 64.0} | degrees))
    assert says in str(reason)


def test_27_nothing_refused_is_ever_proposed():
    for name in ("deepseek-v3", "gpt-oss-120b", "mixtral-8x7b-v0.1", "qwen3-next-80b-a3b"):
        scenario = serving(name)
        (layouts,) = scenario.degrees(64)
        rows = zip(*(np.asarray(getattr(layouts, k)) for k in FIELDS), strict=True)
        for row in list(rows)[::7]:
            layout = je.Layout(**{k: float(v) for k, v in zip(FIELDS, row, strict=True)})
            assert why_illegal(scenario, layout) is None


def test_28_accelerators_are_the_product_of_the_degrees():
    layout = je.certified_optimum(serving(), 1.0).layout
    assert float(layout.accelerators) == float(layout.tensor * layout.pipeline * layout.data)


def test_29_a_quantization_block_divides_the_sharded_width():
    scenario = serving("qwen3-32b-fp8")
    assert scenario.model.precision.block == 128
    degrees = {float(t) for t in scenario.degrees(64)[0].tensor}
    assert all((25600 / t) % 128 == 0 for t in degrees) and 16.0 not in degrees


def test_30_pools_may_have_different_degrees():
    scenario = serving("deepseek-v3", "h200-sxm", context=2000)
    found = je.disaggregated_optimum(scenario, 3.0, max_accelerators=32)
    assert found.cost <= 3.0 and found.decode.cost < found.cost
    degrees = [float(getattr(found.prefill, k)) for k in FIELDS[:4]]
    assert degrees != [float(getattr(found.decode.layout, k)) for k in FIELDS[:4]]
    assert why_illegal(scenario, found.prefill) is None


def test_31_one_output_token_is_valid():
    found = je.certified_optimum(serving(output=1), 2.0)
    assert np.isfinite(found.speed) and np.isfinite(found.cost)


def test_31_one_output_token_with_prompts_in_the_same_replica():
    scenario = serving(output=1, chunk_tokens=1024.0)
    found = je.certified_optimum(scenario, 1000.0, max_accelerators=8)
    assert np.isfinite(found.speed) and np.isfinite(found.cost)
    first = scenario.time_to_first_token(found.layout)
    whole = request_time(scenario.workload, first, jnp.asarray(found.speed))
    assert float(whole) == float(first)
    assert float(time_per_output_token(scenario.workload, first, whole)) == 0.0


def test_32_expected_distinct_experts():
    touched = 8 * one_minus_power(jnp.asarray(0.75), jnp.asarray(3.0))
    assert float(touched) == pytest.approx(4.625)


def test_33_every_tensor_parallel_layer_pays_its_all_reduces():
    time = serving().step_time(je.Layout(tensor=8.0, batch=8.0))
    assert float(time.network_latency) >= 2 * 80 * 6.8e-6


def test_34_time_depends_on_batch_even_for_short_outputs():
    scenario = serving(output=4)
    times = [float(scenario.step_time(je.Layout(tensor=8.0, batch=b)).total) for b in (8.0, 64.0)]
    assert times[1] > times[0]


def test_35_prompts_take_time_by_their_length():
    layout = je.Layout(tensor=8.0, batch=8.0)
    times = []
    for prompt in (1.0, 2048.0, 4096.0):
        work = je.Workload(4096.0, 512.0, prompt=prompt)
        machine = je.load_accelerator("h100-sxm")
        scenario = je.Serving(je.load_model("llama-3.1-70b"), machine, work)
        times.append(float(scenario.time_to_first_token(layout)))
    assert times[1] > 5 * times[0] and 1.9 < times[2] / times[1] < 2.2


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.0, 1.0), (1.0, 5.0), (0.5, 1.9375)])
def test_36_acceptance_of_zero_and_one_are_valid(acceptance, tokens):
    speculation = je.Speculation(je.load_model("llama-3.1-8b"), acceptance)
    layout = je.Layout(tensor=8.0, draft_tokens=4.0)
    scenario = serving(speculation=speculation)
    assert float(scenario.tokens_per_step(layout)) == pytest.approx(tokens)
    plain = serving().step_time(je.Layout(tensor=8.0))
    assert float(scenario.step_time(layout).total) > float(plain.total)


def test_37_a_bound_is_never_above_the_time():
    """With full rates or with those fitted to measurements, whatever binds."""
    for name, layout in (
        ("llama-3.1-70b", je.Layout(tensor=8.0, batch=64.0)),
        ("deepseek-v3", je.Layout(data=16.0, expert=16.0, batch=1024.0)),
        ("qwen3-next-80b-a3b", je.Layout(tensor=2.0, data=2.0, expert=4.0, batch=32.0)),
    ):
        fitted = serving(name, overlap=1.0)
        plain = eqx.tree_at(
            lambda s: (s.accelerator.arithmetic_efficiency, s.accelerator.memory_efficiency),
            fitted,
            (jnp.ones(()), jnp.ones(())),
        )
        time, bound = fitted.step_time(layout), plain.step_time(layout).roofline_bound
        assert float(bound) <= float(time.roofline_bound) <= float(time.total)


def test_38_time_per_output_token_leaves_the_first_out():
    work, first = je.Workload(1000.0, 101.0), jnp.asarray(2.0)
    whole = request_time(work, first, jnp.asarray(50.0))
    assert float(whole) == pytest.approx(4.0)
    assert float(time_per_output_token(work, first, whole)) == pytest.approx(0.02)


def test_39_throughput_per_accelerator_of_both_pools_and_of_one():
    scenario = serving("deepseek-v3", "h800-sxm")
    decode, prefill = je.Layout(data=64.0, expert=64.0, batch=2048.0), je.Layout(tensor=8.0, batch=1.0)
    found = je.pools(scenario, decode, prefill)
    alone, overall = float(found.per_decode_accelerator), float(found.per_accelerator)
    share = 64.0 / (64.0 + 8.0 * float(found.ratio))
    assert overall == pytest.approx(alone * share) and overall < alone
    # The ratio keeps both pools busy: requests that begin are prompts that end.
    begun = 64.0 * alone / float(scenario.workload.output)
    assert begun == pytest.approx(float(found.ratio) / float(scenario.prompt_time(prefill)))


def test_40_outside_the_frontier_the_nearest_is_named():
    with pytest.raises(je.InfeasibleError, match="unreachable: the cheapest layout costs"):
        je.certified_optimum(serving(), 1e-4)
    with pytest.raises(je.InfeasibleError, match="unreachable: the fastest layout gives"):
        je.cheapest_at_speed(serving(), 1e5)
