"""Parts of the budgets at the same time: the answers of one search, whatever their number."""

import threading

import jax
import numpy as np
import pytest

import jaxecon as je
from jaxecon.optimum import _side_by_side as side_by_side

BUDGETS = np.geomspace(0.5, 8.0, 32)


@pytest.fixture(scope="module")
def scenario():
    return je.Erdil2025(
        je.load_model("llama-3.1-70b"),
        je.load_accelerator("h100-sxm", price_per_hour=2.0),
        je.Workload(4096.0),
    )


def test_parts_give_the_same_frontier(scenario, monkeypatch):
    found = []
    for cores in (1, 2, 8):
        monkeypatch.setattr(side_by_side, "_cores", lambda cores=cores: cores)
        found.append(je.relaxed_frontier(scenario, BUDGETS))
    for other in found[1:]:
        np.testing.assert_allclose(other.speed, found[0].speed, rtol=1e-9)
        np.testing.assert_allclose(other.cost, found[0].cost, rtol=1e-9)
        np.testing.assert_allclose(other.layout.batch, found[0].layout.batch, rtol=1e-6)
        assert other.partition == found[0].partition


def test_parts_are_of_one_size():
    assert [side_by_side._parts(n, 2) for n in (1, 16, 32, 64)] == [1, 1, 2, 2]
    assert [side_by_side._parts(64, cores) for cores in (1, 2, 3, 4, 64)] == [1, 2, 2, 4, 4]


def test_64_bits_may_be_a_setting_of_the_callers_thread(scenario, monkeypatch):
    monkeypatch.setattr(side_by_side, "_cores", lambda: 2)
    whole = je.relaxed_frontier(scenario, BUDGETS).speed
    jax.config.update("jax_enable_x64", False)
    try:
        with jax.enable_x64(True):
            np.testing.assert_array_equal(je.relaxed_frontier(scenario, BUDGETS).speed, whole)
    finally:
        jax.config.update("jax_enable_x64", True)


def test_threads_may_ask_at_the_same_time(scenario):
    whole, found = je.relaxed_frontier(scenario, BUDGETS).speed, {}

    def ask(i):
        found[i] = je.relaxed_frontier(scenario, BUDGETS).speed

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for speed in found.values():
        np.testing.assert_array_equal(speed, whole)
