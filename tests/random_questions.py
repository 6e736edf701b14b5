"""Random small questions, as plain dictionaries and as scenarios of the library."""

import numpy as np

import jaxecon as je


def question(seed):
    rng = np.random.default_rng(seed)

    def model(scale):
        k = int(rng.choice([1, 2, 4, 8]))
        h = k * int(rng.choice([1, 2, 4]))
        width = 256 * int(rng.integers(4, 33)) / scale
        return {
            "d": width,
            "f": int(rng.choice([3, 4])) * width,
            "h": h,
            "k": k,
            "e": int(rng.choice([64, 128])),
            "L": int(rng.choice([8, 12, 30])),
            "V": int(rng.integers(10, 150)) * 1000,
        }

    drafted = rng.random() < 0.4
    return {
        "model": model(1),
        "draft": model(4) if drafted else None,
        "acceptance": float(rng.choice([0.0, 0.5, 0.8, 1.0])) if drafted else 0.0,
        "gamma_max": 3,
        "context": float(round(10 ** rng.uniform(1, 4.5))),
        "output": float(rng.integers(1, 2000)),
        "demand": float(10 ** rng.uniform(2, 4)) if rng.random() < 0.3 else None,
        "budget": float(10 ** rng.uniform(-2, 1)),
        "accelerator": {
            "flops": 10 ** rng.uniform(13.5, 15),
            "bandwidth": 10 ** rng.uniform(11.5, 12.8),
            "memory": 10 ** rng.uniform(9.5, 11),
            "up": 10 ** rng.uniform(10.5, 12),
            "out": 10 ** rng.uniform(9.5, 11),
            "domain": int(rng.choice([2, 4, 8])),
            "launch": 10 ** rng.uniform(-6.5, -5),
            "price": 10 ** rng.uniform(-0.5, 1) / 3600,
        },
    }


def sparse_question(seed):
    """A question about a model with routed experts, some with latent attention."""
    rng = np.random.default_rng(10_000 + seed)
    q = question(seed)
    experts = int(rng.choice([4, 6, 8, 16]))
    width = 128 * int(rng.integers(4, 17))
    hidden = 64 * int(rng.choice([4, 6, 12]))
    dense = q["model"]
    model = {
        "d": float(width),
        "f": hidden,
        "E": experts,
        "A": int(rng.choice([1, 2, 4])),
        "shared": int(rng.choice([0, hidden])),
        "first": int(rng.choice([0, 1, 3])),
        "wide": 3 * width,
        "L": int(rng.choice([9, 11, 12])),
        "latent": (256, 64, 32, 64) if rng.random() < 0.4 else None,
        "dispatch": float(rng.choice([1.0, 2.0])),
        **{k: dense[k] for k in ("h", "k", "e", "V")},
    }
    q["accelerator"]["memory"] = 10 ** rng.uniform(9.0, 10.3)
    return q | {
        "model": model,
        "draft": None,
        "demand": None,
        "imbalance": float(rng.choice([1.0, 1.3])),
        "overlap": float(rng.choice([0.0, 0.5])),
    }


def sparse_scenario_of(q):
    m, a = q["model"], q["accelerator"]
    accelerator = je.Accelerator(
        je.PeakRates(a["flops"]),
        a["bandwidth"],
        a["memory"],
        je.Network(a["up"], a["out"], a["domain"]),
        a["price"],
        a["launch"],
    )
    if m["latent"]:
        attention = je.LatentAttention(m["h"], *m["latent"])
    else:
        attention = je.GroupedQueryAttention(m["h"], m["k"], m["e"], m["e"])
    sparse = je.MixtureOfExperts(m["E"], m["A"], m["f"], m["shared"])
    groups = (je.LayerGroup(m["L"], attention, sparse),)
    if m["first"]:
        groups = (je.LayerGroup(m["first"], attention, je.DenseFeedForward(m["wide"])), *groups)
    model = je.Model(m["d"], m["V"], groups, je.Precision(dispatch=m["dispatch"]))
    options = {"expert_imbalance": q["imbalance"], "overlap": q["overlap"]}
    return je.Serving(model, accelerator, je.Workload(q["context"], q["output"]), **options)


def scenario_of(q):
    a = q["accelerator"]
    accelerator = je.Accelerator(
        je.PeakRates(a["flops"]),
        a["bandwidth"],
        a["memory"],
        je.Network(a["up"], a["out"], a["domain"]),
        a["price"],
        a["launch"],
    )
    speculation = None
    if q["draft"]:
        speculation = je.Speculation(_model(q["draft"]), q["acceptance"], max_draft_tokens=q["gamma_max"])
    workload = je.Workload(q["context"], q["output"], q["demand"])
    return je.Serving(_model(q["model"]), accelerator, workload, speculation=speculation)


def _model(m):
    attention = je.GroupedQueryAttention(m["h"], m["k"], m["e"], m["e"])
    return je.Model(m["d"], m["V"], (je.LayerGroup(m["L"], attention, je.DenseFeedForward(m["f"])),))
