"""Prompt ingestion, its prices, energy and ownership."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je

LAYOUT = je.Layout(tensor=8.0, batch=32.0)


def serving(name="llama-3.1-70b", machine="h100-sxm", price=3.6, work=None, **options):
    work = je.Workload(4096.0, 512.0) if work is None else work
    return je.Serving(
        je.load_model(name), je.load_accelerator(machine, price_per_hour=price), work, **options
    )


def test_a_long_prompt_is_bound_by_arithmetic():
    """Llama-3.1-70B: 2 FLOP per weight and token beside causal attention over half the prompt; two
    all-reduces a layer by NCCL's LL128 protocol, and launches."""
    prompt = 8192.0
    scenario = serving(work=je.Workload(8192.0, 2.0, prompt=prompt))
    model, layers, heads = scenario.model, 80, 64 * 128
    inside = float(model.total_parameters - model.embedding_parameters)
    flop = prompt * (2 * inside + 2 * layers * heads * prompt)
    peak = 8 * float(scenario.accelerator.peak.bits16) * float(scenario.accelerator.arithmetic_efficiency)
    wire = 160 * (1.75 * 8192 * prompt * 2 / 4.5e11 / 0.95 + 2 * 7 * 1.25e-6 + 14e-6)
    expected = flop / peak + wire + 4 * layers * 4e-6
    assert float(scenario.time_to_first_token(LAYOUT)) == pytest.approx(expected, rel=0.01)


def test_what_the_cache_holds_is_not_computed_again():
    times = []
    for rate in (0.0, 0.5, 1.0):
        work = je.Workload(4096.0, 512.0, prompt=4000.0, hit_rate=rate)
        times.append(float(serving(work=work).prompt_time(LAYOUT)))
    assert times[1] == pytest.approx(times[0] / 2, rel=0.1)
    assert 0.0 < times[2] < 0.2 * times[0]  # the last token is always computed


def test_a_window_shortens_attention_to_the_prompt():
    model = je.load_model("gpt-oss-120b")
    windows = [g.mixer.window for g in model.groups]
    open_ = eqx.tree_at(
        lambda m: [g.mixer.window for g in m.groups if g.mixer.window is not None],
        model,
        [jnp.asarray(1e9) for w in windows if w is not None],
    )
    machine, work = je.load_accelerator("h100-sxm"), je.Workload(1e5, 10.0, prompt=1e5)
    times = [float(je.Serving(m, machine, work).prompt_time(LAYOUT)) for m in (model, open_)]
    assert times[0] < 0.7 * times[1]


def test_prompts_in_the_same_replica_delay_every_token():
    """Time per output token = T_decode + b T_prefill/output."""
    apart, mixed = serving(), serving(chunk_tokens=2048.0)
    decode, both = apart.step_time(LAYOUT), mixed.step_time(LAYOUT)
    delay = 32.0 * float(apart.prompt_time(LAYOUT)) / 512.0
    assert float(both.total) == pytest.approx(float(decode.total) + delay)
    assert float(both.prompts) == pytest.approx(delay) and float(decode.prompts) == 0.0
    assert float(mixed.time_to_first_token(LAYOUT)) > float(apart.time_to_first_token(LAYOUT))
    assert float(mixed.ledger(LAYOUT).activations) > float(apart.ledger(LAYOUT).activations)


def test_prices_add_up_to_what_the_accelerators_cost():
    """Input and output revenue of a replica that does both equals its rent."""
    scenario = serving(chunk_tokens=2048.0)
    price, work = je.prices(scenario, LAYOUT), scenario.workload
    requests = 32.0 * float(scenario.speed(LAYOUT)) / float(work.output)
    tokens = float(work.prompt_tokens)
    revenue = requests * (tokens * float(price.input) + float(work.output) * float(price.output)) / 1e6
    assert revenue == pytest.approx(8 * 3.6 / 3600.0)
    blend = requests * (tokens + float(work.output)) * float(price.blended) / 1e6
    assert blend == pytest.approx(revenue)
    assert float(price.input) < float(price.output)


