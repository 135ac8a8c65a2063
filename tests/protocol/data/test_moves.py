"""A flow that moves to another way stays in order, however long the queues of the former one are.

Five brokers: the first publishes, the last subscribes, and two ways of equal length lead there, of
two links each. The lower one is narrow behind its relay, where a queue grows.
"""

import heapq
from collections import Counter
from itertools import count, pairwise

import pytest

from federator.protocol.data import moves
from federator.protocol.effects import FilterRoute
from federator.protocol.messages.steering import tree_of
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import LinkRules
from federator.protocol.telemetry import tracing
from federator.protocol.types import BrokerId, Millis, Now
from lab.sim.data import number_of, packet_of
from tests.protocol.data.planes import bring, plane_of
from tests.protocol.data.test_order import Outlet

ORIGIN, LOWER, UPPER, END = map(BrokerId, range(1, 5))
FLOW, TOPIC, OTHER = ("a/#",), "a/b", "others"
BY_LOWER = tree_of(ORIGIN, FLOW, {LOWER: ORIGIN, END: LOWER})
BY_UPPER = tree_of(ORIGIN, FLOW, {UPPER: ORIGIN, END: UPPER})
DELAY_MS = 2
KIB = 1_024


class Narrow:
    """A link with a rate and a queue: what finds it full is dropped."""

    room = idle = True
    urgent_bytes = unacknowledged = 0
    packet_bytes_max = packet_bytes_sure = 1 << 28

    def __init__(self, world, to, *, bytes_per_ms=1_000_000, queue_bytes=1 << 30):
        self.world, self.to = world, to
        self.bytes_per_ms, self.queue_bytes = bytes_per_ms, queue_bytes
        self.free_ms, self.dropped = 0.0, 0

    @property
    def waiting_ms(self):
        return max(0.0, self.free_ms - self.world.now_ms)

    def write_packets(self, parts, count, *, urgent=False):
        packet = b"".join(parts)
        if self.waiting_ms * self.bytes_per_ms + len(packet) > self.queue_bytes:
            self.dropped += 1
            return True  # it is taken here, and lost further on
        self.free_ms = self.world.now_ms + self.waiting_ms + len(packet) / self.bytes_per_ms
        self.world.at(self.free_ms + DELAY_MS, self.world.read, self.to, packet)
        return True


class Echoes:
    """Tells the origin of traces, as the agent's service of them does."""

    def __init__(self, world, self_id):
        self.world, self.self_id = world, self_id

    def on_frame(self, frame, route):
        logbook = tracing.read_logbook(frame.body, sender=frame.sender).at(self.self_id, 0)
        home = self.world.planes[frame.origin].moves.on_echo
        hops = len(logbook.stops) - 1
        self.world.at(self.world.now_ms + DELAY_MS * hops, home, self.self_id, frame.seq)
        return (() if route is None else route.sends), tracing.write_logbook(logbook)


class Diamond:
    def __init__(self, *, queue_bytes, bytes_per_ms, **options):
        self.options = options  # of all agents
        self.now_ms, self._events, self._order = 0.0, [], count()
        self.arrived, self.published = [], Counter()
        self.planes = {id: self._made(id) for id in (ORIGIN, LOWER, UPPER, END)}
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

    @property
    def now(self):
        return Now(Millis(int(self.now_ms)), int(1_000 * self.now_ms) + 1_000_000)

    def _made(self, id):
        arrived = self.arrived if id == END else []

        def take(packet):
            return packet.topic != TOPIC or arrived.append(number_of(packet))

        plane = plane_of(id, Outlet(), take, self.now, **self.options)
        plane.traces = Echoes(self, id)
        return plane

    def at(self, at_ms, call, *args):
        heapq.heappush(self._events, (at_ms, next(self._order), call, args))

    def read(self, id, run):
        bring(self.planes[id], run, self.now)

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

    def run(self, until_ms):
        while True:
            due = min(p.next_deadline_ms() or until_ms + 1 for p in self.planes.values())
            event_ms = self._events[0][0] if self._events else until_ms + 1
            if min(due, event_ms) > until_ms:
                break
            self.now_ms = max(self.now_ms, min(due, event_ms))
            if event_ms <= due:
                _, _, call, args = heapq.heappop(self._events)
                call(*args)
            else:
                for plane in self.planes.values():
                    plane.on_time(self.now)
        self.now_ms = until_ms

    @property
    def steps_back(self):
        return sum(b < a for a, b in pairwise(self.arrived))


