"""One session between a client and brokers that die, all of them models with an opinion of MQTT.

Bytes travel in pipes that a test empties as far as it likes, so that a broker may die with anything
on its way. The models assert what MQTT promises them: that ids in use are not used again, that an
answer belongs to a question, that nobody is told a thing twice.
"""

from collections import Counter

from federator.gateway import wire
from federator.gateway.session.journal import Journal
from federator.gateway.session.orders import (
    AskSettled,
    Dismiss,
    FindBroker,
    Heal,
    LeaveBroker,
    State,
)
from federator.gateway.session.session import ClientSession
from federator.gateway.wire import V5, Kind

RECEIVE_MAX = 20


class Pipe:
    """Bytes on their way, and the packets of what came out."""

    def __init__(self, firsts):
        self._splitter = wire.Splitter(limit=2**20, firsts=firsts)
        self.bytes = b""

    def take(self, size=None):
        """The next ``size`` bytes, all by default, as a block and its packets."""
        size = len(self.bytes) if size is None else size
        data, self.bytes = self.bytes[:size], self.bytes[size:]
        block, packets = self._splitter.feed(data)
        assert self._splitter.fault is None, self._splitter.fault
        return block, packets


class ModelBroker:
    """A broker of one client: takes what is published, delivers what it is told to."""

    unreleased_max = RECEIVE_MAX

    def __init__(self, version, *, number=0, receive_max=RECEIVE_MAX):
        self.number = number
        self.version = version
        self.receive_max = receive_max  # of the client
        self.inward = Pipe(wire.FROM_CLIENT)
        self.outward = Pipe(wire.FROM_SERVER)
        self.connected = False
        self.will = None
        self.refuses = 0  # the reason in its CONNACK
        self.codes = {}  # what it says to a filter, if not what was asked for
        self.filters = {}  # options, with the QoS that was granted
        self.handed = []  # payloads it gave to subscribers, its agent among them
        self.safe = 0  # how many of them its agent has in its log
        self.heard = Counter()
        self.received = {}  # QoS 2, not released
        self._outstanding = {}  # our ids: QoS, and 3 when released
        self._next = 0

    def publish(self, topic, payload, qos, retain=False):
        """A publication is here."""
        self.handed.append(payload)

    def deliver(self, topic, payload, qos, retain=False):
        """Send a publication to the client."""
        if not self.connected or (qos and len(self._outstanding) >= self.receive_max):
            return False
        packet_id = 0
        if qos:
            self._next = self._next % 40 + 1
            while self._next in self._outstanding:
                self._next = self._next % 40 + 1
            packet_id = self._next
            self._outstanding[packet_id] = qos
        self.outward.bytes += wire.write_publish(
            topic, payload, version=self.version, qos=qos, retain=retain, packet_id=packet_id
        )
        return True

    def read(self, size=None):
        """Take what came."""
        block, packets = self.inward.take(size)
        for packet in packets:
            self._read(block, packet)

    def on_subscribed(self, filters):
        """Filters that were granted, with their options."""

    def on_finished(self):
        """The client has acknowledged a delivery."""

    def _say(self, packet):
        self.outward.bytes += packet

    def _ack(self, kind, packet_id, reason=0):
        self._say(wire.write_ack(kind, packet_id, self.version, reason))

    def _read(self, block, packet):
        kind, version = packet[0] & 0xF0, self.version
        assert self.connected or kind == Kind.CONNECT, "the first packet is a CONNECT"
        self.heard[kind] += 1
        match kind:
            case Kind.CONNECT:
                assert not self.connected
                self.connected = not self.refuses
                self.will = wire.read_connect(block, packet).will
                answer = wire.Connack(session_present=False, reason=self.refuses)
                self._say(wire.write_connack(answer, version))
            case Kind.SUBSCRIBE:
                self._on_subscribe(wire.read_request(block, packet, version))
            case Kind.UNSUBSCRIBE:
                request = wire.read_request(block, packet, version)
                there = [self.filters.pop(f, None) is not None for f in request.filters]
                codes = bytes(0 if each else 0x11 for each in there) if version == V5 else b""
                answer = wire.Answer(request.packet_id, codes)
                self._say(wire.write_answer(Kind.UNSUBACK, answer, version))
            case Kind.PUBLISH:
                self._on_publish(block, packet)
            case Kind.PUBREL:
                packet_id, _ = wire.read_ack(block, packet, version)
                reason = 0 if packet_id in self.received else wire.Reason.PACKET_ID_NOT_FOUND
                if not reason:
                    self.publish(*self.received.pop(packet_id))
                self._ack(Kind.PUBCOMP, packet_id, reason)
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                packet_id, _ = wire.read_ack(block, packet, version)
                assert self._outstanding[packet_id] == ANSWERED[kind]
                if kind == Kind.PUBREC:
                    self._outstanding[packet_id] = 3
                    self._ack(Kind.PUBREL, packet_id)
                else:
                    del self._outstanding[packet_id]
                    self.on_finished()
            case Kind.PINGREQ:
                self._say(wire.PINGRESP)
            case _:
                raise AssertionError(f"{Kind(kind).name} at a broker")

    def _on_subscribe(self, request):
        codes = [self.codes.get(filter_, options & 3) for filter_, options in request.filters]
        granted = {
            filter_: options & ~3 | code
            for (filter_, options), code in zip(request.filters, codes, strict=True)
            if code < 0x80
        }
        self.filters |= granted
        answer = wire.Answer(request.packet_id, bytes(codes))
        self._say(wire.write_answer(Kind.SUBACK, answer, self.version))
        self.on_subscribed(granted)

    def _on_publish(self, block, packet):
        topic, packet_id, _, _ = wire.read_publish(block, packet, self.version)
        _, payload, _ = wire.read_payload(block[packet[1] : packet[3]], self.version)
        qos, retain = (packet[0] & wire.QOS) >> 1, bool(packet[0] & wire.RETAIN)
        if qos == 2:
            assert len(self.received) < self.unreleased_max, "more than it may take"
            self.received[packet_id] = topic, payload, qos, retain
            self._ack(Kind.PUBREC, packet_id)
            return
        self.publish(topic, payload, qos, retain)
        if qos:
            self._ack(Kind.PUBACK, packet_id)


