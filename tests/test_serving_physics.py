"""Decoding of sparse models: what each degree divides, repeats and sends."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from jaxecon._numerics import EXACT, Smooth
from jaxecon.cost._serving_layer import Share, attention_core, feed_forward, groups_reached


def serving(name="deepseek-v3", machine="h800-sxm", context=4096, **options):
    model = je.load_model(name) if isinstance(name, str) else name
    accelerator = je.load_accelerator(machine, price_per_hour=2.0)
    return je.Serving(model, accelerator, je.Workload(context, 512), **options)


def layout(**degrees):
    return je.Layout(**{k: float(v) for k, v in degrees.items()})


def share(model, **fields):
    values = {"tensor": 1.0, "sequences": 1.0, "queries": 1.0, "context": 1000.0} | fields
    return Share(**{k: jnp.asarray(v) for k, v in values.items()})


def test_data_ranks_keep_whole_sequences_and_share_experts():
    scenario = serving()
    alone, four = (scenario.ledger(layout(data=d, expert=d, batch=64)) for d in (1, 4))
    assert float(four.kv_cache) == pytest.approx(float(alone.kv_cache) / 4)
    feed = scenario.model.groups[-1].feed_forward
    experts = 58 * 256 * float(feed.expert_matrix_parameters(scenario.model.width))
    assert float(alone.weights - four.weights) == pytest.approx(0.75 * experts, rel=1e-9)


@pytest.mark.parametrize("degrees", [{"tensor": 8}, {"data": 8}, {"tensor": 2, "data": 4}])
@pytest.mark.parametrize("expert", [1, 2, 8])
def test_expert_weights_divide_by_both_expert_degrees(degrees, expert):
    """expert x expert tensor = tensor x data, so the bytes a rank do not depend on the split."""
    scenario = serving(context=10)
    split = scenario.ledger(layout(expert=expert, **degrees))
    whole = scenario.ledger(layout(**degrees))
    assert float(split.weights) == pytest.approx(float(whole.weights), rel=1e-12)


def test_tokens_reach_few_expert_groups_when_there_are_few():
    active = jnp.asarray(8.0)
    reached = [float(groups_reached(active, jnp.asarray(x))) for x in (1.0, 2.0, 1e6)]
    assert reached == pytest.approx([1.0, 2 - 2**-7, 8.0], rel=1e-4)


def test_flop_of_experts_do_not_depend_on_the_layout_unless_unbalanced():
    model = je.load_model("deepseek-v3")
    group = model.groups[-1]

    def flop(**fields):
        return float(feed_forward(model, group, share(model, **fields)).experts.flop)

    whole = flop(sequences=64.0)
    assert flop(sequences=8.0, data=8.0, expert=8.0) == pytest.approx(whole / 8)
    assert flop(sequences=64.0, tensor=8.0, expert=2.0) == pytest.approx(whole / 8)
    uneven = flop(sequences=8.0, data=8.0, expert=8.0, imbalance=1.4)
    assert uneven == pytest.approx(whole / 8 * (1 + 0.4 * 7 / 8))
    feed = group.feed_forward
    assert whole == pytest.approx(2 * 8 * 64 * float(feed.expert_matrix_parameters(model.width)))


def test_one_data_rank_with_tensor_parallel_experts_pays_two_all_reduces_a_layer():
    """The exchange may be quicker than the second all-reduce, never slower."""
    scenario = serving("qwen3-30b-a3b")
    sparse = scenario.step_time(layout(tensor=4, batch=4))
    dense = je.Model(
        scenario.model.width,
        scenario.model.vocabulary,
        (je.LayerGroup(48, scenario.model.groups[0].mixer, je.DenseFeedForward(768)),),
    )
    other = serving(dense).step_time(layout(tensor=4, batch=4))
    for part in ("network_latency", "network_bandwidth"):
        assert float(getattr(sparse, part)) <= float(getattr(other, part)) * (1 + 1e-12)


def test_data_parallel_attention_needs_no_all_reduce_but_an_exchange():
    scenario = serving()
    quiet = scenario.step_time(layout(batch=8))
    assert float(quiet.network_latency + quiet.network_bandwidth) == 0.0
    spread = scenario.step_time(layout(data=8, expert=8, batch=64))
    assert float(spread.network_latency) > 0 and float(spread.network_bandwidth) > 0
    wide = serving(je.load_model("deepseek-v3", dispatch_bits=8)).step_time(
        layout(data=8, expert=8, batch=64)
    )
    assert float(wide.network_bandwidth) < float(spread.network_bandwidth)


def test_large_domains_make_wide_expert_parallelism_quicker():
    degrees = layout(data=64, expert=64, batch=4096)
    far, near = (serving(machine=m).step_time(degrees) for m in ("b200-sxm", "gb200-nvl72"))
    assert float(near.network_bandwidth) < 0.5 * float(far.network_bandwidth)


def test_overlap_hides_the_shorter_of_communication_and_work():
    degrees = layout(tensor=8, batch=64)
    apart, half, beside = (serving(overlap=o).step_time(degrees) for o in (0.0, 0.5, 1.0))
    wire = float(apart.network_latency + apart.network_bandwidth)
    busy = float(apart.total - apart.launch) - wire
    assert float(beside.total) == pytest.approx(float(apart.launch) + max(wire, busy))
    assert float(half.total) == pytest.approx(0.5 * float(apart.total + beside.total))


def test_efficiencies_slow_their_own_operation_group():
    scenario, degrees = serving("llama-3.1-70b"), layout(tensor=8, batch=8)
    plain = scenario.step_time(degrees)
    for kind in ("attention", "projection", "feed_forward", "head"):
        name = f"accelerator.efficiencies.{kind}_memory"
        slower = je.with_parameters(scenario, {name: 0.5}).step_time(degrees)
        assert plain.memory < slower.memory and plain.total < slower.total
    experts = eqx.tree_at(lambda s: s.accelerator.efficiencies.expert_memory, scenario, jnp.asarray(0.5))
    assert float(experts.step_time(degrees).total) == float(plain.total)


def test_overheads_add_to_every_step():
    degrees = layout(tensor=8, batch=8)
    plain = serving().step_time(degrees)
    slow = serving(engine_overhead=1e-3, kernels_per_layer=8.0).step_time(degrees)
    assert float(slow.total - plain.total) == pytest.approx(1e-3 + float(plain.launch))


def test_parallel_halves_share_one_all_reduce():
    model = je.load_model("llama-3.1-8b")
    both = eqx.tree_at(
        lambda m: m.groups,
        model,
        (
            je.LayerGroup(
                model.groups[0].count, model.groups[0].mixer, model.groups[0].feed_forward, parallel=True
            ),
        ),
    )
    times = [serving(m).step_time(layout(tensor=8, batch=8)) for m in (model, both)]
    assert float(times[1].network_latency) == pytest.approx(float(times[0].network_latency) / 2)


def test_windows_cap_what_a_step_reads():
    model = je.load_model("gpt-oss-120b")
    windowed, whole = sorted(model.groups[:2], key=lambda g: g.mixer.window is None)
    reads = [
        float(attention_core(model, g, share(model, context=8000.0), EXACT).bytes) for g in (windowed, whole)
    ]
    assert reads[1] / reads[0] == pytest.approx(8000 / 128)


def test_recurrent_state_is_read_and_written_whatever_the_context():
    model = je.load_model("qwen3-next-80b-a3b")
    group = next(g for g in model.groups if isinstance(g.mixer, je.RecurrentMixer))
    reads = [float(attention_core(model, group, share(model, context=c), EXACT).bytes) for c in (10.0, 1e5)]
    assert reads[0] == reads[1] > 0


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "jamba-v0.1"])
def test_smooth_step_times_lie_above_and_tend_to_exact_ones(name):
    scenario = serving(name, machine="gb200-nvl72")
    degrees = layout(tensor=2, data=8, expert=16, batch=512, nodes=1)
    exact = float(scenario.step_time(degrees).total)
    for temperature in (0.05, 1e-5):
        above = float(scenario.step_time(degrees, Smooth(temperature, "above")).total)
        assert exact * (1 - 1e-12) <= above <= exact * (1 + 20 * temperature)


@pytest.mark.parametrize(
    ("option", "value"),
    [("overlap", 1.5), ("expert_imbalance", 0.5), ("engine_overhead", -1.0), ("overlap", np.nan)],
)
def test_absurd_overheads_are_refused(option, value):
    with pytest.raises(je.InputError, match=option):
        serving(**{option: value})
