"""The paper's own method in plain NumPy: a 400 x 400 grid of real N and batch, then a Pareto scan.

Equations of Erdil 2025 (arXiv:2506.04645), revision of September 2024, written apart from the
library. `model` and `accelerator` are dictionaries with the keys of the paper's tables.
"""

import numpy as np

PROTOCOLS = ((0.6e-6, 5e-6, 6.8e-6, 0.5), (1.25e-6, 8.5e-6, 14e-6, 0.95), (28e-6, 28e-6, 0.0, 1.0))


def _collective(a, ranks, nodes, size, all_reduce=True):
    """(latency, bandwidth) seconds, the cheapest protocol at each point."""
    m = 2.0 if all_reduce else 1.0
    intra, inter = a["intranode_allreduce_bandwidth_Bps"], a["internode_allreduce_bandwidth_Bps"]
    best = None
    for hop, level, base, factor in PROTOCOLS:
        latency = m * ((ranks / nodes - 1) * hop + level * np.log2(nodes)) + base
        wire = nodes * np.maximum(ranks / nodes - 1, 0) * size / (ranks * intra)
        wire = (wire + (nodes - 1) * size / (ranks * inter)) / factor * m / 2
        total = latency + wire
        if best is None:
            best = total
        else:
            best = np.minimum(best, total)
    return np.where(ranks <= 1, 0.0, best)


def _step(m, a, context, q, n, batch, pipeline, two_d):
    d, f, e, h = m["d_model"], m["d_ff"], m["d_head"], m["num_query_heads"]
    m0, m1 = m["ff_matrix_count"]
    layers, w, act = m["layers"], m["weight_precision_bytes"], m["activation_precision_bytes"]
    k2 = 2 * h / m["group_size"]
    s = m["n_experts"] // m["n_active_experts"]
    tensor, u = n / pipeline, batch / pipeline
    t = u * q
    root = np.sqrt(tensor)
    ranks = root if two_d else tensor
    nodes = np.ceil(tensor / a["node_size"])
    nodes = np.sqrt(nodes) if two_d else nodes
    active = m["n_active_experts"]
    if two_d:
        words = [e * (h + k2) / ranks, d / ranks, active * m0 * f / ranks, active * m1 * d / ranks]
    else:
        words = [np.full_like(ranks, d), np.full_like(ranks, active * m1 * d)]
    time = 4 * layers * a["kernel_launch_latency_seconds"]
    for x in words:
        time = time + layers * _collective(a, ranks, nodes, x * t * act)
    two = np.full_like(tensor, 2.0)
    time = time + (pipeline - 1) * _collective(a, two, two, d * t * act / tensor, False)
    p1, p2 = (root, root) if two_d else (tensor, 1.0)
    used = 1 - (1 - 1 / s) ** t
    ff = used * m["n_experts"] * (m0 + m1) * (w * d * f + (p2 * d + p1 * f) * act * t / s)
    qkv = w * d * e * (h + k2) + p2 * act * d * t + p1 * e * (h + k2) * t
    proj = w * e * h * d + act * (p2 * d + p1 * e * h) * t
    kv = m["kv_bytes_per_token"] * context * u
    total = kv + layers * (ff + qkv + proj) + w * m["vocab_size"] * d
    memory = pipeline * total / (n * a["hbm_bandwidth_Bps"])
    flop = 2 * m["total_active_params"] * batch * q + 4 * e * h * layers * context * batch * q
    flop = flop / (n * a["flop_per_second"][str(round(8 * w))])
    time = time + np.maximum(memory, flop)
    return np.where(pipeline <= np.minimum(n, batch), time, np.inf)


def best_step_time(m, a, context, q, n, batch):
    """Seconds of the quickest structure at each point of N and batch, which broadcast."""
    best = np.full(np.broadcast_shapes(n.shape, batch.shape), np.inf)
    for two_d in (True, False):
        for pipeline in (1, 2, 4, 6):
            best = np.minimum(best, _step(m, a, context, q, n, batch, pipeline, two_d))
    return best


def grid_frontier(model, accelerator, context, draft=None, acceptance=None, gamma_max=0, points=400):
    """(speed, cost) of the Pareto frontier over the whole grid."""
    n, batch = np.meshgrid(np.geomspace(1, 1024, points), np.geomspace(1, 65536, points), indexing="ij")
    if draft is None:
        time = best_step_time(model, accelerator, context, 1, n, batch)
    else:
        small = best_step_time(draft, accelerator, context, 1, n, batch)
        time = np.full(n.shape, np.inf)
        for gamma in range(gamma_max + 1):
            whole = best_step_time(model, accelerator, context, gamma + 1, n, batch) + gamma * small
            tokens = (1 - acceptance ** (gamma + 1)) / (1 - acceptance)
            time = np.minimum(time, whole / tokens)
    need = model["kv_bytes_per_token"] * context * batch
    need = need + model["weight_precision_bytes"] * model["total_params"]
    time = np.where(n * accelerator["hbm_size_bytes"] < need, np.inf, time)
    speed = 1 / time.ravel()
    cost = 1e6 * (n * accelerator["price_dollars_per_hour"] / 3600 * time / batch).ravel()
    keep = np.isfinite(cost)
    speed, cost = speed[keep], cost[keep]
    order = np.lexsort((cost, -speed))
    speed, cost = speed[order], cost[order]
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], cost[:-1]]))
    return speed[cost < lowest], cost[cost < lowest]
