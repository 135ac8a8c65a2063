"""Who steers, of several, as the plans that are heard tell."""

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


def test_who_began_first_steers_until_its_plans_expire():
    waiting = lease(plan())

    assert waiting.holder(now_ms=29_999) == "other"
    assert waiting.holder(now_ms=30_000) is None


def test_who_began_later_is_not_waited_for():
    assert lease(plan(since=101)).holder(now_ms=0) is None


def test_a_plan_that_came_late_holds_for_the_rest_only():
    assert lease(plan(made=WALL_MS - 29_000)).holder(now_ms=1_001) is None
    assert lease(plan(made=WALL_MS - 30_000)).holder(now_ms=0) is None


def test_a_plan_out_of_a_clock_that_is_ahead_holds_nobody_up():
    assert lease(plan(made=WALL_MS + 3_600_000)).holder(now_ms=0) is None


def test_another_run_of_our_name_is_another():
    assert lease(plan("us", since=99)).holder(now_ms=0) == "us"
    assert lease(plan("us", since=100)).holder(now_ms=0) is None


def test_the_trees_of_who_steered_before_are_inherited_once():
    tree, other = tree_of(1, ["a"], {2: 1}), tree_of(2, ["a"], {1: 2})
    waiting = lease(plan(trees=(tree,)), plan(broker=2, trees=(tree, other)))
    assert trees_of(waiting.former()) == []

    waiting.on_cleared(1)
    assert waiting.holder(now_ms=0) == "other"
    assert waiting.holder(now_ms=30_000) is None

    assert trees_of(waiting.former()) == [tree, other]
    assert trees_of(waiting.former()) == []