MOVES = {
    "to a tree": ((), (BY_UPPER,)),
    "to another tree": ((BY_LOWER,), (BY_UPPER,)),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("queue_kib", [64, 1_024, 16_384])
def test_a_flow_that_leaves_a_full_queue_takes_no_step_back(queue_kib, move):
    before, after = move  # what others send fills the link alone, before and afterwards
    rate = queue_kib * KIB / 4_000  # the queue lasts for four seconds
    world = Diamond(queue_bytes=queue_kib * KIB, bytes_per_ms=rate)
    world.follow(*before)
    for topic, share in ((TOPIC, 0.4), (OTHER, 1.0)):
        world.publish_steadily(
            topic, until_ms=20_000, bytes_per_ms=share * rate, size=int(8 * rate)
        )
    world.run(12_000)
    waited_ms = world.narrow.waiting_ms

    moved = world.published[TOPIC]
    world.follow(*after)
    world.run(40_000)

    assert waited_ms > 3_500, "the queue was full"
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
    world.run(6_000)
    waited_ms = world.narrow.waiting_ms

    world.follow()
    world.run(40_000)

    assert waited_ms > 1_000
    assert world.arrived == list(range(1, world.published[TOPIC] + 1))


def test_who_hears_first_that_a_tree_is_no_more_carries_on_by_it_what_comes_by_it():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=100)
    world.planes[ORIGIN].set_destinations({END: UPPER}, world.now)
    world.planes[LOWER].set_destinations({END: ORIGIN}, world.now)
    world.follow(BY_LOWER)
    world.publish_steadily(TOPIC, until_ms=9_000, bytes_per_ms=140, size=1_000)
    world.run(6_000)

    world.planes[LOWER].follow_trees((), world.now)
    world.run(6_200)  # the origin is told later
    world.follow(BY_UPPER)
    world.run(40_000)

    assert world.arrived == list(range(1, world.published[TOPIC] + 1))


def test_what_waits_is_bounded_in_time_and_bytes_and_lost_in_no_case():
    # What is in that queue is there for good.
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=0.01, held_bytes_max=10_000)
    world.publish(1_000)
    world.run(10)
    world.follow(BY_UPPER)
    world.publish(1_000)
    world.run(moves.WAIT_MS_MAX)
    assert world.arrived == []

    world.run(moves.WAIT_MS_MAX + 100)
    assert world.arrived == [2]
    assert world.planes[ORIGIN].counters.flows_unsettled == 1

    world.follow()
    world.follow(BY_UPPER)
    for _ in range(12):
        world.publish(1_000)
    world.run(world.now_ms + 100)
    assert world.arrived == [2, *range(3, 15)]
    assert world.planes[ORIGIN].moves.waiting_bytes == 0


def test_nobody_is_waited_for_to_whom_no_way_leads_and_other_wishes_end_the_wait():
    for change in ("gone", "filter"):
        world = Diamond(queue_bytes=1 << 30, bytes_per_ms=0.01)
        world.publish(1_000)
        world.run(10)
        world.follow(BY_UPPER)
        world.publish(1_000)
        world.run(1_000)

        if change == "gone":
            world.planes[ORIGIN].set_destinations({END: None}, world.now)
        else:
            world.planes[ORIGIN].set_route("+/b", FilterRoute(False, True, (), (END,)), world.now)
        world.run(1_100)

        assert world.arrived == [2]


def test_a_neighbour_learns_no_topic_by_a_marker_that_rules_keep_from_it():
    rules = LinkPolicies({LOWER: LinkRules(exports=[OTHER])})
    world = Diamond(queue_bytes=1 << 30, bytes_per_ms=1_000, policies=rules)
    world.publish(1_000)
    world.run(10)
    world.follow(BY_UPPER)
    world.publish(1_000)

    world.run(moves.WAIT_MS_MIN + 100)

    assert world.arrived == [2]
    assert world.planes[LOWER].counters.frames_in == 0


def test_a_flow_that_does_not_move_waits_for_nothing():
    world = Diamond(queue_bytes=1 << 20, bytes_per_ms=1_000)
    world.follow(BY_LOWER)
    world.run(moves.WAIT_MS_MAX + 100)
    world.follow(BY_LOWER, tree_of(ORIGIN, ("other",), {UPPER: ORIGIN, END: UPPER}))

    world.publish(100)
    world.run(world.now_ms + 3 * DELAY_MS)

    assert world.arrived == [1]
