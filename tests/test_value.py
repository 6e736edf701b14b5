"""The point of most value, the least expense, and tiers, on frontiers small enough to check by hand."""

import itertools

import numpy as np
import pytest

import jaxecon as je

SPEED = np.array([100.0, 80.0, 60.0, 40.0, 20.0, 10.0])
COST = np.array([9.0, 4.0, 2.0, 1.5, 0.5, 0.45])


def test_best_value():
    best = je.best_value(SPEED, COST)
    assert (
        best.index == int(np.argmax(SPEED**4 / COST))
        and best.value == SPEED[best.index] ** 4 / COST[best.index]
    )
    assert je.best_value(SPEED, COST, exponent=0.0).cost == 0.45


def test_waiting_time_chooses():
    assert je.least_expense(SPEED, COST, 0.0).cost == 0.45
    assert je.least_expense(SPEED, COST, 1e4).speed == 100.0
    one = je.least_expense(SPEED, COST, 5.0, tokens_per_task=2e6)
    assert one.value == pytest.approx(2.0 * (one.cost + 5e6 / 3600.0 / one.speed))


def test_tiers_are_what_users_choose():
    offered = je.tiers(SPEED, COST)
    for tier in offered:
        middle = np.sqrt(tier.waiting_from * tier.waiting_to)
        assert je.least_expense(SPEED, COST, middle).index == tier.index
    assert [t.waiting_to for t in offered[:-1]] == [t.waiting_from for t in offered[1:]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_tiers_are_the_best_few(count):
    """Against all subsets."""
    users = np.geomspace(0.01, 1000.0, 400)
    expense = COST / 1e6 + users[:, None] / (3600.0 * SPEED)
    excess = expense / expense.min(axis=1, keepdims=True)

    def loss(kept):
        return excess[:, list(kept)].min(axis=1).sum()

    best = min(loss(kept) for kept in itertools.combinations(range(len(SPEED)), count))
    assert loss([t.index for t in je.tiers(SPEED, COST, count)]) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("bad", [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_bad_frontiers(bad):
    for call in (je.best_value, je.tiers, lambda s, c: je.least_expense(s, c, 1.0)):
        with pytest.raises(je.InputError, match="frontier"):
            call(*bad)


def test_bad_tiers():
    with pytest.raises(je.InputError, match="at least 1"):
        je.tiers(SPEED, COST, 0)
    with pytest.raises(je.InputError, match="rising"):
        je.tiers(SPEED, COST, waiting=(2.0, 1.0))
