"""A slow, plain NumPy account of serving a dense model, written apart from the library.

Sources: Erdil 2025 (arXiv:2506.04645) for the collectives and the four components; the split of
matrices over ranks of Shoeybi et al. 2019 (arXiv:1909.08053).
"""

import itertools

import numpy as np

PROTOCOLS = ((0.6e-6, 5e-6, 6.8e-6, 0.5), (1.25e-6, 8.5e-6, 14e-6, 0.95), (28e-6, 28e-6, 0.0, 1.0))


def collective(a, ranks, nodes, size, all_reduce):
    if ranks <= 1:
        return np.zeros_like(size)
    m = 2 if all_reduce else 1
    totals = []
    for hop, level, base, factor in PROTOCOLS:
        latency = m * ((ranks / nodes - 1) * hop + level * np.log2(nodes)) + base
        inside = nodes * max(0.0, ranks / nodes - 1) * size / (ranks * a["up"] / 2)
        across = (nodes - 1) * size / (ranks * a["out"] / 2)
        totals.append(latency + (inside + across) / factor * m / 2)
    return np.minimum.reduce(totals)


def forward(m, a, context, tensor, stages, batch, queries):
    """Seconds of one pass of `queries` tokens per sequence."""
    d, f, h, k, e, layers = m["d"], m["f"], m["h"], m["k"], m["e"], m["L"]
    sequences = batch / stages
    tokens = sequences * queries
    flops, rate = a["flops"], a["bandwidth"]
    heads_here = max(k / tensor, 1.0)
    cache = 2 * heads_here * e * context * 2 * sequences
    core = np.maximum(cache / rate, 4 * h * e * context * tokens / tensor / flops)
    weights = (d * e * (h + 2 * k) + h * e * d) / tensor
    moved = 2 * (2 * d + (2 * h * e + 2 * k * e) / tensor) * tokens
    attention = np.maximum((2 * weights + moved) / rate, 2 * weights * tokens / flops)
    weights = 3 * d * f / tensor
    moved = 2 * (2 * d + 3 * f / tensor) * tokens
    feed = np.maximum((2 * weights + moved) / rate, 2 * weights * tokens / flops)
    weights = d * m["V"] / tensor
    moved = 2 * (d + m["V"] / tensor) * tokens
    head = np.maximum((2 * weights + moved) / rate, 2 * weights * tokens / flops)
    nodes = np.ceil(tensor / a["domain"])
    reduce = collective(a, tensor, nodes, 2 * d * tokens, True)
    hand = collective(a, 2, 2, 2 * d * tokens / tensor, False)
    launch = 4 * layers * a["launch"]
    busy = layers * (core + attention + feed) + head
    return launch + 2 * layers * reduce + (stages - 1) * hand + busy


def weights_bytes(m, tensor, stages):
    d, f, h, k, e = m["d"], m["f"], m["h"], m["k"], m["e"]
    layer = (d * e * (h + 2 * k) + h * e * d + 3 * d * f) / tensor
    tables = 2 if stages == 1 else 1
    return 2 * (m["L"] / stages * layer + tables * m["V"] * d / tensor)


def cache_bytes(m, tensor, stages, batch, tokens):
    return 2 * 2 * max(m["k"] / tensor, 1.0) * m["e"] * tokens * m["L"] / stages * batch


def table(q, most, max_batch):
    """Every legal layout as rows (speed, cost, accelerators, tensor, pipeline, draft, batch)."""
    m, a, draft = q["model"], q["accelerator"], q["draft"]
    batch = np.arange(1.0, max_batch + 1.0)
    full = q["context"] + q["output"] / 2
    rows = []
    for tensor, stages in itertools.product(range(1, most + 1), range(1, most + 1)):
        if tensor * stages > most or m["L"] % stages:
            continue
        if not all(_splits(x, tensor) for x in (m, draft) if x):
            continue
        for gamma in range((q["gamma_max"] if draft and stages == 1 else 0) + 1):
            time = forward(m, a, q["context"], tensor, stages, batch, gamma + 1)
            tokens = batch / stages * (gamma + 1)
            widest = max(2 * m["f"], (m["h"] + 2 * m["k"]) * m["e"])
            used = tokens * (2 * (2 * m["d"] + widest / tensor) + 4 * m["V"] / tensor)
            used = used + weights_bytes(m, tensor, stages)
            used = used + cache_bytes(m, tensor, stages, batch, full) + 0.1 * a["memory"]
            if draft:
                time = time + gamma * forward(draft, a, q["context"], tensor, stages, batch, 1)
                used = used + weights_bytes(draft, tensor, stages)
                used = used + cache_bytes(draft, tensor, stages, batch, full)
            gained = sum(q["acceptance"] ** i for i in range(gamma + 1))
            speed, n = gained / time, tensor * stages
            cost = 1e6 * n * a["price"] / (batch * speed)
            able = (used <= a["memory"]) & (batch >= stages)
            if q["demand"]:
                able &= batch * speed <= q["demand"]
            for i in np.flatnonzero(able):
                rows.append((speed[i], cost[i], n, tensor, stages, gamma, batch[i]))
    return np.array(rows).reshape(-1, 7)


def _splits(m, tensor):
    return m["h"] % tensor == 0 and (m["k"] % tensor == 0 or tensor % m["k"] == 0) and m["f"] % tensor == 0
