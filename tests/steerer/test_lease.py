"""Who steers, of several, as the plans that are heard tell."""

import pytest

from federator.protocol.messages.steering import STEERING_VERSION, Plan, tree_of
from federator.protocol.types import Now
from federator.steerer.lease import Lease, trees_of

WALL_MS = 1_000_000


def plan(steerer="other", *, since=1, broker=1, made=WALL_MS, valid=30_000, trees=()):
    return Plan(STEERING_VERSION, "fed", broker, steerer, since, 1, made, valid, trees)


def lease(*plans, since=100):
    made = Lease("us", since_ms=since)
    for each in plans:
        made.on_plan(each, Now(0, WALL_MS * 1_000))
    return made


@pytest.mark.parametrize(
    ("noted", "now_ms", "holder"),
    [
        pytest.param(plan(), 29_999, "other", id="who began first steers"),
        pytest.param(plan(), 30_000, None, id="until its plans expire"),
        pytest.param(plan(since=101), 0, None, id="who began later is not waited for"),
        pytest.param(plan(made=WALL_MS - 29_000), 1_001, None, id="a late plan holds for the rest"),
        pytest.param(plan(made=WALL_MS - 30_000), 0, None, id="an expired one not at all"),
        pytest.param(plan(made=WALL_MS + 3_600_000), 0, None, id="nor one of a clock ahead"),
        pytest.param(plan("us", since=99), 0, "us", id="another run of our name is another"),
        pytest.param(plan("us", since=100), 0, None, id="this run is not waited for"),
    ],
)
def test_who_is_waited_for(noted, now_ms, holder):
    assert lease(noted).holder(now_ms=now_ms) == holder


def test_the_trees_of_who_steered_before_are_inherited_once():
    tree, other = tree_of(1, ["a"], {2: 1}), tree_of(2, ["a"], {1: 2})
    waiting = lease(plan(trees=(tree,)), plan(broker=2, trees=(tree, other)))
    assert trees_of(waiting.former()) == []

    waiting.on_cleared(1)
    assert waiting.holder(now_ms=0) == "other"
    assert waiting.holder(now_ms=30_000) is None

    assert trees_of(waiting.former()) == [tree, other]
    assert trees_of(waiting.former()) == []
