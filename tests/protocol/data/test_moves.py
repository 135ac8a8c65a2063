"""A flow that moves to another way stays in order, however long the queues of the former one are.

Five brokers: the first publishes, the last subscribes, and two ways of equal length lead there, of
two links each. The lower one is narrow behind its relay, where a queue grows.
"""

from collections import Counter
from itertools import pairwise

import pytest

from federator.protocol.data import moves
from federator.protocol.effects import FilterRoute
from federator.protocol.messages.steering import tree_of
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import LinkRules
from federator.protocol.types import BrokerId
from lab.sim.data import number_of, packet_of
from tests.protocol.data.narrow import DELAY_MS, Narrow, NarrowWorld

ORIGIN, LOWER, UPPER, END = map(BrokerId, range(1, 5))
FLOW, TOPIC, OTHER = ("a/#",), "a/b", "others"
BY_LOWER = tree_of(ORIGIN, FLOW, {LOWER: ORIGIN, END: LOWER})
BY_UPPER = tree_of(ORIGIN, FLOW, {UPPER: ORIGIN, END: UPPER})
KIB = 1_024


class Diamond(NarrowWorld):
    def __init__(self, *, queue_bytes, bytes_per_ms, **options):
        self.arrived, self.published = [], Counter()
        super().__init__((ORIGIN, LOWER, UPPER, END), self.take, **options)
        self.narrow = Narrow(self, END, bytes_per_ms=bytes_per_ms, queue_bytes=queue_bytes)
        for relay in (LOWER, UPPER):
            for a, b in ((ORIGIN, relay), (relay, ORIGIN), (relay, END), (END, relay)):
                link = self.narrow if (a, b) == (LOWER, END) else Narrow(self, b)
                self.planes[a].reach(b, link, self.now, takes_bundles=True)
        for id, plane in self.planes.items():
            for filter in (*FLOW, OTHER):
                plane.set_route(filter, FilterRoute(id == END, id != END, (), (END,)), self.now)
        ways = {ORIGIN: LOWER, LOWER: END, UPPER: END}
        for id, next_hop in ways.items():
            self.planes[id].set_destinations({END: next_hop}, self.now)

    def take(self, id, packet):
        if id == END and packet.topic == TOPIC:
            self.arrived.append(number_of(packet))

    def publish(self, size, topic=TOPIC):
        """A client of the origin publishes a packet of about ``size`` bytes."""
        self.published[topic] += 1
        padding = [("padding", "x" * size)]
        self.read(ORIGIN, packet_of(topic, self.published[topic], 0, properties=padding))

    def publish_steadily(self, topic, *, until_ms, bytes_per_ms, size):
        every_ms = size / bytes_per_ms
        for number in range(int((until_ms - self.now_ms) / every_ms)):
            self.at(self.now_ms + number * every_ms, self.publish, size, topic)

    def follow(self, *trees):
        for id, plane in self.planes.items():
            ours = [t for t in trees if id in {t.origin, *(e for edge in t.edges for e in edge)}]
            plane.follow_trees(ours, self.now)

    @property
    def steps_back(self):
        return sum(b < a for a, b in pairwise(self.arrived))


MOVES = {
    "to a tree": ((), (BY_UPPER,)),
    "to another tree": ((BY_LOWER,), (BY_UPPER,)),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize(("queue_kib", "lasts_ms"), [(64, 4_000), (1_024, 4_000), (16_384, 40_000)])
def test_a_flow_that_leaves_a_full_queue_takes_no_step_back(queue_kib, lasts_ms, move):
    before, after = move  # what others send fills the link alone, before and afterwards
    rate = queue_kib * KIB / lasts_ms
    world = Diamond(queue_bytes=queue_kib * KIB, bytes_per_ms=rate)
    world.follow(*before)
    for topic, share in ((TOPIC, 0.4), (OTHER, 1.0)):
        world.publish_steadily(
            topic,
            until_ms=5 * lasts_ms,
            bytes_per_ms=share * rate,
            size=int(rate * lasts_ms / 500),
        )
    world.run_until(3 * lasts_ms)
    waited_ms = world.narrow.waiting_ms

    moved = world.published[TOPIC]
    world.follow(*after)
    world.run_until(10 * lasts_ms)

    assert waited_ms > 0.87 * lasts_ms, "the queue was full"
    assert world.steps_back == 0
    lost = set(range(1, world.published[TOPIC] + 1)).difference(world.arrived)
    assert len(lost) <= world.narrow.dropped
    assert max(lost) <= moved, "what waits is not lost"
    assert not any(plane.moves or plane.moves.waiting_bytes for plane in world.planes.values())
    assert world.planes[ORIGIN].counters.flows_unsettled == 0


def test_a_flow_that_leaves_its_tree_takes_no_step_back():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=100)
    world.planes[ORIGIN].set_destinations({END: UPPER}, world.now)
    world.follow(BY_LOWER)
    world.publish_steadily(TOPIC, until_ms=9_000, bytes_per_ms=140, size=1_000)
    world.run_until(6_000)
    waited_ms = world.narrow.waiting_ms

    world.follow()
    world.run_until(40_000)

    assert waited_ms > 1_000
    assert world.arrived == list(range(1, world.published[TOPIC] + 1))