def test_pools_spend_the_budget_exactly_as_an_enumeration_would():
    scenario = serving(work=je.Workload(2000.0, 200.0))
    found = je.disaggregated_optimum(scenario, 3.0, max_accelerators=16)
    everything = scenario.degrees(16)[0]
    dollars = np.asarray(scenario.prompt_time(everything) * everything.accelerators)
    dollars = dollars * float(scenario.accelerator.price)
    prompts = float(scenario.prompt_time(found.prefill) * found.prefill.accelerators)
    prompts *= float(scenario.accelerator.price)
    fits = np.asarray(everything.accelerators) >= 2  # what holds the weights
    assert prompts == pytest.approx(dollars[fits].min(), rel=1e-9)
    assert found.cost == pytest.approx(found.decode.cost + 1e6 * prompts / 200.0)
    quick = je.disaggregated_optimum(scenario, 3.0, first_token=0.2, max_accelerators=16)
    assert float(quick.pools.time_to_first_token - quick.pools.transfer) <= 0.2
    assert quick.decode.speed <= found.decode.speed
    with pytest.raises(je.InfeasibleError, match="quickest layout takes"):
        je.disaggregated_optimum(scenario, 3.0, first_token=1e-6, max_accelerators=16)
    with pytest.raises(je.InfeasibleError, match="prompts alone cost"):
        je.disaggregated_optimum(scenario, 0.01, max_accelerators=16)


def test_drafting_does_not_help_prompts():
    small = je.Speculation(je.load_model("llama-3.1-8b"), 0.9)
    plain, drafted = serving(), serving(speculation=small)
    assert float(drafted.prompt_time(LAYOUT)) > float(plain.prompt_time(LAYOUT))


def test_energy_lies_between_idle_and_rated():
    scenario = serving()
    used = je.energy(scenario, LAYOUT, je.Site(pue=1.5, grid_intensity=360.0, idle_share=0.25))
    load = float(used.load)
    assert 0.0 < load < 1.0
    assert float(used.watts) == pytest.approx(1.5 * 700.0 * (0.25 + 0.75 * load))
    rate = 32.0 * float(scenario.speed(LAYOUT))
    assert float(used.joules_per_token) == pytest.approx(8 * float(used.watts) / rate)
    assert float(used.grams_co2_per_token) == pytest.approx(1e-4 * float(used.joules_per_token))
    unknown = eqx.tree_at(lambda s: s.accelerator.power, scenario, jnp.zeros(()))
    with pytest.raises(je.InputError, match="rated power"):
        je.energy(unknown, LAYOUT)


def test_ownership_by_hand():
    """30,000 dollars over 4 years at 60 %, and 700 W at a PUE of 1.2 and 0.1 dollars a kWh."""
    machine = je.load_accelerator("h100-sxm")
    owner = je.Ownership(30_000.0, 4.0, 0.6, 0.1)
    hourly = (30_000 / (4 * 8766) + 0.7 * 1.2 * 0.1) / 0.6
    assert float(owner.owned(machine, je.Site(pue=1.2)).price_per_hour) == pytest.approx(hourly)

    def cost(owner):
        scenario = je.Serving(je.load_model("llama-3.1-8b"), owner.owned(machine), je.Workload(1000.0))
        return scenario.cost(LAYOUT)

    slopes = eqx.filter_grad(cost)(owner)
    assert all(np.isfinite(float(x)) for x in jax.tree.leaves(slopes))
    assert float(slopes.purchase) > 0 > float(slopes.life_years)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: je.Workload(100.0, hit_rate=1.5), "hit_rate"),
        (lambda: je.Workload(100.0, prompt=-1.0), "prompt"),
        (lambda: je.Site(pue=0.5), "pue"),
        (lambda: je.Ownership(1000.0, utilisation=0.0), "utilisation"),
        (lambda: serving(chunk_tokens=0.0), "chunk_tokens"),
        (lambda: je.disaggregated_optimum(serving(chunk_tokens=512.0), 1.0), "chunk_tokens"),
    ],
)
def test_absurd_numbers_are_refused(build, says):
    with pytest.raises(je.InputError, match=says):
        build()
