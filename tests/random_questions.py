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
