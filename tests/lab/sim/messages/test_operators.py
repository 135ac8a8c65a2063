"""Operators change links and their costs under traffic, and reload: promises hold meanwhile."""

from collections import Counter
from functools import partial

import pytest

from lab.sim import campaign
from lab.sim.campaign import run
from lab.sim.messages.operators import COSTS, with_reloads
from lab.sim.story import Kind
from tests.effort import seeds

draw = partial(campaign.draw, Kind.MESSAGES)

SEEDS = seeds(40)
RELOADS = 6


@pytest.mark.parametrize("faulty", [False, True])
def test_everybody_gets_what_was_promised_while_operators_reload(faulty):
    results = [run(with_reloads(draw(seed, faulty=faulty), RELOADS)) for seed in range(SEEDS)]

    assert [result for result in results if result.violation is not None] == []
    fired = sum((Counter(result.fired) for result in results), Counter())
    assert fired["reload unnamed"] > SEEDS
    assert fired["reload cost"] > SEEDS
    assert fired["dial_back"]


def test_what_is_not_changed_counts():
    assert min(COSTS) == 1
