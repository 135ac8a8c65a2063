"""Operators change links and their costs under traffic, and reload: promises hold meanwhile."""

from collections import Counter

import pytest

from lab.sim.messages.campaign import run_story
from lab.sim.messages.operators import COSTS
from lab.sim.messages.story import draw
from tests.effort import seeds

SEEDS = seeds(40)
RELOADS = 6


@pytest.mark.parametrize("faulty", [False, True])
def test_everybody_gets_what_was_promised_while_operators_reload(faulty):
    results = [run_story(draw(seed, faulty=faulty), reloads=RELOADS) for seed in range(SEEDS)]

    assert [result for result in results if result.violation is not None] == []
    fired = sum((Counter(result.fired) for result in results), Counter())
    assert fired["reload unnamed"] > SEEDS
    assert fired["reload cost"] > SEEDS
    assert fired["dial_back"]


def test_the_story_of_a_seed_is_the_same_without_operators():
    assert run_story(draw(1)).fired == run_story(draw(1), reloads=0).fired
    assert min(COSTS) == 1, "what is not changed counts"
