"""A client of several brokers, and the same client at a single one: models that can be compared.

The brokers know subscriptions, QoS and retained values; what others publish reaches the owner of
its topic, or all brokers if they are federated. Between split and brokers are real sessions.
"""

from collections import Counter, deque

from federator.gateway import wire
from federator.gateway.session.orders import AskSettled, FindBroker, Heal
from federator.gateway.session.session import ClientSession
from federator.gateway.split.session import SplitSession
from federator.gateway.split.topic_owners import TopicOwners
from federator.gateway.wire import V5, Kind, Property
from federator.protocol.filters import matches
from tests.gateway.world import ModelBroker, Pipe

UPSTREAMS = (("edge/#", "+/hot"), ("edge/2/#", "far/+/x"))
TOPICS = ("edge/1", "edge/2/a", "a/hot", "far/1/x", "far/1/y", "a/b", "b")
FILTERS = (
    "#",
    "+/+",
    "edge/#",
    "edge/+",
    "far/#",
    "far/+/x",
    "a/#",
    "a/b",
    "+/hot",
    "b",
    "edge/2/a",
)


class TopicBroker(ModelBroker):
    """A broker that gives its client what it subscribes to, retained values among it."""

    unreleased_max = 2**16

    def __init__(self, version, receive_max):
        super().__init__(version, receive_max=receive_max)
        self.retained = {}
        self._waiting = deque()

    def publish(self, topic, payload, qos, retain=False):
        super().publish(topic, payload, qos, retain)
        if retain:
            self.retained[topic] = payload, qos
        granted = [o & 3 for f, o in self.filters.items() if matches(wire_plain(f), topic)]
        if granted:
            self._give(topic, payload, min(qos, max(granted)), False)

    def on_subscribed(self, filters):
        for filter_, options in filters.items():
            if options & wire.RETAIN_HANDLING != 0x20:
                for topic, (payload, qos) in sorted(self.retained.items()):
                    if matches(filter_, topic):
                        self._give(topic, payload, min(qos, options & 3), True)

    def on_finished(self):
        if self._waiting:
            self._give(*self._waiting.popleft())

    def _give(self, *publication):
        if not self.deliver(*publication):
            self._waiting.append(publication)


def wire_plain(filter_):
    """Without ``$share/group``."""
    return filter_.split("/", 2)[2] if filter_.startswith("$share/") else filter_


class Reader:
    """The client: notes what it hears, asserts what it is promised, answers when told."""

    def __init__(self, version, receive_max):
        self.version = version
        self.receive_max = receive_max
        self.inward = Pipe(wire.FROM_SERVER)
        self.came = {}  # by topic and QoS, in order
        self.answers = []  # to what it asked
        self.in_flight = {}
        self.owed = []
        self.releases = []

    def read(self, size=None):
        """Take what came."""
        block, packets = self.inward.take(size)
        for packet in packets:
            self._read(block, packet)

    def answer(self, count=None):
        """The answers that are owed, or the first of them."""
        count = len(self.owed) if count is None else count
        owed, self.owed = self.owed[:count], self.owed[count:]
        said = b""
        for kind, packet_id in owed:
            if kind in (Kind.PUBACK, Kind.PUBCOMP):
                del self.in_flight[packet_id]
            said += wire.write_ack(kind, packet_id, self.version)
        return said

    def _read(self, block, packet):
        kind, version = packet[0] & 0xF0, self.version
        if kind == Kind.PUBLISH:
            topic, packet_id, _, _ = wire.read_publish(block, packet, version, from_client=False)
            _, payload, _ = wire.read_payload(block[packet[1] : packet[3]], version)
            qos, retain = (packet[0] & wire.QOS) >> 1, bool(packet[0] & wire.RETAIN)
            self.came.setdefault((topic, qos), []).append((payload, retain))
            if qos:
                assert packet_id not in self.in_flight, "an id that is in use"
                assert len(self.in_flight) < self.receive_max, "more than it takes"
                self.in_flight[packet_id] = qos
                self.owed.append((Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id))
        elif kind == Kind.PUBREL:
            packet_id, _ = wire.read_ack(block, packet, version)
            assert self.in_flight[packet_id] == 2
            self.owed.append((Kind.PUBCOMP, packet_id))
        else:
            if kind == Kind.PUBREC:
                packet_id, _ = wire.read_ack(block, packet, version)
                self.releases.append(wire.write_ack(Kind.PUBREL, packet_id, version))
            self.answers.append(block[packet[1] : packet[3]])


