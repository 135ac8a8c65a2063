"""One client before several brokers, as a machine: to each of them it is a client of its own, and
to the client they are one broker.

The idea: every topic has one owner (``owners``), and everything about a topic happens there alone.
What the client publishes goes to the topic's owner; its subscriptions stand at every owner that
they may concern; of what brokers deliver, only what comes from the topic's owner reaches the
client, and the rest is acknowledged and dropped (brokers of one federation give each other's
publications to both). So on each topic the client sees one broker, with all that MQTT promises
about order, QoS, retained values and overlapping filters.

Each **way** is a whole ``Session`` with an attendant, under a client id of its own, and finds
another broker when its own dies, as any session does. Here packets are shared out to the ways and
put together again:

- The client's packet ids mean the same everywhere; the answer comes from the one way that was
  asked. Nothing is translated upward but who is to hear a PUBREL.
- Deliveries bear numbers of several brokers, so they may get another (``split_ids``).
- SUBSCRIBE and UNSUBSCRIBE go to several, and have one answer (``split_requests``).
- CONNACK and PINGRESP come when all ways have given theirs; DISCONNECT goes to all. The will is
  left at the owner of its topic.

Source: OASIS MQTT 5.0; papers/distributed-broker-placement.txt, section 3.1; docs/gateway.md.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from federator.gateway.owners import REST, Owners
from federator.gateway.session import RECEIVE_MAX
from federator.gateway.split_greeting import Greetings
from federator.gateway.split_ids import DeliveryIds, Name
from federator.gateway.split_requests import OPEN_MAX, Ask, SplitRequests
from federator.gateway.subscriptions import receive_max
from federator.gateway.wire import (
    PINGREQ,
    PINGRESP,
    QOS,
    Connect,
    Kind,
    MalformedError,
    Packet,
    Reason,
    publish_id,
    read_ack,
    read_answer,
    read_publish,
    read_subscribe,
    read_unsubscribe,
    write_ack,
)
from federator.gateway.wire.kinds import malformed
from federator.protocol.types import Millis

SUFFIX: Final = "~federator-"
"""Stands between a client's id and the number of the way, in its name on that way."""

IDLE_PART: Final = 4
"""A way that heard nothing for this part of the keep-alive is pinged when the client speaks."""

BARE_BYTES: Final = 4
"""Of an acknowledgement without a reason."""

_PUBLISH: Final = int(Kind.PUBLISH)
_QOS_2: Final = 0x04


@dataclass(slots=True)
class _Release:
    """A PUBREL of a publication that an earlier connection of the client began.

    Attributes:
        waits: Ways that have not answered.
        answer: The best so far: of a way that knew it, or of 3.1.1, rather than "not found".
    """

    packet_id: int
    waits: set[int]
    answer: bytes = b""


def name_on(way: int, client_id: str) -> str:
    """What a client is called on a way: its own name where everything goes that has no upstream."""
    return f"{client_id}{SUFFIX}{way}" if way != REST else client_id


