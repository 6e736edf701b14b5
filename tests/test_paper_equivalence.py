"""With every extra off, `Serving` claims what `Erdil2025` claims; each difference is stated.

Dense models with 1-D tensor parallelism, revision of September 2024, one library of collectives,
efficiencies of 1, no reserve, overlap or overhead.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je
from random_questions import question

LAYOUTS = [(1, 1, 1), (2, 1, 8), (8, 1, 64), (32, 1, 16), (2, 2, 8), (4, 4, 100)]  # tensor, stages, batch


def both(seed):
    q = question(seed) | {"draft": None, "demand": None}
    m, a = q["model"], q["accelerator"]
    attention = je.GroupedQueryAttention(m["h"], m["h"], m["e"], m["e"])  # nothing replicated
    model = je.Model(m["d"], m["V"], (je.LayerGroup(m["L"], attention, je.DenseFeedForward(m["f"])),))
    network = je.Network(a["up"], a["out"], a["domain"])
    machine = je.Accelerator(
        je.PeakRates(a["flops"]), a["bandwidth"], a["memory"], network, a["price"], a["launch"]
    )
    work = je.Workload(q["context"], q["output"])
    return m, a, je.Serving(model, machine, work, reserve=0.0), je.Erdil2025(model, machine, work)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("t", "p", "b"), LAYOUTS)
def test_parts_of_a_step(seed, t, p, b):
    m, a, serving, paper = both(seed)
    if m["h"] % t:
        t = 1
    layout = je.Layout(*(jnp.asarray(float(x)) for x in (t, p, 1, 1, b)))
    ours, theirs = serving.step_time(layout), paper.step_time(layout)
    n, u, d, f = t * p, b / p, m["d"], m["f"]
    # The paper lets the look-up of embeddings cost a matrix product.
    lookup = 2 * m["V"] * d * b / (n * a["flops"])
    # In a stage all layers pass: the head's work is that of one stage, not divided by stages.
    head = 2 * m["V"] * d * u / (t * a["flops"]) - 2 * m["V"] * d * b / (n * a["flops"])
    assert float(ours.arithmetic + lookup - head) == pytest.approx(float(theirs.arithmetic), rel=1e-12)
    # Activations in memory: the paper counts both sides of every product and lets key and value columns
    # weigh one byte; here the stream is read and written once and inner widths are divided.
    width = m["e"] * m["h"]
    paper_moves = m["L"] * (3 * 2 * (d + t * f) + (2 * d + t * 3 * width) + 2 * (d + t * width)) * u
    our_moves = 2 * (m["L"] * (4 * d + (4 * width + 3 * f) / t) + d + m["V"] / t) * u
    left = float(ours.memory) - our_moves / a["bandwidth"]
    right = float(theirs.memory) - p * paper_moves / (n * a["bandwidth"])
    assert left == pytest.approx(right, rel=1e-9)
    # The same messages: two all-reduces a layer, and hand-overs.
    assert float(ours.network_latency) == pytest.approx(float(theirs.network_latency), rel=1e-12)
    assert float(ours.network_bandwidth) == pytest.approx(float(theirs.network_bandwidth), rel=1e-12)
    assert float(ours.launch) == pytest.approx(float(theirs.launch), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_roofline_is_taken_by_group_rather_than_once(seed):
    _, _, serving, paper = both(seed)
    layout = je.Layout(*(jnp.asarray(x) for x in (1.0, 1.0, 1.0, 1.0, 64.0)))
    for scenario, once in ((serving, False), (paper, True)):
        time = scenario.step_time(layout)
        apart = float(time.launch + time.network_latency + time.network_bandwidth)
        bound, busy = float(time.roofline_bound), float(time.total) - apart
        if once:
            assert busy == pytest.approx(bound, rel=1e-12)
        else:
            assert bound * (1 - 1e-12) <= busy <= float(time.arithmetic + time.memory) * (1 + 1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_accepted_tokens_and_price_of_a_token(alpha):
    _, _, serving, paper = both(1)
    small = je.Speculation(serving.model, alpha)
    drafted = je.Serving(serving.model, serving.accelerator, serving.workload, speculation=small)
    theirs = je.Erdil2025(
        serving.model,
        serving.accelerator,
        serving.workload,
        draft=serving.model,
        acceptance=alpha,
        gamma_max=8,
    )
    layout = je.Layout(*(jnp.asarray(x) for x in (1.0, 1.0, 1.0, 1.0, 4.0, 3.0)))
    assert float(drafted.tokens_per_step(layout)) == pytest.approx(float(theirs.tokens_per_step(layout)))
    # At one speed both charge the same.
    speed = jnp.asarray(50.0)
    assert float(serving.cost_at_speed(layout, speed)) == float(paper.cost_at_speed(layout, speed))


def test_memory_that_the_paper_forgets():
    """Weights and the cache at the workload's context are the same; the rest is ours alone."""
    _, _, serving, paper = both(3)
    layout = je.Layout(*(jnp.asarray(x) for x in (1.0, 1.0, 1.0, 1.0, 8.0)))
    ledger, size = serving.ledger(layout), float(serving.accelerator.hbm_size)
    work = serving.workload
    growth = serving.model.kv_cache_bytes(work.full_context) - serving.model.kv_cache_bytes(work.context)
    theirs = size - float(paper.memory_margin(layout))
    ours = float(ledger.weights + ledger.kv_cache - 8.0 * growth)
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert float(ledger.activations) > 0.0
    np.testing.assert_allclose(float(ledger.reserve), 0.0)