class One:
    """The client at a single broker."""

    def __init__(self, version, receive_max):
        self.client = Reader(version, receive_max if version == V5 else 2**16)
        self.broker = TopicBroker(version, receive_max)
        self.brokers = [self.broker]
        self.say(wire.write_connect(connect(version, receive_max)))
        self.settle()

    def say(self, packet):
        """The client says it."""
        self.broker.inward.bytes += packet

    def outside(self, topic, payload, qos, retain):
        """Somebody else publishes."""
        self.broker.publish(topic, payload, qos, retain)

    def step(self, size=None):
        """Some of what is on its way arrives."""
        self.broker.read(size)
        self.client.inward.bytes += self.broker.outward.bytes
        self.broker.outward.bytes = b""
        self.client.read(size)
        for release in self.client.releases:
            self.say(release)
        self.client.releases.clear()

    def settle(self, *, answer=False):
        """All of it does."""
        for _ in range(300):
            self.step()
            if answer:
                self.say(self.client.answer())
            if not self.broker.inward.bytes and not self.client.inward.bytes:
                return
        raise AssertionError("it never comes to rest")


class Several:
    """The client at a broker for each upstream and one for the rest.

    Args:
        federated: Brokers give each other what their client subscribes to.
    """

    def __init__(self, version, receive_max, *, federated=False, upstreams=UPSTREAMS):
        self.version = version
        self.receive_max = receive_max
        self.federated = federated
        self.owners = TopicOwners(upstreams)
        self.split = SplitSession(connect(version, receive_max), self.owners)
        self.client = Reader(version, receive_max if version == V5 else 2**16)
        self.now_ms = 0
        self.connects = self.split.connects()
        self.sessions = [ClientSession(each) for each in self.connects]
        self.brokers = [TopicBroker(version, receive_max) for _ in self.sessions]
        self._from_sessions = [Pipe(wire.FROM_SERVER) for _ in self.sessions]
        self._to_sessions = [Pipe(wire.FROM_CLIENT) for _ in self.sessions]
        self._said = Pipe(wire.FROM_CLIENT)
        self.killed = []
        for leg, session in enumerate(self.sessions):
            session.join()
            self._flush(leg)
        self.settle()

    def say(self, packet):
        """The client says it."""
        self._said.bytes += packet

    def outside(self, topic, payload, qos, retain):
        """Somebody else publishes, at the owner of the topic or anywhere."""
        owner = self.owners.of(topic)
        for leg, broker in enumerate(self.brokers):
            if leg == owner or self.federated:
                broker.publish(topic, payload, qos, retain)

    def kill(self, leg):
        """A broker dies with all that was on its way; another takes its place."""
        self.killed.append(self.brokers[leg])
        self.brokers[leg] = TopicBroker(self.version, self.receive_max)
        self.sessions[leg].on_broker_lost()
        self._flush(leg)

    def _flush(self, leg):
        session = self.sessions[leg]
        session.catch_up(at_once=1_000)
        self.brokers[leg].inward.bytes += b"".join(session.to_broker)
        session.to_broker.clear()
        self._from_sessions[leg].bytes += b"".join(session.to_client)
        session.to_client.clear()
        session.up.acknowledged.clear()
        session.up.acknowledged_again.clear()
        orders, session.orders[:] = [*session.orders], []
        for order in orders:
            match order:
                case FindBroker():
                    session.join()
                case AskSettled(token):
                    session.on_settled(token)
                case Heal():
                    session.heal([], self.now_ms)
            self._flush(leg)

    def step(self, size=None):
        """Some of what is on its way arrives."""
        self.now_ms += 1
        if self.split.accepted:
            self.split.from_client(*self._said.take(size), self.now_ms)
        for leg, session in enumerate(self.sessions):
            to_leg = self._to_sessions[leg]
            to_leg.bytes += b"".join(self.split.to_legs[leg])
            self.split.to_legs[leg].clear()
            session.from_client(*to_leg.take(size), self.now_ms)
            self._flush(leg)
            self.brokers[leg].read(size)
            session.from_broker(*self.brokers[leg].outward.take(size), self.now_ms)
            self._flush(leg)
            self.split.from_leg(leg, *self._from_sessions[leg].take(size))
        self.client.inward.bytes += b"".join(self.split.to_client)
        self.split.to_client.clear()
        self.client.read(size)
        for release in self.client.releases:
            self.say(release)
        self.client.releases.clear()

    @property
    def _busy(self):
        pipes = [self._said, self.client.inward, *self._from_sessions, *self._to_sessions]
        pipes += [end for broker in self.brokers for end in (broker.inward, broker.outward)]
        return any(pipe.bytes for pipe in pipes) or any(self.split.to_legs)

    def settle(self, *, answer=False):
        """All of it does."""
        for _ in range(600):
            self.step()
            if answer:
                self.say(self.client.answer())
            if not self._busy:
                return
        raise AssertionError("it never comes to rest")


def connect(version, receive_max):
    """The client's CONNECT."""
    properties = ((Property.RECEIVE_MAXIMUM, receive_max),) if version == V5 else ()
    will = wire.Will("edge/2/will", b"gone", 1, False)
    return wire.Connect(version, "c", True, 60, will, properties=properties)


def handed(world):
    """What its brokers took of publications."""
    return Counter(payload for broker in world.brokers for payload in broker.handed)
