"""What an agent does of a plan's word on the edge: only with its operator's, and while it holds."""

import pytest

from federator.errors import DecodeError
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.keeping import KeepPolicy
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.steering import STEERING_VERSION, KeptLoad, Plan
from federator.protocol.steering import edge_follower
from federator.protocol.steering.edge_follower import WINDOWS, EdgeFollower, KeptMeter
from federator.protocol.steering.follower import PlanFollower
from federator.protocol.steering.plan_book import PlanBook
from tests.protocol.steering.test_plans import Ways, at, plan


class Edge:
    """One agent's edge, and what it was told to do."""

    def __init__(self, **more):
        self.kept, self.collected, self.notices = [], [], []
        self.straight, self.in_mesh = {"a/#"}, set()
        self.follower = EdgeFollower(
            keep=lambda policy, now: self.kept.append(policy),
            collect=lambda filters: self.collected.append(set(filters)),
            note=self.notices.append,
            asks_straight=lambda filter: filter in self.straight,
            asks_in_mesh=lambda filter: filter in self.in_mesh,
            **{"allowed": True, **more},
        )

    def follow(self, **says):
        self.follower.follow(told(**says), at(0))

    def complaints(self):
        return [n.details["reason"] for n in self.notices if n.name == "steer.not_allowed"]


def told(**says):
    return Plan(STEERING_VERSION, "fed", 2, "s", 0, 1, 0, 1_000, **says)


def test_what_the_plan_says_holds_until_another_one_or_none_holds():
    edge = Edge()
    edge.follow(keep="ns")
    edge.follow(keep="ns")
    edge.follow(keep="lp")
    edge.follow(collects=("a/#",))
    edge.follower.follow(None, at(1))

    assert edge.kept == [KeepPolicy.NS, KeepPolicy.LP, None]
    assert edge.collected == [{"a/#"}, set()]
    assert edge.complaints() == []
    assert edge.follower.told(1.0, 2.0) is None


def test_a_plan_that_expires_or_is_taken_away_ends_it_at_once():
    edge = Edge()
    follower = PlanFollower(
        PlanBook("fed", 2), Ways(2), 2, lambda *what: None, edge.notices.append,
        edge.follower.follow,
    )  # fmt: skip
    follower.on_plan(plan(1, keep="ns", collects=("a/#",)), at(0))
    follower.on_time(at(999))
    assert edge.kept == [KeepPolicy.NS]

    follower.on_time(at(1_000))
    assert (edge.kept[-1], edge.collected[-1]) == (None, set())

    follower.on_plan(plan(2, keep="ns"), at(0))
    follower.on_plan(None, at(1))
    assert edge.kept == [KeepPolicy.NS, None, KeepPolicy.NS, None]

    follower.on_plan(plan(3, keep="ns", trees=()), at(0))
    follower.on_plan(plan(3, keep="lp", trees=()), at(1))  # forged: that number came before
    assert edge.kept[-1] is KeepPolicy.NS


@pytest.mark.parametrize("says", [{"keep": "ns"}, {"collects": ("a/#",)}])
def test_without_the_operators_word_nothing_is_done_and_that_is_said_once(says):
    edge = Edge(allowed=False)
    edge.follow(**says)
    edge.follow(**says)

    assert edge.kept == edge.collected == []
    assert edge.complaints() == [edge_follower.NOT_ALLOWED]
    assert edge.follower.told(0.0, 0.0) == KeptLoad(False, why_not=edge_follower.NOT_ALLOWED)

    edge.follower.allow(True, at(1))
    assert edge.kept or edge.collected

    edge.follower.allow(False, at(2))
    assert (edge.kept or edge.collected)[-1] in (None, set())


def test_while_it_is_in_doubt_what_clients_want_nothing_is_said_to_be_collected():
    edge = Edge(in_doubt=True)
    edge.follow(keep="ns", collects=("a/#",))
    assert edge.kept == [KeepPolicy.NS]
    assert edge.collected == []
    assert edge.follower.told(0.0, 0.0).why_not == edge_follower.IN_DOUBT

    edge.follower.doubt(False, at(1))
    edge.follower.doubt(True, at(2))

    assert edge.collected == [{"a/#"}, set()]
    assert edge.complaints() == []


def test_what_hinders_a_hub_is_told():
    named, crowd = Edge(obstacle="it renames topics"), Edge()
    named.follow(collects=("a/#",))
    crowd.follow(collects=tuple("x" * 1_000 + str(n) for n in range(9)))
    meshed = Edge()
    meshed.straight, meshed.in_mesh = set(), {"a/#"}
    meshed.follow(collects=("a/#",))

    assert (named.collected, named.complaints()) == ([], ["it renames topics"])
    assert (crowd.collected, crowd.complaints()) == ([], [edge_follower.TOO_MANY])
    assert meshed.follower.told(0.0, 0.0).collects == ()
    assert "[routing] filters" in meshed.follower.told(0.0, 0.0).why_not


def test_a_policy_of_a_later_release_keeps_nothing_and_spoils_no_plan():
    edge = Edge()
    edge.follow(keep="all-but-mine", collects=("a/#",))

    assert edge.kept == []
    assert edge.collected == [{"a/#"}]
    assert "unknown" in edge.follower.told(0.0, 0.0).why_not


def test_a_hub_tells_what_of_it_is_wanted_over_the_shortest_path():
    edge = Edge()
    edge.follow(collects=("a/#", "b/#"))

    assert edge.follower.told(0.0, 0.0) == KeptLoad(True, collects=("a/#",))


def test_a_plan_travels_whole_and_one_of_former_days_says_nothing_of_the_edge():
    whole = told(keep="lp", collects=("a/#", "b"))
    assert decode(Plan, encode(whole)) == whole
    former = encode(told()).replace(b',"keep":"","collects":[]', b"")
    assert b"keep" not in former
    assert decode(Plan, former) == told()
    with pytest.raises(DecodeError):
        decode(Plan, encode(told(keep="x" * 17)))


def test_what_is_kept_is_a_mean_of_some_looks():
    counters = DataCounters()
    meter = KeptMeter(counters)
    assert meter.rates() == (0.0, 0.0)
    for look in range(2 * WINDOWS):
        counters.kept += 10
        counters.kept_bytes += 1_000
        meter.look(2_000 * look)
    assert meter.rates() == (5.0, 4_000.0)
    for look in range(2 * WINDOWS, 4 * WINDOWS):
        meter.look(2_000 * look)
    assert meter.rates() == (0.0, 0.0)