def test_who_hears_first_that_a_tree_is_no_more_carries_on_by_it_what_comes_by_it():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=100)
    world.planes[ORIGIN].set_destinations({END: UPPER}, world.now)
    world.planes[LOWER].set_destinations({END: ORIGIN}, world.now)
    world.follow(BY_LOWER)
    world.publish_steadily(TOPIC, until_ms=9_000, bytes_per_ms=140, size=1_000)
    world.run_until(6_000)

    world.planes[LOWER].follow_trees((), world.now)
    world.run_until(6_200)  # the origin is told later
    world.follow(BY_UPPER)
    world.run_until(40_000)

    assert world.arrived == list(range(1, world.published[TOPIC] + 1))


def test_what_waits_is_bounded_in_time_and_bytes_and_lost_in_no_case(monkeypatch):
    monkeypatch.setattr(moves, "WAIT_BYTES_MAX", 10_000)
    # What is in that queue is there for good.
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=0.01)
    world.publish(1_000)
    world.run_until(10)
    world.follow(BY_UPPER)
    world.publish(1_000)
    world.run_until(moves.WAIT_MS_MAX)
    assert world.arrived == []

    world.run_until(moves.WAIT_MS_MAX + 100)
    assert world.arrived == [2]
    assert world.planes[ORIGIN].counters.flows_unsettled == 1

    world.follow()
    world.follow(BY_UPPER)
    for _ in range(12):
        world.publish(1_000)
    world.run_until(world.now_ms + 100)
    assert world.arrived == [2, *range(3, 15)]
    assert world.planes[ORIGIN].moves.waiting_bytes == 0


def test_nobody_is_waited_for_to_whom_no_way_leads_and_other_wishes_end_the_wait():
    for change in ("gone", "link", "filter"):
        world = Diamond(queue_bytes=1 << 30, bytes_per_ms=0.01)
        world.publish(1_000)
        world.run_until(10)
        world.follow(BY_UPPER)
        world.publish(1_000)
        world.run_until(1_000)

        if change == "gone":
            world.planes[ORIGIN].set_destinations({END: None}, world.now)
        elif change == "link":
            world.planes[ORIGIN].reach(LOWER, None, world.now)
        else:
            world.planes[ORIGIN].set_route("+/b", FilterRoute(False, True, (), (END,)), world.now)
        world.run_until(1_000 + moves.MARK_GAPS_MS[1])

        assert world.arrived == [2]


def test_nobody_is_waited_for_behind_a_rule_of_a_link_further_on():
    rules = LinkPolicies({END: LinkRules(exports=[OTHER])})
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=1_000, policies=rules)
    world.follow(BY_UPPER)
    world.publish(1_000)

    world.run_until(moves.WAIT_MS_MIN + 100)

    assert not world.planes[ORIGIN].moves
    assert world.planes[ORIGIN].counters.flows_unsettled == 0


def test_a_flow_that_waits_is_measured_as_it_comes():
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=0.01, flows_max=1)
    origin = world.planes[ORIGIN]
    origin.tend(world.now)
    world.publish(1_000)
    world.run_until(10)
    world.follow(BY_UPPER)
    for second in range(1, 6):
        world.publish(1_000)
        world.run_until(1_000 * second)
        origin.tend(world.now)

    [flow], _ = origin.intake.flows.told(origin.forwarder)

    assert world.arrived == []
    assert flow.publications == pytest.approx(6 / 5)


def test_a_neighbour_learns_no_topic_by_a_marker_that_rules_keep_from_it():
    rules = LinkPolicies({LOWER: LinkRules(exports=[OTHER])})
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=1_000, policies=rules)
    world.publish(1_000)
    world.run_until(10)
    world.follow(BY_UPPER)
    world.publish(1_000)

    world.run_until(moves.WAIT_MS_MIN + 100)

    assert world.arrived == [2]
    assert world.planes[LOWER].counters.frames_in == 0


def test_a_flow_that_does_not_move_waits_for_nothing():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=1_000)
    world.follow(BY_LOWER)
    world.run_until(moves.WAIT_MS_MAX + 100)
    world.follow(BY_LOWER, tree_of(ORIGIN, ("other",), {UPPER: ORIGIN, END: UPPER}))

    world.publish(100)
    world.run_until(world.now_ms + 3 * DELAY_MS)

    assert world.arrived == [1]


def test_a_plan_with_the_same_trees_routes_no_flow_again():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=1_000)
    world.follow(BY_LOWER)
    origin = world.planes[ORIGIN]
    routed = []
    origin.forwarder.route_flow = lambda flow: routed.append(flow)

    origin.follow_trees((BY_LOWER,), world.now)

    assert routed == []
