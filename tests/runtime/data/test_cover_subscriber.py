"""Changes of the cover against a broker model that does one thing at a time, in any order.

The model does what matters of Mosquitto: it takes a client's packets one by one with publications
of others in between, sends one copy per matching subscription in the order of its tree, and holds
back what has QoS 1 and 2 when too much is unacknowledged. Publications differ in little, so that
taking two of them for copies of one shows.
"""

import asyncio
import shutil
import tempfile
import weakref
from collections import Counter, deque
from pathlib import Path

import mqtt5
from hypothesis import example, given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from federator.protocol.data.cover_transition import AT_ONCE
from federator.protocol.filters import Cover, matches
from federator.runtime.data import cover_subscriber
from federator.runtime.data.cover_subscriber import CoverSubscriber, SessionFilters
from federator.runtime.mqtt.subscriptions import Subscriptions
from federator.runtime.mqtt.window import BrokerLimits, PacketIds
from federator.runtime.storage.filter_file import SUBSCRIBED, FilterFile

KEPT = "a/b"
FILTERS = ["a/#", "+/b", "a/+", "+/+", "#", "a/b/#", "c/d", "+/d", "c/#", "a"]
TOPICS = [KEPT, KEPT, KEPT, "a", "a/c", "c/b", "c/d", "a/b/c"]
MARKS = "$fed/fed/cover"
IN_FLIGHT_MAX = 2


class Broker:
    """One client's subscriptions, and what is on its way to it.

    Attributes:
        incoming: The client's packets, not handled yet.
        outgoing: On the wire: packets, each with the number of its publication.
        copied: Numbers of publications that had a subscription.
    """

    def __init__(self, *, merging):
        self.merging = merging
        self.table = {}
        self.incoming = deque()
        self.outgoing = deque()
        self.copied = set()
        self.away = False
        self._held_back = deque()
        self._in_flight = 0
        self._published = 0

    def keep_session(self):
        """The client is gone: queue for it, first what it has not acknowledged."""
        self.away = True
        while self.incoming:
            self.handle_one()
        again = [each for each in self.outgoing if _is_of_qos_1(each[0])]
        self.copied -= {number for _, number in self.outgoing} - {number for _, number in again}
        self._held_back.extendleft(reversed(again))
        self.outgoing.clear()

    def resume_session(self):
        self.away = False
        self._in_flight = 0
        self._fill()

    def forget(self):
        self.table.clear()
        self.incoming.clear()
        self.outgoing.clear()
        self._held_back.clear()
        self._in_flight = 0

    def handle_one(self):
        if not self.incoming:
            return
        packet, _ = mqtt5.read(memoryview(self.incoming.popleft()))
        match packet:
            case mqtt5.SubscribePacket():
                for each in packet.topic_filters:
                    self.table[each.pattern] = packet.subscription_id
                codes = [mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE]
                ack = mqtt5.SubAckPacket(packet.packet_id, codes * len(packet.topic_filters))
                self.outgoing.append((ack.write(), None))
            case mqtt5.UnsubscribePacket():
                for pattern in packet.patterns:
                    self.table.pop(pattern, None)
                codes = [mqtt5.UnsubAckReasonCode.SUCCESS] * len(packet.patterns)
                ack = mqtt5.UnsubAckPacket(packet.packet_id, codes)
                self.outgoing.append((ack.write(), None))
            case PublishPacket():
                self.copied.discard(self.publish(packet.topic, packet.payload, qos=1))
            case mqtt5.PubAckPacket():
                self._in_flight -= 1
                self._fill()

    def publish(self, topic, payload, *, qos):
        number = self._published
        self._published += 1
        patterns = in_tree_order([p for p in self.table if matches(p, topic)], topic)
        copies = [[self.table[p]] if self.table[p] else [] for p in patterns]
        if self.merging and copies:
            copies = [[identifier for ids in copies for identifier in ids]]
        if self.away and not qos:
            copies = []
        if copies:
            self.copied.add(number)
        for ids in copies:
            packet = PublishPacket(
                topic,
                payload,
                qos=QoS(qos),
                packet_id=1 if qos else None,
                subscription_ids=ids,
                user_properties=[("b", "1"), ("a", "2"), ("b", "1")],
            )
            (self._held_back if qos else self.outgoing).append((packet.write(), number))
        self._fill()
        return number

    def _fill(self):
        while self._held_back and self._in_flight < IN_FLIGHT_MAX and not self.away:
            self._in_flight += 1
            self.outgoing.append(self._held_back.popleft())


