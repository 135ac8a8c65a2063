"""Stories with clients: nobody lacks what was promised, nobody gets anything twice or too early."""

from collections import Counter
from functools import partial

import pytest

from lab.sim import campaign
from lab.sim.campaign import run
from lab.sim.story import FaultKind, Kind
from tests.effort import seeds
from tests.lab.sim.violations import violations

draw = partial(campaign.draw, Kind.MESSAGES)

SEEDS = seeds(150)
SHARE_MIN = 0.01


@pytest.fixture(scope="module")
def results():
    return [run(draw(seed)) for seed in range(SEEDS)]


def test_everybody_gets_what_was_promised(results):
    violated = violations(results, "--messages")

    assert not violated, "\n".join(violated)


@pytest.mark.slow
def test_every_kind_of_trouble_and_of_remedy_happens_in_one_seed_of_a_hundred(results):
    stories = Counter(name for r in results for name, times in r.fired.items() if times)

    wanted = {f"fault {kind}" for kind in FaultKind}
    wanted |= {
        "crash between writes", "duplicate_suppressed", "excused log full", "loss",
        "notice discovery.ambiguous", "notice discovery.untrusted", "repair asked",
        "repair sent",
    }  # fmt: skip
    rare = {name: stories[name] for name in wanted if stories[name] < SHARE_MIN * SEEDS}
    assert not rare


def test_a_story_can_be_told_again():
    first, again = run(draw(7)), run(draw(7))

    assert first == again
