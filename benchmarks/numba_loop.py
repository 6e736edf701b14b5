"""Speed, cost and memory of layouts as a compiled loop: the roofline of exact evaluation.

The formulas of `Serving` for a model with one kind of layer, grouped-query attention and a gated
dense feed-forward, on an NCCL network, without drafting: written out by hand, scalar by scalar, with
everything that does not depend on the layout taken out of the loop.
"""

import math

import numba
import numpy as np

HOP, LEVEL = np.array([0.6e-6, 1.25e-6, 28e-6]), np.array([5e-6, 8.5e-6, 28e-6])
BASE, FACTOR = np.array([6.8e-6, 14e-6, 0.0]), np.array([0.5, 0.95, 1.0])
FIELDS = (
    "d f h k e V L norms other w emb a kv peak rate size up out domain price launch reserve kernels "
    "overhead context full"
).split()


def facts_of(scenario) -> np.ndarray:
    """The numbers of a scenario in the order of `FIELDS`."""
    m, a, (group,) = scenario.model, scenario.accelerator, scenario.model.groups
    mixer, feed, p, network = group.mixer, group.feed_forward, scenario.model.precision, a.network
    values = [m.width, feed.hidden, mixer.heads, mixer.kv_heads, mixer.head_dim, m.vocabulary, group.count]
    values += [group.norm_parameters, m.other_parameters, p.weight, p.embedding, p.activation, p.kv]
    values += [a.peak.bits16 * a.arithmetic_efficiency, a.hbm_bandwidth * a.memory_efficiency, a.hbm_size]
    values += [network.scale_up_bandwidth / 2, network.scale_out_bandwidth / 2, network.domain_size, a.price]
    values += [a.kernel_launch_latency, scenario.reserve, scenario.kernels_per_layer]
    values += [scenario.engine_overhead, scenario.workload.context, scenario.workload.full_context]
    return np.array([float(v) for v in values])


@numba.njit(inline="always")
def _collective(ranks, nodes, size, passes, up, out):
    """(latency, bandwidth) of the cheapest protocol."""
    if ranks <= 1.0:
        return 0.0, 0.0
    local = ranks / nodes - 1.0
    wire = nodes * max(local, 0.0) * size / (ranks * up) + (nodes - 1.0) * size / (ranks * out)
    wire *= passes / 2.0
    depth = math.log2(nodes)
    latency, bandwidth = 0.0, math.inf
    for i in range(3):
        fixed = passes * (local * HOP[i] + depth * LEVEL[i]) + BASE[i]
        moved = wire / FACTOR[i]
        if fixed + moved < latency + bandwidth:
            latency, bandwidth = fixed, moved
    return latency, bandwidth


def _loop(x, tensor, pipeline, batch, speed, cost, fits):
    d, f, h, k, e, V, L, norms, other, w, emb, a, kv = x[:13]
    peak, rate, size, up, out, domain, price, launch, reserve, kernels, overhead, context, full = x[13:]
    attention = d * h * e + 2.0 * d * k * e + h * e * d
    dense = 3.0 * d * f
    inner = (h + k) * 2.0 * e
    widest = max(2.0 * f, (h + 2.0 * k) * e)
    fixed = kernels * L * launch + overhead
    room = size - reserve * size
    for i in numba.prange(len(batch)):
        m, stages, b = tensor[i], pipeline[i], batch[i]
        u = b / stages
        share = max(1.0 / m, 1.0 / k)
        head = max(2.0 * d * V / m * u / peak, (d * V / m * emb + (d + V / m) * u * a) / rate)
        core = max(4.0 * h * e * context * u / m / peak, 2.0 * k * e * context * kv * share * u / rate)
        project = (attention / m * w + (2.0 * d + inner / m) * u * a) / rate
        project = max(2.0 * attention / m * u / peak, project)
        feed = (dense / m * w + (2.0 * d + 3.0 * f / m) * u * a) / rate
        feed = max(2.0 * dense / m * u / peak, feed)
        latency, moved = _collective(m, math.ceil(m / domain), d * u * a, 2.0, up, out)
        hand_latency, hand_moved = _collective(2.0, 2.0, d * u * a / m, 1.0, up, out)
        time = fixed + head + L * (core + project + feed) + 2.0 * L * (latency + moved)
        time += (stages - 1.0) * (hand_latency + hand_moved)
        weights = L * ((attention + dense) / m * w + norms * emb) / stages
        weights += max(1.0, 3.0 - stages) * V * d * emb / m + other * emb
        cache = L * 2.0 * k * e * full * kv * share * u
        live = u * ((2.0 * d + widest / m) * a + 4.0 * V / m)
        speed[i] = 1.0 / time
        cost[i] = 1e6 * m * stages * price * time / b
        fits[i] = room - weights - cache - live >= 0.0


one_thread = numba.njit(_loop)
all_threads = numba.njit(_loop, parallel=True)