def _is_of_qos_1(wire):
    packet, _ = mqtt5.read(memoryview(wire))
    return isinstance(packet, PublishPacket) and packet.packet_id is not None


def in_tree_order(patterns, topic):
    """The order in which a walk of the subscription tree, as in Mosquitto's subs.c, meets them."""
    tree = {}
    for pattern in patterns:
        node = tree
        for level in pattern.split("/"):
            node = node.setdefault(level, {})
        node["end"] = pattern
    met = []

    def walk(node, levels):
        if levels:
            for level in (levels[0], "+"):
                if level in node:
                    walk(node[level], levels[1:])
                    if len(levels) == 1 and "end" in node[level]:
                        met.append(node[level]["end"])
        if "#" in node:
            met.append(node["#"]["end"])

    walk(tree, topic.split("/"))
    assert sorted(met) == sorted(patterns)
    return met


class Link:
    """The client's end: real subscription packets, and a window that is never full."""

    def __init__(self, broker):
        self.limits = BrokerLimits(20, 65_535, 2, True)
        self.subscriptions = Subscriptions(PacketIds())
        self.broker = broker
        self.connected = False

    def subscribe(self, filters, *, identifier=None):
        out = []
        self.subscriptions.subscribe(filters, out, identifier=identifier)
        self.broker.incoming.extend(out)

    def unsubscribe(self, filters):
        out = []
        self.subscriptions.unsubscribe(filters, out)
        self.broker.incoming.extend(out)

    def recall(self, filters):
        self.subscriptions.recall(filters)

    @property
    def wanted_filters(self):
        return self.subscriptions.wanted

    def answered(self, filters):
        return self.subscriptions.answered(filters)

    def publish(self, topic, payload, *, qos):
        if self.connected:
            self.broker.incoming.append(
                PublishPacket(topic, payload, qos=QoS(qos), packet_id=9).write()
            )
        return True


