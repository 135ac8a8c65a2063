"""One client of several brokers, as a machine: several clients to them, one broker to the client.

Every topic has one owner (``topic_owners``), and everything about a topic happens there alone. What
the client publishes is sent to the topic's owner. Its subscriptions are made at every owner that
they may concern. Of the brokers' deliveries, only those from the topic's owner are sent to the
client; the rest are acknowledged and dropped (brokers of one federation forward each other's
publications). So on each topic the client sees one broker, with all that MQTT promises about order,
QoS, retained values and overlapping filters.

Each **leg** is a whole ``ClientSession`` under a client id of its own, and finds another broker
when its own dies, as any session does. Here packets are distributed to the legs and merged:

- The client's packet ids mean the same everywhere; the answer comes from the one leg that was
  asked. Upstream we only remember which leg gets a PUBREL.
- Deliveries have ids of several brokers, so their ids may change (``delivery_ids``).
- SUBSCRIBE and UNSUBSCRIBE are sent to several legs, and have one answer (``answers``).
- CONNACK and PINGRESP are sent when all legs have sent theirs; DISCONNECT goes to all. The will is
  left at the owner of its topic.

Source: OASIS MQTT 5.0; Fawwaz 2022, 3.1; docs/gateway.md, "Topics of certain brokers".
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from federator.gateway import wire
from federator.gateway.session.subscriptions import receive_max
from federator.gateway.session.topic_aliases import TopicAliases
from federator.gateway.split.answers import OPEN_MAX, Ask, ConnackMerger, RequestMerger
from federator.gateway.split.delivery_ids import Delivery, DeliveryIds
from federator.gateway.split.topic_owners import REST, TopicOwners
from federator.gateway.wire.kinds import Kind, MalformedError, Packet, Reason
from federator.protocol.types import Millis

SUFFIX: Final = "~federator-"
"""Stands between a client's id and the leg's number, in its client id on that leg."""

IDLE_PART: Final = 4
"""Legs without traffic to them for this part of the keep-alive are pinged when the client sends."""

BARE_BYTES: Final = 4
"""Length of an acknowledgement without a reason."""

_PUBLISH: Final = int(Kind.PUBLISH)
_read_ack = partial(wire.read_ack, from_client=False)


@dataclass(slots=True)
class _Release:
    """A PUBREL of a publication that an earlier connection of the client began.

    Attributes:
        waits: Legs that have not answered.
        answer: The best answer so far: one without a reason, rather than "not found".
    """

    packet_id: int
    waits: set[int]
    answer: bytes = b""


class SplitSession:
    """One client of several brokers.

    After each call, the driver sends what is in ``to_client`` and ``to_legs``, and empties them.

    Args:
        take_unreleased: Returns ``unreleased`` of the client's earlier connection; called only
            after all legs accepted the client, which proves its id.
    """

    def __init__(
        self,
        connect: wire.Connect,
        owners: TopicOwners,
        *,
        take_unreleased: Callable[[], Mapping[Delivery, int]] = dict,
    ) -> None:
        self.to_client: list[bytes] = []
        self.to_legs: list[list[bytes]] = [[] for _ in range(owners.legs)]
        self.leaving = False  # the client sent DISCONNECT
        self._connect = connect
        self._version = connect.version
        self._owners = owners
        assigned = connect.client_id if connect.assigned else ""
        self._connacks = ConnackMerger(connect.version, owners.legs, assigned=assigned)
        self._early: list[tuple[int, bytes, list[Packet]]] = []
        self._take_unreleased = take_unreleased
        self._room = receive_max(connect.properties, connect.version)
        self._ids = DeliveryIds(self._room, {})
        self._aliases = TopicAliases()
        self._requests = RequestMerger(connect.version)
        self._unwanted: set[Delivery] = set()  # QoS 2 deliveries that are not forwarded
        self._sent: dict[int, int] = {}  # QoS 2 publications of the client: the leg of each
        self._releases: list[_Release] = []
        # per leg, whether each open ping is the client's
        self._pings: list[deque[bool]] = [deque() for _ in range(owners.legs)]
        self._pongs = [0] * owners.legs
        self._heard_ms = [Millis(0)] * owners.legs

    @property
    def accepted(self) -> bool:
        """Whether the client has its CONNACK."""
        return self._connacks.complete and not self.torn

    @property
    def torn(self) -> bool:
        """Whether only some legs have the client's session, which is then invalid."""
        return self._connacks.torn

    @property
    def early_bytes(self) -> int:
        """Bytes that legs sent before the client is accepted."""
        return sum(len(block) for _, block, _ in self._early)

    @property
    def unreleased(self) -> dict[Delivery, int]:
        return self._ids.unreleased

    def connects(self) -> list[wire.Connect]:
        """The client's CONNECT for each leg."""
        connect = self._connect
        will = self._owners.of(connect.will.topic) if connect.will is not None else REST
        return [
            replace(
                connect,
                client_id=connect.client_id + (f"{SUFFIX}{leg}" if leg != REST else ""),
                will=connect.will if leg == will else None,
                assigned=False,  # all legs share its id, so no broker assigns it
            )
            for leg in range(self._owners.legs)
        ]

    # -- the client -------------------------------------------------------------------------------

    def from_client(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """Take what the accepted client sent.

        Raises:
            MalformedError: A packet breaks the protocol; those before it are handled.
        """
        version, of, legs = self._version, self._owners.of_encoded, self.to_legs
        for packet in packets:
            first, start, body, end = packet
            if first & 0xF0 != _PUBLISH:
                self._on_client_packet(block, packet)
                continue
            header = wire.read_publish(block, packet, version)
            _, packet_id, id_at, alias = header
            if alias:
                topic, whole = self._aliases.resolve(block, packet, header)
                leg = of(topic.encode())
            else:
                leg, whole = of(block[body + 2 : id_at]), block[start:end]
            if first & wire.QOS_2:
                self._sent[packet_id] = leg
            legs[leg].append(whole)
        self._ping_idle(now_ms)

    def _on_client_packet(self, block: bytes, packet: Packet) -> None:
        """Take any packet of the client but PUBLISH."""
        kind, whole = packet[0] & 0xF0, block[packet[1] : packet[3]]
        match kind:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                self._on_answer(kind, block, packet)
            case Kind.PUBREL:
                self._on_release(wire.read_ack(block, packet, self._version)[0], whole)
            case Kind.SUBSCRIBE | Kind.UNSUBSCRIBE:
                request = wire.read_request(block, packet, self._version)
                self._ask_legs(*self._requests.request(request, self._legs_of))
            case Kind.PINGREQ | Kind.DISCONNECT:
                self.leaving = kind == Kind.DISCONNECT
                for leg, out in enumerate(self.to_legs):
                    out.append(whole)
                    if kind == Kind.PINGREQ:
                        self._pings[leg].append(True)
            case _:
                self.to_legs[REST].append(whole)  # that leg's session refuses it

    def _legs_of(self, filter: str) -> tuple[int, ...]:
        """The legs of a subscription: none if a shared group would span two brokers.

        Each of these would send every publication to one member, so a member might get it twice, or
        get it from a broker that does not own its topic.
        """
        legs = self._owners.sharing(filter)
        return () if len(legs) > 1 and filter.startswith("$share/") else legs

    def _ask_legs(self, asks: list[Ask], answer: bytes) -> None:
        for leg, packet in asks:
            self.to_legs[leg].append(packet)
        if answer:
            self.to_client.append(answer)

    def _on_answer(self, kind: int, block: bytes, packet: Packet) -> None:
        """Pass the client's acknowledgement on to the leg of the delivery."""
        packet_id, reason = wire.read_ack(block, packet, self._version)
        delivery = self._ids.of(packet_id)
        if delivery is None:
            if not self._ids.is_used((REST, packet_id)):  # an unknown id: a broker decides
                self.to_legs[REST].append(block[packet[1] : packet[3]])
            return
        if kind != Kind.PUBREC or reason >= Reason.UNSPECIFIED:
            self._ids.finish(packet_id, self.to_client)
        leg, theirs = delivery
        self.to_legs[leg].append(_renumbered(block, packet, theirs))

    def _on_release(self, packet_id: int, whole: bytes) -> None:
        """Pass on the client's PUBREL; if an earlier connection began it, to all legs."""
        leg = self._sent.get(packet_id)
        if leg is not None:
            self.to_legs[leg].append(whole)
            return
        if len(self._releases) >= OPEN_MAX:
            raise MalformedError(f"more than {OPEN_MAX} open releases", Reason.QUOTA_EXCEEDED)
        self._releases.append(_Release(packet_id, {*range(self._owners.legs)}))
        for out in self.to_legs:
            out.append(whole)

    def _ping_idle(self, now_ms: Millis) -> None:
        """Ping idle legs: the client sends to other legs, and their brokers must not time out."""
        if not self._connect.keep_alive:
            return
        before_ms = now_ms - self._connect.keep_alive * 1_000 // IDLE_PART
        for leg, out in enumerate(self.to_legs):
            if out:
                self._heard_ms[leg] = now_ms
            elif self._heard_ms[leg] < before_ms:
                self._heard_ms[leg] = now_ms
                self._pings[leg].append(False)
                out.append(wire.PINGREQ)

    # -- the legs ---------------------------------------------------------------------------------

    def from_leg(self, leg: int, block: bytes, packets: list[Packet]) -> None:
        """Take what the session of ``leg`` has for the client.

        Raises:
            MalformedError: The leg's broker breaks the protocol.
        """
        if not self._connacks.complete:
            packets = self._merge_connack(leg, block, packets)
            if packets:
                self._early.append((leg, block, packets))
            if self.accepted:
                early, self._early = self._early, []
                for early_packets in early:
                    self._deliver(*early_packets)
            return
        self._deliver(leg, block, packets)

    def _merge_connack(self, leg: int, block: bytes, packets: list[Packet]) -> list[Packet]:
        """Merge CONNACKs; return the packets behind them."""
        if packets and not self._connacks.has(leg):
            connack = self._connacks.add(leg, block, packets[0])
            packets = packets[1:]
            if self._connacks.complete:
                self._aliases.allow(self._connacks.properties)
                unreleased = self._take_unreleased()
                if self._connacks.with_session:
                    self._ids = DeliveryIds(self._room, unreleased)
            if connack:
                self.to_client.append(connack)
        return packets

    def _deliver(self, leg: int, block: bytes, packets: list[Packet]) -> None:
        out, of = self.to_client, self._owners.of_encoded
        for packet in packets:
            first, start, body, end = packet
            if first & 0xF0 != _PUBLISH:
                self._on_leg_packet(leg, block, packet)
                continue
            if end - body < 2:
                raise MalformedError("PUBLISH ends inside its topic")
            after = body + 2 + (block[body] << 8 | block[body + 1])
            is_owner = of(block[body + 2 : after]) == leg
            if not first & wire.QOS:
                if is_owner:
                    out.append(block[start:end])
                continue
            packet_id, _ = wire.publish_id(block, packet)
            if is_owner:
                self._ids.deliver((leg, packet_id), block[start:end], out)
            else:
                self._drop(leg, packet_id, exactly_once=bool(first & wire.QOS_2))

    def _drop(self, leg: int, packet_id: int, *, exactly_once: bool) -> None:
        """Acknowledge a delivery from a broker that does not own its topic."""
        kind = Kind.PUBREC if exactly_once else Kind.PUBACK
        if exactly_once:
            self._unwanted.add((leg, packet_id))
        self.to_legs[leg].append(wire.write_ack(kind, packet_id, self._version))

    def _on_leg_packet(self, leg: int, block: bytes, packet: Packet) -> None:
        """Take any packet of a leg but PUBLISH."""
        kind, whole = packet[0] & 0xF0, block[packet[1] : packet[3]]
        match kind:
            case Kind.PUBREL:
                self._on_leg_releases(leg, block, packet)
            case Kind.SUBACK | Kind.UNSUBACK:
                answer = wire.read_answer(block, packet, self._version)
                self._ask_legs(*self._requests.on_answer(leg, Kind(kind), answer))
            case Kind.PINGRESP:
                self._on_pong(leg)
            case Kind.PUBCOMP:
                self._on_complete(leg, _read_ack(block, packet, self._version)[0], whole)
            case Kind.PUBREC:
                packet_id, reason = _read_ack(block, packet, self._version)
                if reason >= Reason.UNSPECIFIED:
                    self._sent.pop(packet_id, None)
                self.to_client.append(whole)
            case _:
                self.to_client.append(whole)

    def _on_leg_releases(self, leg: int, block: bytes, packet: Packet) -> None:
        packet_id, _ = _read_ack(block, packet, self._version)
        delivery = leg, packet_id
        number = None if delivery in self._unwanted else self._ids.at_client(delivery)
        if number is None:
            self._unwanted.discard(delivery)
            self.to_legs[leg].append(wire.write_ack(Kind.PUBCOMP, packet_id, self._version))
        else:
            self.to_client.append(_renumbered(block, packet, number))

    def _on_complete(self, leg: int, packet_id: int, answer: bytes) -> None:
        """End a publication; after a PUBREL to all legs, when all have answered."""
        for release in self._releases:
            if release.packet_id == packet_id and leg in release.waits:
                release.waits.discard(leg)
                if not release.answer or len(answer) == BARE_BYTES:
                    release.answer = answer
                if not release.waits:
                    self._releases.remove(release)
                    self.to_client.append(release.answer)
                return
        self._sent.pop(packet_id, None)
        self.to_client.append(answer)

    def _on_pong(self, leg: int) -> None:
        pings = self._pings[leg]
        if pings and pings.popleft():
            self._pongs[leg] += 1
            if all(self._pongs):
                self._pongs = [count - 1 for count in self._pongs]
                self.to_client.append(wire.PINGRESP)


def _renumbered(block: bytes, packet: Packet, packet_id: int) -> bytes:
    """An acknowledgement with another packet id."""
    _, start, body, end = packet
    high, low = packet_id >> 8, packet_id & 0xFF
    if block[body] == high and block[body + 1] == low:
        return block[start:end]
    return b"".join((block[start:body], bytes((high, low)), block[body + 2 : end]))
