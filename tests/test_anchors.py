"""Published decode speeds, with constants that were not fitted to them."""

import numpy as np
import pytest

import jaxecon as je
from anchors import rows
from jaxecon.scenarios import evaluate_layouts

ROWS = rows()


@pytest.mark.parametrize("name", list(ROWS))
def test_published_step_time(name):
    model, accelerator, context, layout, measured, tolerance, _ = ROWS[name]
    scenario = je.Serving(model, accelerator, je.Workload(context, 64.0))
    total = float(evaluate_layouts(scenario, layout)[2])
    assert total == pytest.approx(measured, rel=tolerance)
    if "batch 256 each" not in name:  # that run ended at 2,000 tokens; longer outputs do not fit
        assert float(scenario.memory_margin(layout)) > 0.0


def test_deepseek_prefill_and_decode_of_one_day():
    """Per node and second, 73,700 tokens entered, 56 % of them cached, and 14,800 were generated.

    Source: DeepSeek open-infra-index, day 6 (March 2025): prefill on 4 nodes, decode on 18; requests
    of 4,383 to 4,989 tokens at decode.
    """
    work = je.Workload(4989.0, 1212.0, prompt=4383.0, hit_rate=0.563)
    scenario = je.Serving(je.load_model("deepseek-v3"), je.load_accelerator("h800-sxm"), work)
    decode = je.Layout(data=144.0, expert=144.0, batch=144.0 * 96.0)
    found = je.pools(scenario, decode, je.Layout(data=32.0, expert=32.0, batch=32.0))
    assert 8 * float(found.per_prefill_accelerator) == pytest.approx(73_700, rel=0.2)
    assert 8 * float(found.per_decode_accelerator) == pytest.approx(14_800, rel=0.2)
    assert np.isfinite(float(found.ratio))
