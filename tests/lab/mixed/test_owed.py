"""What a subscriber that came and went is owed, by hand."""

from collections import Counter

from lab.mixed.run import Looked, Outcome, Settings
from lab.mixed.traffic import Tally, owed

PLAN = Settings(minutes=1, rate=50, seed=1, report_every_min=1, plant=False)
PLANTED = Settings(minutes=1, rate=50, seed=1, report_every_min=1, plant=True)


def test_owed_is_what_was_published_between_coming_and_going():
    before, after = {"mixed/1/0": 3}, {"mixed/1/0": 5, "mixed/1/1": 2, "mixed/2/0": 9}

    assert owed("mixed/1/+", before, after) == {"mixed/1/0": range(3, 5), "mixed/1/1": range(2)}


def test_what_never_came_is_missing_and_what_came_twice_is_told():
    tally = Tally()

    tally.settle(
        "v", {"t": range(4)}, Counter({("t", 0): 1, ("t", 1): 2, ("t", 3): 1, ("u", 2): 1})
    )

    assert (tally.visits, tally.owed, tally.missing, tally.again) == (1, 4, 1, 1)
    assert tally.examples == ["v: t 2 to 2, 1"]


def looked(*, reported, clients, offered=9):
    return Looked(1.0, "healthy", offered, reported, 0, clients)


GOOD = looked(reported=0, clients=0)
WOLF = looked(reported=1, clients=0)
SAID = looked(reported=2, clients=1)
UNSAID = looked(reported=0, clients=1)


def test_one_story_is_told_when_nobody_lost_anything_and_neither_says_so():
    assert Outcome(PLAN, reports=[GOOD], glances=[GOOD]).held
    nothing = looked(reported=0, clients=0, offered=0)
    assert not Outcome(PLAN, reports=[nothing], glances=[GOOD]).held
    assert not Outcome(PLAN, reports=[GOOD], glances=[nothing]).held
    assert not Outcome(PLAN, reports=[WOLF, GOOD], glances=[GOOD]).held
    assert not Outcome(PLAN, reports=[GOOD], glances=[WOLF, GOOD]).held
    assert [each.cries_wolf for each in (WOLF, GOOD)] == [True, False]
    assert not Outcome(PLAN, tally=Tally(missing=1), reports=[GOOD], glances=[GOOD]).held


def test_what_was_planted_must_be_said_by_both():
    assert Outcome(PLANTED, reports=[SAID], glances=[SAID]).held
    assert not Outcome(PLANTED, reports=[UNSAID], glances=[SAID]).held
    assert not Outcome(PLANTED, reports=[SAID], glances=[UNSAID]).held


def test_a_summary_and_the_dashboards_answer_are_read_alike():
    rows = [{"qos": 0, "offered": 3}, {"qos": 1, "offered": 4}]
    told = {"verdict": "healthy", "loss": {"by_qos": rows, "missing": 2, "under_way": 5}}

    assert Looked.at(1.5, told, 1) == Looked(1.5, "healthy", 7, 2, 5, 1)