class World:
    """Both ends, and how often each publication got through.

    Args:
        at_once: Filters in one step of a change; ``settle`` and "go_on" take the next ones.
    """

    def __init__(self, *, merging=False, at_once=AT_ONCE):
        self.broker = Broker(merging=merging)
        self.at_once = at_once
        self.folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder)
        self.got = Counter()
        self.begin({KEPT})

    def begin(self, wanted, *, session_present=False):
        """A new process of the agent connects, once it knows what is wanted."""
        self.link = Link(self.broker)
        file = FilterFile(self.folder, SUBSCRIBED)
        weakref.finalize(self.link, file.close)
        session = SessionFilters(file)
        self.subscriber = CoverSubscriber(self.link, "fed", session, at_once=self.at_once)
        self.subscriber.start()
        self.cover = Cover()
        self.wanted = frozenset()
        self.want(wanted)
        self.connect(session_present=session_present)
        self.settle()

    def connect(self, *, session_present=False):
        out = []
        self.link.connected = True
        self.link.subscriptions.resume(
            session_present=session_present,
            out=out,
            identifiers=self.link.limits.subscription_ids_available,
        )
        self.broker.incoming.extend(out)
        self.subscriber.on_up(session_present=session_present)

    def cut(self, *, restored=None):
        self.broker.forget()
        self.broker.table.update(restored or {})
        self.link.connected = False
        self.link.subscriptions.suspend()
        self.subscriber.on_down()

    def want(self, filters):
        filters = frozenset(filters) | {KEPT}
        change = self.cover.update(filters - self.wanted, self.wanted - filters)
        self.wanted = filters
        self.subscriber.change(change)

    def read(self, count):
        """One socket read: packets that are no publications are taken first, as the link does."""
        chunk, publishes, numbers = b"", [], {}
        for _ in range(min(count, len(self.broker.outgoing))):
            wire, number = self.broker.outgoing.popleft()
            packet, _ = mqtt5.read(memoryview(wire))
            out = []
            if isinstance(packet, mqtt5.SubAckPacket):
                self.link.subscriptions.on_suback(packet, out)
            elif isinstance(packet, mqtt5.UnsubAckPacket):
                self.link.subscriptions.on_unsuback(packet, out)
            else:
                publishes.append((packet, len(chunk), len(chunk) + len(wire)))
                numbers[id(packet)] = number
                chunk += wire
                if packet.packet_id is not None:
                    out.append(mqtt5.PubAckPacket(1).write())
            self.broker.incoming.extend(out)
        run = memoryview(chunk)
        if self.subscriber.sorting:
            run, publishes = self.subscriber.once(run, publishes)
        for packet, start, end in publishes:
            if packet.topic != MARKS:
                self.got[numbers[id(packet)]] += 1
                whole, size = mqtt5.read(run[start:end])
                assert size == end - start
                assert whole.subscription_ids == []
                assert (whole.topic, whole.payload) == (packet.topic, packet.payload)
                assert whole.user_properties == [("b", "1"), ("a", "2"), ("b", "1")]

    def settle(self):
        while self.broker.incoming or self.broker.outgoing or self.subscriber.unfinished:
            self.subscriber.go_on()
            self.broker.handle_one()
            self.read(1)

    def assert_steady(self):
        assert not self.subscriber.sorting
        assert self.broker.table == dict.fromkeys((MARKS, *self.cover.filters))


publish = st.tuples(
    st.just("publish"), st.sampled_from(TOPICS), st.integers(0, 1), st.integers(0, 2)
)
steps = st.lists(
    st.one_of(
        st.just(("go_on",)),
        st.tuples(st.just("want"), st.frozensets(st.sampled_from(FILTERS), max_size=3)),
        publish,
        publish,
        st.tuples(st.just("handle")),
        st.tuples(st.just("read"), st.integers(1, 8)),
        st.tuples(st.just("read"), st.integers(1, 8)),
    ),
    max_size=60,
)


def play(world, steps):
    """Do the steps; return the numbers of publications on the topic that is always wanted."""
    kept = set()
    for step in steps:
        match step:
            case "want", filters:
                world.want(filters)
            case "publish", topic, payload, qos:
                number = world.broker.publish(topic, b"%d" % payload, qos=qos)
                if topic == KEPT:
                    kept.add(number)
            case ("handle",):
                world.broker.handle_one()
            case ("go_on",):
                world.subscriber.go_on()
            case "read", count:
                world.read(count)
            case ("cut",):
                world.cut()
            case ("connect",):
                if not world.link.connected:
                    world.connect()
    return kept


EQUAL_AROUND_A_SWAP = [
    ("want", frozenset(["a/#"])),
    ("publish", KEPT, 0, 0),
    ("handle",),
    ("handle",),
    ("read", 8),
    ("handle",),
    ("handle",),
    ("publish", KEPT, 0, 0),
]
"""The first comes alone for the old filter, the second alone for the new one."""


sizes = st.sampled_from([1, 2, 3, AT_ONCE])
"""Of steps: changes here are of a few filters."""


@given(steps, sizes)
@example(EQUAL_AROUND_A_SWAP, AT_ONCE)
async def test_wherever_publications_come_in_between_each_is_taken_once(steps, at_once):
    world = World(at_once=at_once)

    kept = play(world, steps)
    world.settle()

    assert kept <= set(world.got)
    assert world.got == dict.fromkeys(world.broker.copied, 1)
    world.assert_steady()


@given(steps)
@example([*EQUAL_AROUND_A_SWAP[:3], ("publish", KEPT, 0, 0)])
async def test_a_broker_that_sends_one_copy_for_all_subscriptions_loses_nothing(steps):
    world = World(merging=True)

    kept = play(world, distinct(steps))
    world.settle()

    assert kept <= set(world.got)
    assert world.got == dict.fromkeys(world.broker.copied, 1)
    world.assert_steady()