class Split:
    """One client of several brokers.

    Whoever drives it sends, after each call, what stands in ``to_client`` and ``to_ways``, and
    empties them.

    Args:
        connect: The client's, with the client id it is known by.
        owners: Whose each topic is.
        unreleased: What an earlier connection of the client left (``unreleased``).

    Attributes:
        leaving: The client said goodbye.
    """

    def __init__(
        self, connect: Connect, owners: Owners, *, unreleased: Mapping[Name, int] | None = None
    ) -> None:
        self.to_client: list[bytes] = []
        self.to_ways: list[list[bytes]] = [[] for _ in range(owners.ways)]
        self.leaving = False
        self._connect = connect
        self._version = connect.version
        self._owners = owners
        self._greetings = Greetings(connect.version, owners.ways)
        self._early: list[tuple[int, bytes, list[Packet]]] = []
        self._unreleased = dict(unreleased or {})
        self._room = receive_max(connect.properties, connect.version, RECEIVE_MAX)
        self._ids = DeliveryIds(self._room, {})
        self._requests = SplitRequests(connect.version)
        self._unwanted: set[Name] = set()  # QoS 2 deliveries that are kept from the client
        self._sent: dict[int, int] = {}  # QoS 2 publications of the client: the way of each
        self._releases: list[_Release] = []
        self._pings: list[deque[bool]] = [deque() for _ in range(owners.ways)]  # the client's?
        self._pongs = [0] * owners.ways
        self._heard_ms = [Millis(0)] * owners.ways

    @property
    def accepted(self) -> bool:
        """Whether the client has its CONNACK."""
        return self._greetings.complete and not self.torn

    @property
    def torn(self) -> bool:
        """Some ways have the client's session and others have not: it is no session."""
        return self._greetings.torn

    @property
    def early_bytes(self) -> int:
        """Of what ways sent before the client is accepted."""
        return sum(len(block) for _, block, _ in self._early)

    @property
    def unreleased(self) -> dict[Name, int]:
        """QoS 2 deliveries that are not finished, for the client's next connection."""
        return self._ids.unreleased

    def connects(self) -> list[Connect]:
        """The client's CONNECT for each way."""
        connect = self._connect
        will = self._owners.of(connect.will.topic) if connect.will is not None else REST
        return [
            replace(
                connect,
                client_id=name_on(way, connect.client_id),
                will=connect.will if way == will else None,
            )
            for way in range(self._owners.ways)
        ]

    # -- the client -------------------------------------------------------------------------------

    def from_client(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """The client, which is accepted, sent ``packets``.

        Raises:
            MalformedError: One must not be; those before it are handled.
        """
        version, of, ways = self._version, self._owners.of_encoded, self.to_ways
        for packet in packets:
            first, start, body, end = packet
            if first & 0xF0 != _PUBLISH:
                self._from_client(block, packet)
                continue
            _, packet_id, id_at, alias = read_publish(block, packet, version)
            if alias:
                raise MalformedError(Reason.TOPIC_ALIAS_INVALID, "a topic alias: 0 are allowed")
            way = of(block[body + 2 : id_at])
            if first & _QOS_2:
                self._sent[packet_id] = way
            ways[way].append(block[start:end])
        self._ping_idle(now_ms)

    def _from_client(self, block: bytes, packet: Packet) -> None:
        """Any packet of the client but PUBLISH."""
        kind, whole = packet[0] & 0xF0, block[packet[1] : packet[3]]
        match kind:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                self._on_answer(kind, block, packet)
            case Kind.PUBREL:
                self._on_release(read_ack(block, packet, self._version)[0], whole)
            case Kind.SUBSCRIBE:
                wish = read_subscribe(block, packet, self._version)
                ways = tuple(self._ways_of(filter) for filter, _ in wish.filters)
                self._ask(*self._requests.subscribe(wish, ways))
            case Kind.UNSUBSCRIBE:
                request = read_unsubscribe(block, packet, self._version)
                ways = tuple(self._ways_of(filter) for filter in request.filters)
                self._ask(*self._requests.unsubscribe(request, ways))
            case Kind.PINGREQ | Kind.DISCONNECT:
                self.leaving = kind == Kind.DISCONNECT
                for way, out in enumerate(self.to_ways):
                    out.append(whole)
                    if kind == Kind.PINGREQ:
                        self._pings[way].append(True)
            case _:
                self.to_ways[REST].append(whole)  # its session refuses it

    def _ways_of(self, filter: str) -> tuple[int, ...]:
        """Where a subscription stands: nowhere if a group would share topics of two brokers.

        Each of them would give every publication to one member, so it might go to a member twice,
        or to one that must not take it from that broker.
        """
        ways = self._owners.sharing(filter)
        return () if len(ways) > 1 and filter.startswith("$share/") else ways

    def _ask(self, asks: list[Ask], answer: bytes) -> None:
        for way, packet in asks:
            self.to_ways[way].append(packet)
        if answer:
            self.to_client.append(answer)

    def _on_answer(self, kind: int, block: bytes, packet: Packet) -> None:
        """The client answers a delivery."""
        packet_id, reason = read_ack(block, packet, self._version)
        name = self._ids.name(packet_id)
        if name is None:
            if not self._ids.is_used((REST, packet_id)):  # of nothing we know: as a broker hears it
                self.to_ways[REST].append(block[packet[1] : packet[3]])
            return
        if kind != Kind.PUBREC or reason >= Reason.UNSPECIFIED:
            self._ids.finish(packet_id, self.to_client)
        way, theirs = name
        self.to_ways[way].append(_renumbered(block, packet, theirs))

    def _on_release(self, packet_id: int, whole: bytes) -> None:
        """The client sent PUBREL; one that an earlier connection began concerns any way."""
        way = self._sent.get(packet_id)
        if way is not None:
            self.to_ways[way].append(whole)
            return
        if len(self._releases) >= OPEN_MAX:
            raise MalformedError(Reason.QUOTA_EXCEEDED, f"more than {OPEN_MAX} open releases")
        self._releases.append(_Release(packet_id, {*range(self._owners.ways)}))
        for out in self.to_ways:
            out.append(whole)

    def _ping_idle(self, now_ms: Millis) -> None:
        """Let no way's broker think that the client, which speaks to others, is gone."""
        if not self._connect.keep_alive:
            return
        before_ms = now_ms - self._connect.keep_alive * 1_000 // IDLE_PART
        for way, out in enumerate(self.to_ways):
            if out:
                self._heard_ms[way] = now_ms
            elif self._heard_ms[way] < before_ms:
                self._heard_ms[way] = now_ms
                self._pings[way].append(False)
                out.append(PINGREQ)

    # -- the ways ---------------------------------------------------------------------------------

    def from_way(self, way: int, block: bytes, packets: list[Packet]) -> None:
        """The session of ``way`` has ``packets`` for the client.

        Raises:
            MalformedError: Its broker does not deserve its clients.
        """
        if not self._greetings.complete:
            packets = self._greet(way, block, packets)
            if packets:
                self._early.append((way, block, packets))
            if self.accepted:
                early, self._early = self._early, []
                for each in early:
                    self._take(*each)
            return
        self._take(way, block, packets)

    def _greet(self, way: int, block: bytes, packets: list[Packet]) -> list[Packet]:
        """Put CONNACKs together; return what came behind."""
        if packets and not self._greetings.has(way):
            connack = self._greetings.add(way, block, packets[0])
            packets = packets[1:]
            if connack:
                if self._greetings.with_session:
                    self._ids = DeliveryIds(self._room, self._unreleased)
                self.to_client.append(connack)
        return packets

    def _take(self, way: int, block: bytes, packets: list[Packet]) -> None:
        out, of = self.to_client, self._owners.of_encoded
        for packet in packets:
            first, start, body, end = packet
            if first & 0xF0 != _PUBLISH:
                self._from_way(way, block, packet)
                continue
            if end - body < 2:
                raise malformed("PUBLISH ends inside its topic")
            after = body + 2 + (block[body] << 8 | block[body + 1])
            wanted = of(block[body + 2 : after]) == way
            if not first & QOS:
                if wanted:
                    out.append(block[start:end])
                continue
            packet_id, _ = publish_id(block, packet)
            if wanted:
                self._ids.deliver((way, packet_id), block[start:end], out)
            else:
                self._drop(way, packet_id, exactly_once=bool(first & _QOS_2))

    def _drop(self, way: int, packet_id: int, *, exactly_once: bool) -> None:
        """Acknowledge what comes from a broker that does not own its topic."""
        kind = Kind.PUBREC if exactly_once else Kind.PUBACK
        if exactly_once:
            self._unwanted.add((way, packet_id))
        self.to_ways[way].append(write_ack(kind, packet_id, self._version))

    def _from_way(self, way: int, block: bytes, packet: Packet) -> None:
        """Any packet of a way but PUBLISH."""
        kind, whole = packet[0] & 0xF0, block[packet[1] : packet[3]]
        match kind:
            case Kind.PUBREL:
                self._on_way_releases(way, block, packet)
            case Kind.SUBACK | Kind.UNSUBACK:
                answer = read_answer(block, packet, self._version)
                self._ask(*self._requests.on_answer(way, Kind(kind), answer))
            case Kind.PINGRESP:
                self._on_pong(way)
            case Kind.PUBCOMP:
                self._on_complete(way, read_ack(block, packet, self._version)[0], whole)
            case Kind.PUBREC:
                packet_id, reason = read_ack(block, packet, self._version)
                if reason >= Reason.UNSPECIFIED:
                    self._sent.pop(packet_id, None)
                self.to_client.append(whole)
            case _:
                self.to_client.append(whole)

    def _on_way_releases(self, way: int, block: bytes, packet: Packet) -> None:
        packet_id, _ = read_ack(block, packet, self._version)
        name = way, packet_id
        number = None if name in self._unwanted else self._ids.at_client(name)
        if number is None:
            self._unwanted.discard(name)
            self.to_ways[way].append(write_ack(Kind.PUBCOMP, packet_id, self._version))
        else:
            self.to_client.append(_renumbered(block, packet, number))

    def _on_complete(self, way: int, packet_id: int, answer: bytes) -> None:
        """A publication is finished; of a PUBREL that any way may have meant, when all say so."""
        for release in self._releases:
            if release.packet_id == packet_id and way in release.waits:
                release.waits.discard(way)
                if not release.answer or len(answer) == BARE_BYTES:
                    release.answer = answer
                if not release.waits:
                    self._releases.remove(release)
                    self.to_client.append(release.answer)
                return
        self._sent.pop(packet_id, None)
        self.to_client.append(answer)

    def _on_pong(self, way: int) -> None:
        pings = self._pings[way]
        if pings and pings.popleft():
            self._pongs[way] += 1
            if all(self._pongs):
                self._pongs = [count - 1 for count in self._pongs]
                self.to_client.append(PINGRESP)


def _renumbered(block: bytes, packet: Packet, packet_id: int) -> bytes:
    """An acknowledgement with another packet id."""
    _, start, body, end = packet
    high, low = packet_id >> 8, packet_id & 0xFF
    if block[body] == high and block[body + 1] == low:
        return block[start:end]
    return b"".join((block[start:body], bytes((high, low)), block[body + 2 : end]))
