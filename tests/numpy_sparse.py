"""A slow, plain NumPy account of serving a model with routed experts, written apart from the library.

Sources: those of numpy_reference.py; expected distinct choices 1 - (1 - p)^n for the experts that a
step touches and the groups that a token reaches; a dispatch and a combine as all-to-alls over domains.
"""

import numpy as np

from numpy_reference import PROTOCOLS, collective


def exchange(a, ranks, nodes, size, crossing):
    """Each rank sends `size` bytes; straight, or `crossing` bytes across domains and then inside."""
    if ranks <= 1:
        return np.zeros_like(size)
    totals = []
    for hop, level, base, factor in PROTOCOLS:
        latency = (ranks / nodes - 1) * hop + level * np.log2(nodes) + base
        inside = (ranks / nodes - 1) / ranks * size / a["up"]
        totals.append(latency + (inside + (1 - 1 / nodes) * size / a["out"]) / factor)
        forwarded = (1 - nodes / ranks) * (1 - 1 / nodes) * size / a["up"]
        dense = inside + (1 - 1 / nodes) * crossing / a["out"] + forwarded
        totals.append(latency + 0.6e-6 * (nodes > 1) + dense / factor)
    return np.minimum.reduce(totals)


def widths(m):
    """(matrix entries, inner width, scores a token, cached elements) of attention in one layer."""
    d, h = m["d"], m["h"]
    if m["latent"]:
        c, n, r, v = m["latent"]
        return (
            d * h * (n + r) + d * (c + r) + c * h * (n + v) + h * v * d,
            h * (2 * c + n + v),
            2 * c + r,
            c + r,
        )
    k, e = m["k"], m["e"]
    return d * e * (h + 2 * k) + h * e * d, (h + k) * 2 * e, 2 * e, 2 * k * e


def forward(m, a, context, t, data, groups, stages, batch, imbalance, overlap):
    """Seconds of one decode step."""
    d, f, E, A = m["d"], m["f"], m["E"], m["A"]
    flops, rate, stage = a["flops"], a["bandwidth"], t * data
    mine = batch / stages / data
    everyone = batch / stages
    matrices, inner, scores, cached = widths(m)
    kept = 1.0 if m["latent"] else max(1 / t, 1 / m["k"])

    def longer(flop, size):
        return np.maximum(flop / flops, size / rate)

    core = longer(2 * m["h"] * scores * context * mine / t, 2 * cached * context * kept * mine)
    moved = 2 * (2 * d + inner / t) * mine
    busy = (m["first"] + m["L"]) * (core + longer(2 * matrices / t * mine, 2 * matrices / t + moved))
    dense = 3 * d * m["wide"] / t
    moved = 2 * (2 * d + 3 * m["wide"] / t) * mine
    busy = busy + m["first"] * longer(2 * dense * mine, 2 * dense + moved)
    common = (d * E + 3 * d * m["shared"]) / t
    busy = busy + m["L"] * longer(2 * common * mine, 2 * common + 2 * 3 * m["shared"] / t * mine)
    worst = 1 + (imbalance - 1) * (1 - 1 / groups)
    reached = groups * (1 - (1 - 1 / groups) ** A)
    expert = 3 * d * f / stage
    touched = E * (1 - (1 - A / E) ** everyone)
    moved = 2 * (2 * d * everyone * reached / groups + 3 * A * f / stage * everyone) * worst
    busy = busy + m["L"] * longer(2 * A * expert * everyone * worst, 2 * touched * expert + moved)
    out = longer(2 * d * m["V"] / t * mine, 2 * d * m["V"] / t + 2 * (d + m["V"] / t) * mine)
    busy = busy + out
    nodes_t, nodes = np.ceil(t / a["domain"]), np.ceil(stage / a["domain"])
    reduce = collective(a, t, nodes_t, 2 * d * mine, True)
    apart = min(nodes, data)
    gather = 2 * collective(a, data, apart, 2 * d * everyone, False) + reduce
    copies = stage / groups * reached * worst
    across = nodes * (1 - (1 - 1 / nodes) ** A) * worst
    sent = d * everyone / stage
    swap = sum(exchange(a, stage, nodes, sent * copies * w, sent * across * w) for w in (m["dispatch"], 2))
    wire = (m["L"] + 2 * m["first"]) * reduce + m["L"] * np.minimum(gather, swap)
    wire = wire + (stages - 1) * collective(a, 2, 2, 2 * d * mine / t, False)
    launch = 4 * (m["first"] + m["L"]) * a["launch"]
    return launch + (1 - overlap) * (wire + busy) + overlap * np.maximum(wire, busy)


def used_bytes(m, full, t, data, groups, stages, batch, imbalance):
    d, f, E = m["d"], m["f"], m["E"]
    matrices, _, _, cached = widths(m)
    layers = m["first"] + m["L"]
    kept = 1.0 if m["latent"] else max(1 / t, 1 / m["k"])
    experts = m["L"] * E * 3 * d * f / (t * data)
    plain = layers * matrices + m["first"] * 3 * d * m["wide"] + m["L"] * (d * E + 3 * d * m["shared"])
    tables = (2 if stages == 1 else 1) * m["V"] * d / t
    weights = 2 * ((experts + plain / t) / stages + tables)
    cache = 2 * cached * kept * full * layers / stages * batch / data
    mine = batch / stages / data
    wide = [2 * (m["A"] * f + m["shared"]) / t]
    if m["first"]:
        wide.append(2 * m["wide"] / t)
    if not m["latent"]:
        wide.append((m["h"] + 2 * m["k"]) * m["e"] / t)
    live = mine * (2 * (2 * d + max(wide)) + 4 * m["V"] / t)
    worst = 1 + (imbalance - 1) * (1 - 1 / groups)
    reached = min(1.0, worst * (1 - (1 - 1 / groups) ** m["A"]))
    buffers = d * reached * batch / stages * (m["dispatch"] + 2)
    return weights + cache + live + buffers


def table(q, most, max_batch):
    """Every legal layout as rows (speed, cost, accelerators, tensor, pipeline, expert, data, batch)."""
    m, a = q["model"], q["accelerator"]
    layers = m["first"] + m["L"]
    rows = []
    for t in range(1, most + 1):
        heads = m["h"] % t == 0 and (m["latent"] or m["k"] % t == 0 or t % m["k"] == 0)
        if not heads or m["shared"] % t or (m["first"] and m["wide"] % t):
            continue
        for data in range(1, most // t + 1):
            for groups in range(1, t * data + 1):
                if t * data % groups or m["E"] % groups or m["f"] % (t * data // groups):
                    continue
                for stages in range(1, most // (t * data) + 1):
                    if layers % stages:
                        continue
                    batch = np.arange(float(stages * data), max_batch + 1.0)
                    if not len(batch):
                        continue
                    place = (t, data, groups, stages, batch, q["imbalance"])
                    seconds = forward(m, a, q["context"], *place, q["overlap"])
                    used = used_bytes(m, q["context"] + q["output"] / 2, *place) + 0.1 * a["memory"]
                    n = t * data * stages
                    cost = 1e6 * n * a["price"] * seconds / batch
                    for i in np.flatnonzero(used <= a["memory"]):
                        rows.append((1 / seconds[i], cost[i], n, t, stages, groups, data, batch[i]))
    return np.array(rows).reshape(-1, 8)
