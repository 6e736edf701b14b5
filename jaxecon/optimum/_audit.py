"""Checks of an answer that do not use the search."""

import numpy as np

from ..scenarios import Scenario
from ._exact import Certified


def audit(scenario: Scenario, found: Certified) -> None:
    """Recompute what every printed layout must satisfy.

    Raises:
        RuntimeError: if memory does not fit, the accelerator count is not the product of the
            degrees, the time is below the roofline, or cost and speed do not belong together.
    """
    layout = found.layout
    degrees = float(layout.tensor) * float(layout.data) * float(layout.pipeline)
    time = scenario.step_time(layout)
    seconds = float(scenario.tokens_per_step(layout)) / found.speed
    price = float(scenario.accelerator.price)
    cost = 1e6 * degrees * price / (float(layout.batch) * found.speed)
    checks = {
        "the layout does not fit in memory": float(scenario.memory_margin(layout)) >= 0.0,
        "the accelerators are not the product of the degrees": degrees == float(layout.accelerators),
        "the time is below the roofline": seconds >= float(time.roofline_bound) * (1 - 1e-12),
        "speed and step time disagree": np.isclose(seconds, float(time.total), rtol=1e-9),
        "cost and speed disagree": np.isclose(cost, found.cost, rtol=1e-9),
    }
    for complaint, holds in checks.items():
        if not holds:
            raise RuntimeError(f"internal check failed: {complaint}; please report this scenario")