ANSWERED = {Kind.PUBACK: 1, Kind.PUBREC: 2, Kind.PUBCOMP: 3}
"""What is outstanding when such an answer comes."""


class ModelClient:
    """A client that answers everything, when it is told to."""

    def __init__(self, version):
        self.version = version
        self.inward = Pipe(wire.FROM_SERVER)
        self.outward = Pipe(wire.FROM_CLIENT)
        self.acknowledged = set()
        self.came = Counter()
        self.order = []
        self.pongs = 0
        self.dismissed = False
        self._published = {}  # ids in flight: QoS, payload, PUBREC came
        self._delivered = {}  # ids of deliveries we have not finished: QoS
        self._owed = []  # answers we have not given
        self._count = 0

    @property
    def unfinished(self):
        """Deliveries that it has begun to answer and cannot finish."""
        return len(self._delivered)

    def publish(self, topic, qos):
        """Publish the next payload."""
        packet_id = 0
        payload = b"%d" % self._count
        if qos:
            free = [n for n in range(1, 12) if n not in self._published]
            if not free:
                return None
            packet_id = free[0]
            self._published[packet_id] = [qos, payload, False]
        self._count += 1
        self.outward.bytes += wire.write_publish(
            topic, payload, version=self.version, qos=qos, packet_id=packet_id
        )
        return payload

    def answer(self):
        """Give all answers that are owed."""
        owed, self._owed = self._owed, []
        for kind, packet_id in owed:
            if kind in (Kind.PUBACK, Kind.PUBCOMP):
                del self._delivered[packet_id]
            self.outward.bytes += wire.write_ack(kind, packet_id, self.version)

    def read(self, size=None):
        """Take what came."""
        block, packets = self.inward.take(size)
        for packet in packets:
            self._read(block, packet)

    def _read(self, block, packet):
        kind, version = packet[0] & 0xF0, self.version
        if kind == Kind.PUBLISH:
            _, packet_id, _, _ = wire.read_publish(block, packet, version, from_client=False)
            _, payload, _ = wire.read_payload(block[packet[1] : packet[3]], version)
            self.came[payload] += 1
            self.order.append(payload)
            qos = (packet[0] & wire.QOS) >> 1
            if qos:
                assert packet_id not in self._delivered, "an id that is in use"
                self._delivered[packet_id] = qos
                self._owed.append((Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id))
        elif kind in (Kind.PUBACK, Kind.PUBCOMP):
            packet_id, _ = wire.read_ack(block, packet, version)
            qos, payload, received = self._published.pop(packet_id)
            assert (kind == Kind.PUBACK) == (qos == 1)
            assert received == (qos == 2), "PUBCOMP comes after PUBREC"
            self.acknowledged.add(payload)
        elif kind == Kind.PUBREC:
            packet_id, _ = wire.read_ack(block, packet, version)
            assert self._published[packet_id][0] == 2
            assert not self._published[packet_id][2], "a PUBREC that it had heard"
            self._published[packet_id][2] = True
            self.outward.bytes += wire.write_ack(Kind.PUBREL, packet_id, version)
        elif kind == Kind.PUBREL:
            packet_id, _ = wire.read_ack(block, packet, version)
            if packet_id in self._delivered:
                assert self._delivered[packet_id] == 2
                if (Kind.PUBCOMP, packet_id) not in self._owed:
                    self._owed.append((Kind.PUBCOMP, packet_id))
        elif kind == Kind.PINGRESP:
            self.pongs += 1
        elif kind == Kind.DISCONNECT:
            self.dismissed = True


