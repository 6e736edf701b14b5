"""Inputs on which public estimators, planners and engines failed, each named after the fault."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._numerics import EXACT, one_minus_power
from jaxecon.cost._serving_layer import Share, attention_core
from jaxecon.scenarios import why_illegal


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


def test_08_shared_expert_model_is_not_four_times_too_large():
    for bits in (8, 16):
        model = je.load_model("glm-4.5-air", weight_bits=bits)
        stored = float(serving(model=model).ledger(je.Layout()).weights)
        assert stored == pytest.approx(106.85e9 * bits / 8, rel=0.02)


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


def test_28_accelerators_are_the_product_of_the_degrees():
    layout = je.certified_optimum(serving(), 1.0).layout
    assert float(layout.accelerators) == float(layout.tensor * layout.pipeline * layout.data)


def test_29_a_quantization_block_divides_the_sharded_width():
    scenario = serving("qwen3-32b-fp8")
    assert scenario.model.precision.block == 128
    degrees = {float(t) for t in scenario.degrees(64)[0].tensor}
    assert all((25600 / t) % 128 == 0 for t in degrees) and 16.0 not in degrees


def test_31_one_output_token_is_valid():
    found = je.certified_optimum(serving(output=1), 2.0)
    assert np.isfinite(found.speed) and np.isfinite(found.cost)


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


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.0, 1.0), (1.0, 5.0), (0.5, 1.9375)])
def test_36_acceptance_of_zero_and_one_are_valid(acceptance, tokens):
    speculation = je.Speculation(je.load_model("llama-3.1-8b"), acceptance)
    layout = je.Layout(tensor=8.0, draft_tokens=4.0)
    scenario = serving(speculation=speculation)
    assert float(scenario.tokens_per_step(layout)) == pytest.approx(tokens)
    plain = serving().step_time(je.Layout(tensor=8.0))
    assert float(scenario.step_time(layout).total) > float(plain.total)


def test_40_outside_the_frontier_the_nearest_is_named():
    with pytest.raises(je.InfeasibleError, match="unreachable: the cheapest layout costs"):
        je.certified_optimum(serving(), 1e-4)
    with pytest.raises(je.InfeasibleError, match="unreachable: the fastest layout gives"):
        je.cheapest_at_speed(serving(), 1e5)
