"""Which plan holds, until when, and what becomes of trees that are torn."""

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol.forwarding.trees import TORN_MS, TreeTable
from federator.protocol.messages.control import TreeTorn
from federator.protocol.messages.destinations import tree_key
from federator.protocol.messages.steering import STEERING_VERSION, Plan, Tree, tree_number, tree_of
from federator.protocol.steering.follower import TELL_GAP_MS, PlanFollower
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.types import BrokerId, Now

ONE, TWO, THREE = map(BrokerId, range(1, 4))
TREE = tree_of(ONE, ["a"], {TWO: ONE, THREE: TWO})
KEY = tree_key(tree_number(TREE))
WALL_MS = 1_790_000_000_000


def at(ms):
    return Now(ms, (WALL_MS + ms) * 1_000)


def plan(number=1, *, steerer="s", since_ms=0, made_ms=0, valid_ms=1_000, **other):
    told = {"version": STEERING_VERSION, "federation": "fed", "broker": 2, "trees": (TREE,)}
    told |= {"steerer": steerer, "since_ms": since_ms, "number": number, "valid_ms": valid_ms}
    return msgspec.convert(told | {"made_ms": WALL_MS + made_ms} | other, Plan)


@pytest.fixture
def book():
    return PlanBook("fed", 2)


class Ways:
    """A data plane that only remembers."""

    def __init__(self, broker):
        self.broker, self.trees, self.changes = broker, TreeTable(), 0
        for neighbour in range(9):
            self.trees.reach(neighbour, True)

    def follow_trees(self, trees, now):
        if self.trees.replace(trees, self.broker):
            self.trees_changed(now)

    def trees_changed(self, now):
        self.changes += 1


@pytest.fixture
def ways():
    return Ways(2)


@pytest.fixture
def told():
    return []


@pytest.fixture
def notices():
    return []


@pytest.fixture
def follower(book, ways, told, notices):
    return PlanFollower(book, ways, 2, lambda *what: told.append(what), notices.append)


def test_a_plan_holds_as_long_as_it_says_by_the_clock_that_tells_less(book):
    book.take(plan(made_ms=-400), at(0))

    assert book.due_ms == 600
    assert book.holds(599) == plan(made_ms=-400)
    assert book.holds(600) is None

    book.take(plan(2, made_ms=700), at(0))  # its clock is ahead
    assert book.due_ms == 1_000


def test_what_holds_may_be_told_again_and_holds_no_longer_for_that(book):
    book.take(plan(), at(0))
    book.take(plan(), at(500))

    assert book.due_ms == 1_000


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"version": 2}, "version 2, 1 wanted"),
        ({"federation": "other"}, "for broker 2 of federation 'other'"),
        ({"broker": 3}, "for broker 3"),
        ({"made_ms": -1_000}, "made 1000 ms ago, it held for 1000: see both clocks"),
        ({"made_ms": 60_001}, "made in 60001 ms from now: see both clocks"),
    ],
)
def test_what_is_not_for_us_or_not_of_now_is_refused(book, other, why):
    with pytest.raises(DecodeError, match=why):
        book.take(plan(**other), at(0))
    assert book.holds(0) is None


def test_an_older_plan_of_the_same_steerer_is_refused_and_a_replay_too(book):
    book.take(plan(5, valid_ms=100), at(0))

    for number in (4, 5):
        with pytest.raises(DecodeError, match=f"number {number} of s came before"):
            book.take(plan(number), at(200))
    book.take(plan(1, since_ms=1), at(200))  # it was started again


def test_of_two_who_steer_the_older_goes_on_and_the_other_is_heard_when_it_is_silent(book):
    book.take(plan(steerer="b", since_ms=7), at(0))

    with pytest.raises(DecodeError, match="b steers, since before c"):
        book.take(plan(steerer="c", since_ms=8), at(10))
    book.take(plan(steerer="a", since_ms=7), at(10))
    book.take(plan(steerer="c", since_ms=8, made_ms=2_000), at(2_000))
    assert book.holds(2_000).steerer == "c"


def test_trees_are_followed_while_a_plan_holds(follower, ways, notices):
    follower.on_plan(plan(), at(0))
    follower.on_plan(plan(2, made_ms=500), at(500))

    assert len(ways.trees) == 1
    assert ways.changes == 1
    assert follower.due_ms == 1_500
    follower.on_time(at(1_499))
    assert len(ways.trees) == 1
    follower.on_time(at(1_500))
    assert len(ways.trees) == 0
    assert follower.due_ms is None
    assert [(n.name, n.details) for n in notices] == [
        ("steer.followed", {"steerer": "s"}),
        ("steer.ended", {"reason": "expired"}),
    ]


def test_a_plan_that_is_taken_away_ends_at_once(follower, ways):
    follower.on_plan(plan(), at(0))
    follower.on_plan(None, at(1))

    assert len(ways.trees) == 0
    assert follower.plan(1) is None


def test_a_plan_with_a_tree_that_is_none_ends_steering_and_is_told_once_a_minute(
    follower, ways, notices
):
    follower.on_plan(plan(), at(0))
    for number in range(2, 9):
        bad = Tree(1, ("a",), ((1, 2), (3, 2)))
        follower.on_plan(plan(number, trees=(bad,)), at(number))

    assert len(ways.trees) == 0
    assert [n.name for n in notices] == ["steer.followed", "steer.ended", "steer.refused"]
    assert "two parents" in notices[-1].details["reason"]
    assert follower.refused == 7


def test_who_brings_frames_of_a_tree_that_does_not_hold_is_told_now_and_then(follower, told):
    for ms in range(0, 2 * TELL_GAP_MS, TELL_GAP_MS // 4):
        follower.on_torn(KEY, 1, at(ms))

    assert told == [(1, TreeTorn(2, KEY))] * 2


def test_a_tear_goes_up_the_tree_and_is_forgotten(follower, ways, told):
    follower.on_plan(plan(valid_ms=600_000), at(0))
    follower.on_message(TreeTorn(3, KEY), at(0))
    follower.on_message(TreeTorn(3, KEY), at(1))

    assert told == [(1, TreeTorn(2, KEY))]
    assert ways.changes == 2
    follower.on_time(at(TORN_MS + 1))
    assert ways.changes == 3
    assert ways.trees.due_ms is None


def test_a_tear_told_by_nobody_below_changes_nothing(follower, ways, told):
    follower.on_plan(plan(), at(0))
    for sender, key in ((1, KEY), (9, KEY), (3, tree_key(5))):
        follower.on_message(TreeTorn(sender, key), at(0))

    assert told == []
    assert ways.changes == 1
