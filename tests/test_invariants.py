"""What must hold for every question: properties of the serving model on 10,240 random scenarios.

Hypothesis draws seeds; each stands for a block of scenarios that are evaluated under vmap in one
compiled program. Models mix dense layers with windows, routed experts behind latent attention, and
recurrent layers; every number of model, machine, engine, workload and layout is drawn.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

import jaxecon as je

BLOCK, BLOCKS = 512, 20
QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def template():
    windowed = je.GroupedQueryAttention(32.0, 8.0, 128.0, 128.0, window=512.0)
    latent = je.LatentAttention(32.0, 512.0, 128.0, 64.0, 128.0, 1024.0)
    recurrent = je.RecurrentMixer(8000.0, 4000.0, recurrent_elements=2e5, convolution_elements=1e4)
    experts = je.MixtureOfExperts(64.0, 4.0, 1024.0, 1024.0)
    groups = (
        je.LayerGroup(3.0, windowed, je.DenseFeedForward(8192.0), 8192.0),
        je.LayerGroup(20.0, latent, experts, 8192.0),
        je.LayerGroup(7.0, recurrent, None, 8192.0),
    )
    model = je.Model(4096.0, 1e5, groups)
    algorithms = ("library", "one_shot", "two_shot", "pairwise")
    network = je.Network(4.5e11, 5e10, 8.0, algorithms=algorithms)
    machine = je.Accelerator(je.PeakRates(1e15), 3e12, 8e10, network, 6e-4)
    options = {"overlap": 0.5, "expert_imbalance": 1.2, "engine_overhead": 1e-3, "chunk_tokens": 2048.0}
    return je.Serving(model, machine, je.Workload(4096.0, 512.0, prompt=3000.0, hit_rate=0.2), **options)


# Leaves with the range in which each is drawn, log-uniformly.
DRAWN = [
    (lambda s: s.model.width, 256.0, 3e4),
    (lambda s: s.model.vocabulary, 1e3, 3e5),
    (lambda s: s.model.precision.weight, 0.5, 4.0),
    (lambda s: s.model.precision.expert, 0.5, 4.0),
    (lambda s: s.model.precision.activation, 1.0, 4.0),
    (lambda s: s.model.precision.kv, 0.5, 4.0),
    (lambda s: s.model.precision.dispatch, 0.5, 4.0),
    (lambda s: s.model.groups[0].mixer.window, 16.0, 1e5),
    (lambda s: s.model.groups[0].mixer.heads, 8.0, 128.0),
    (lambda s: s.model.groups[0].feed_forward.hidden, 256.0, 1e5),
    (lambda s: s.model.groups[1].count, 1.0, 100.0),
    (lambda s: s.model.groups[1].mixer.kv_rank, 64.0, 2048.0),
    (lambda s: s.model.groups[1].feed_forward.experts, 8.0, 512.0),
    (lambda s: s.model.groups[1].feed_forward.active, 1.0, 8.0),
    (lambda s: s.model.groups[1].feed_forward.hidden, 128.0, 2e4),
    (lambda s: s.model.groups[2].mixer.recurrent_elements, 1e3, 1e7),
    (lambda s: s.accelerator.peak.bits16, 1e13, 1e16),
    (lambda s: s.accelerator.hbm_bandwidth, 1e11, 1e14),
    (lambda s: s.accelerator.arithmetic_efficiency, 0.1, 1.0),
    (lambda s: s.accelerator.efficiencies.expert_memory, 0.1, 1.0),
    (lambda s: s.accelerator.kernel_launch_latency, 1e-8, 1e-4),
    (lambda s: s.accelerator.network.scale_up_bandwidth, 1e10, 1e13),
    (lambda s: s.accelerator.network.scale_out_bandwidth, 1e9, 1e12),
    (lambda s: s.accelerator.network.domain_size, 2.0, 128.0),
    (lambda s: s.accelerator.network.direct_latency, 1e-7, 1e-4),
    (lambda s: s.accelerator.network.library_latency, 0.1, 10.0),
    (lambda s: s.accelerator.price, 1e-5, 1e-2),
    (lambda s: s.workload.context, 1.0, 1e6),
    (lambda s: s.workload.prompt, 1.0, 1e6),
    (lambda s: s.workload.output, 1.0, 1e5),
    (lambda s: s.workload.hit_rate, 1e-3, 1.0),
    (lambda s: s.engine_overhead, 1e-6, 1e-2),
    (lambda s: s.overlap, 1e-3, 1.0),
    (lambda s: s.expert_imbalance, 1.0, 3.0),
    (lambda s: s.chunk_tokens, 1.0, 1e5),
]
RATES = [
    lambda s, _: s.accelerator.peak.bits16,
    lambda s, _: s.accelerator.hbm_bandwidth,
    lambda s, _: s.accelerator.network.scale_up_bandwidth,
    lambda s, _: s.accelerator.network.scale_out_bandwidth,
]
LATENCIES = [
    lambda s, _: s.accelerator.kernel_launch_latency,
    lambda s, _: s.accelerator.network.library_latency,
    lambda s, _: s.accelerator.network.direct_latency,
    lambda s, _: s.accelerator.network.scale_up_hop,
    lambda s, _: s.accelerator.network.scale_out_hop,
    lambda s, _: s.engine_overhead,
]
LAYERS = [lambda s, _, i=i: s.model.groups[i].count for i in range(3)]
CONTEXT = [lambda s, _: s.workload.context]
DEGREES = [lambda _, x, k=k: getattr(x, k) for k in ("tensor", "data", "pipeline", "expert")]
BATCH = [lambda _, x: x.batch]
SCALED = [*RATES, *LATENCIES, *LAYERS, *CONTEXT, *DEGREES, *BATCH]


def variants():
    """Names, and rows of factors on `SCALED`."""
    ones, names, rows = np.ones(len(SCALED)), [], []

    def add(name, *changes):
        row = ones.copy()
        for where, factor in changes:
            row[SCALED.index(where)] = factor
        names.append(name)
        rows.append(row)

    add("plain")
    add("twice as fast", *((w, 2.0) for w in RATES), *((w, 0.5) for w in LATENCIES))
    add("batch", (BATCH[0], 1.7))
    for name, wheres, factor in (
        ("faster", RATES, 1.3),
        ("sooner", LATENCIES, 0.7),
        ("layers", LAYERS, 1.5),
        ("context", CONTEXT, 1.5),
    ):
        for where in wheres:
            add(name, (where, factor))
    tensor, data, pipeline, expert = DEGREES
    for where in (tensor, data, pipeline):
        add("spread", (where, 2.0))
    for where in (tensor, data):
        add("spread", (where, 2.0), (expert, 2.0))
    return np.array(names), np.array(rows)


NAMES, FACTORS = variants()


def drawn(seed):
    """A block of scenarios and layouts, stacked along a leading axis."""
    rng = np.random.default_rng(seed)
    scenario = template()
    for where, low, high in DRAWN:
        values = np.exp(rng.uniform(np.log(low), np.log(high), BLOCK))
        scenario = eqx.tree_at(where, scenario, jnp.asarray(values))
    tensor, data, stages = (2.0 ** rng.integers(0, most, BLOCK) for most in (6, 6, 4))
    expert = 2.0 ** np.floor(rng.uniform(0, 1, BLOCK) * (1 + np.log2(tensor * data)))
    batch = stages * data * np.exp(rng.uniform(0.0, np.log(200.0), BLOCK))
    return scenario, je.Layout(*(jnp.asarray(x) for x in (tensor, stages, expert, data, batch)))


def axes(tree):
    """Where the stacked leaves are, for vmap."""
    return jax.tree.map(lambda x: 0 if eqx.is_array(x) and x.ndim else None, tree)


# The program runs for a moment and takes long to compile, so it is not optimised.
@eqx.filter_jit(compiler_options={"xla_backend_optimization_level": 0})
def observed(scenario, layout):
    """Everything that the properties speak of, for each scenario of a block."""

    def one(scenario, layout):
        def seen(factors):
            pair = (scenario, layout)
            for i, where in enumerate(SCALED):
                pair = eqx.tree_at(lambda p, w=where: w(*p), pair, where(*pair) * factors[i])
            time, ledger = pair[0].step_time(pair[1]), pair[0].ledger(pair[1])
            return time, ledger, ledger.used

        def worth(pair):
            return jnp.log(pair[0].cost(pair[1])) + jnp.log(pair[0].ledger(pair[1]).used)

        slopes = eqx.filter_grad(worth)((scenario, layout))
        finite = jnp.stack([jnp.isfinite(x) for x in jax.tree.leaves(slopes)]).all()
        first = scenario.time_to_first_token(layout)
        return *jax.vmap(seen)(jnp.asarray(FACTORS)), first, finite

    return eqx.filter_vmap(one, in_axes=(axes(scenario), axes(layout)))(scenario, layout)


TIGHT = 1.0 + 1e-9


@settings(max_examples=BLOCKS, **QUIET)
@given(st.integers(0, 2**32 - 1))
def test_every_random_scenario(seed):
    time, ledger, used, first, finite = jax.tree.map(np.asarray, observed(*drawn(seed)))
    for leaf in (*jax.tree.leaves(time), *jax.tree.leaves(ledger)):
        assert np.all(np.isfinite(leaf) & (leaf >= 0))
    assert np.all((time.total > 0) & (used > 0))
    assert np.all(np.isfinite(first) & (first > 0))
    assert np.all(finite), "a gradient of cost or memory is not finite"
    total = {name: time.total[:, NAMES == name] for name in NAMES}
    plain = total["plain"]
    np.testing.assert_allclose(total["twice as fast"], plain / 2, rtol=1e-12)
    assert np.all(total["batch"] * TIGHT >= plain), "time rises with batch"
    assert np.all(total["batch"] / 1.7 <= plain * TIGHT), "cost falls with batch"
    assert np.all(total["context"] * TIGHT >= plain), "time rises with context"
    assert np.all(total["layers"] > plain), "time rises with layers"
    assert np.all(total["faster"] <= plain * TIGHT), "time falls with rates"
    assert np.all(total["sooner"] <= plain * TIGHT), "time falls with latencies"
    memory = used[:, NAMES == "plain"]
    assert np.all(used[:, NAMES == "spread"] <= memory * TIGHT), "memory falls with accelerators"