def distinct(steps):
    """The same steps with another payload in each publication."""
    return [
        (*step[:2], number, step[3]) if step[0] == "publish" else step
        for number, step in enumerate(steps)
    ]


cuts = st.lists(st.sampled_from([("cut",), ("connect",)]), max_size=4)


@given(st.tuples(steps, cuts, steps, cuts, steps), sizes)
@example(
    (
        [("cut",), ("want", frozenset({"a/#"})), ("go_on",), ("connect",), ("handle",)],
        [],
        [("publish", "a/b", 0, 0)],
        [],
        [],
    ),
    1,
)
async def test_a_connection_lost_in_the_middle_ends_in_the_wanted_state_and_doubles_nothing(
    parts, at_once
):
    world = World(at_once=at_once)

    play(world, [step for part in parts for step in part])
    play(world, [("connect",)])
    world.settle()

    assert world.got == dict.fromkeys(world.got, 1)
    world.assert_steady()


@given(
    st.tuples(steps, steps), st.frozensets(st.sampled_from(FILTERS), max_size=3), sizes, st.data()
)
async def test_a_new_process_drops_what_its_broker_restored_of_earlier_ones(
    parts, wanted, at_once, data
):
    world, saved = World(at_once=at_once), [{}]
    for steps in parts:
        for step in steps:
            play(world, [step])
            saved.append(dict.fromkeys(world.broker.table))

        world.cut(restored=data.draw(st.sampled_from(saved)))
        world.begin(wanted, session_present=True)

        world.assert_steady()


@given(steps, st.lists(publish, max_size=6), steps)
@example(
    [*EQUAL_AROUND_A_SWAP[:1], ("handle",)],
    [("publish", KEPT, 0, 1), ("publish", KEPT, 0, 1)],
    [("publish", KEPT, 1, 1)],
)
async def test_a_new_process_takes_once_what_its_session_queued(before, meanwhile, after):
    """Killed in a transition, it has left subscriptions behind that overlap."""
    world = World()
    kept = play(world, distinct(before))
    world.broker.keep_session()
    begun = set(world.got)  # of these a second copy may be left, which nobody can tell
    kept |= play(world, distinct(meanwhile))
    world.broker.resume_session()
    world.begin(world.wanted, session_present=True)
    kept |= play(world, distinct(after))
    world.settle()

    assert kept & world.broker.copied <= set(world.got)
    taken = {number: times for number, times in world.got.items() if number not in begun}
    assert taken == dict.fromkeys(world.broker.copied - begun, 1)
    world.assert_steady()


@given(steps, sizes)
async def test_a_broker_that_knows_no_identifiers_gets_none(steps, at_once):
    world = World(at_once=at_once)
    world.cut()
    world.link.limits = BrokerLimits(20, 65_535, 2, False)
    world.connect()
    world.settle()

    kept = play(world, steps)
    world.settle()

    assert kept <= set(world.got)
    world.assert_steady()


async def test_marks_that_never_come_back_end_a_stage_all_the_same(monkeypatch):
    monkeypatch.setattr(cover_subscriber, "MARK_GAP_MS", 1)

    world = World()
    world.link.publish = lambda topic, payload, *, qos: False
    world.want({"a/#"})
    async with asyncio.timeout(10):
        while world.broker.table != {MARKS: None, "a/#": None}:
            world.settle()
            await asyncio.sleep(0)

    number = world.broker.publish(KEPT, b"", qos=1)
    world.settle()

    assert world.got[number] == 1
    assert world.subscriber.sorting  # nobody knows what is still on its way


async def test_marks_of_others_change_nothing():
    world = World()
    world.want({"a/#"})
    for payload in (b"", b"\0" * 8, b"\xff" * 8, b"garbage"):
        world.broker.publish(MARKS, payload, qos=1)
    world.read(8)

    world.settle()

    world.assert_steady()