class World:
    """The session, its journal, and whoever is at its ends."""

    def __init__(self, version=V5, *, subscribes=()):
        self.version = version
        self.now_ms = 0
        self.session = ClientSession(wire.Connect(version, "c", True, 60))
        self.journal = Journal(recent_ms=10**9, bytes_max=10**9)
        self.client = ModelClient(version)
        self.brokers = [ModelBroker(version)]
        self.orders = []
        self.marks = {}
        self.session.join()
        self.settle()
        if subscribes:
            request = wire.Subscribe(1, tuple((f, 2) for f in subscribes))
            self.client.outward.bytes += wire.write_request(request, version)
            self.settle()

    @property
    def broker(self):
        """The one the client is attached to."""
        return self.brokers[-1]

    def from_client(self, size=None):
        """The gateway reads from the client."""
        self.now_ms += 1
        self.session.from_client(*self.client.outward.take(size), self.now_ms)
        self.flush()

    def from_broker(self, size=None):
        """The gateway reads from the broker."""
        self.now_ms += 1
        self.session.from_broker(*self.broker.outward.take(size), self.now_ms)
        self.flush()

    def flush(self):
        """What the process around a session does."""
        session, up = self.session, self.session.up
        session.catch_up(at_once=2)
        for again, packets in enumerate((up.acknowledged, up.acknowledged_again)):
            if packets:
                self.journal.acknowledged(
                    packets,
                    client="c",
                    version=self.version,
                    broker=self.broker.number,
                    now_ms=self.now_ms,
                    again=bool(again),
                )
                packets.clear()
        self.broker.inward.bytes += b"".join(session.to_broker)
        session.to_broker.clear()
        self.client.inward.bytes += b"".join(session.to_client)
        session.to_client.clear()
        orders, session.orders[:] = [*session.orders], []
        for order in orders:
            self._perform(order)

    def _perform(self, order):
        self.orders.append(order)
        match order:
            case FindBroker():
                kept = self.journal.take_unsafe(self.broker.number).get("c", [])
                self.brokers.append(ModelBroker(self.version, number=len(self.brokers)))
                self.session.join([each.packet for each in kept])
                self.flush()
            case AskSettled(token):
                self.session.on_settled(token)
                self.flush()
            case Heal():
                self.session.heal(self.missed(), self.now_ms)
                self.flush()
            case Dismiss() | LeaveBroker():
                pass

    def missed(self):
        """What a client is given that moved; tests of healing say more."""
        return []

    def send_mark(self):
        """The gateway asks; the agent answers when it has all that the broker handed to it."""
        number = self.journal.mark(self.broker.number)
        if number is not None:
            self.marks[self.broker.number] = number

    def take_custody(self):
        """The agent logs what its broker handed to it, and answers the last mark."""
        broker = self.broker
        broker.safe = len(broker.handed)
        if (number := self.marks.pop(broker.number, None)) is not None:
            self.journal.on_taken(broker.number, number)

    def kill(self):
        """The broker dies with all that was on its way, but for what the gateway may still read."""
        self.session.on_broker_lost()
        self.flush()

    def settle(self):
        """Let everything arrive."""
        for _ in range(200):
            self.from_client()
            self.broker.read()
            self.from_broker()
            self.client.read()
            self.client.answer()
            ends = self.client.inward, self.client.outward, self.broker.inward, self.broker.outward
            if not any(end.bytes for end in ends) and not self.session.catching_up:
                return
        raise AssertionError("it never comes to rest")

    @property
    def safe(self):
        """Payloads that no death can take any more, or that a live broker has."""
        lost = [payload for b in self.brokers[:-1] for payload in b.handed[: b.safe]]
        return Counter([*lost, *self.broker.handed])

    @property
    def live(self):
        """Whether the session is at rest with a broker."""
        return self.session.state is State.LIVE and self.session.up.open
