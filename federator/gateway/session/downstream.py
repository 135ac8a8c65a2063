"""QoS 1 and 2 deliveries from a broker to one client, across the death of that broker.

In the steady state packets pass unchanged, packet ids included; we only note which ids the client
has not acknowledged. When the broker dies, these ids stay in use: the client will acknowledge them,
with no broker to receive that. The next broker counts its ids anew. Where such an id is still in
use, and for deliveries of our own, the client gets another id, until all old ones are acknowledged.

Deliveries of a new broker are held until the client's subscriptions are made there, so that missed
publications can go first.

Source: OASIS MQTT 5.0, 4.3, 4.4 and 4.9; docs/gateway.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.gateway import wire
from federator.gateway.session.held_subacks import HeldSubacks
from federator.gateway.session.orders import AskSettled
from federator.gateway.session.upstream import PACKET_ID_MAX, PASS, SWALLOW
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Reason, Version

OURS: Final = 0
"""Stands for the broker's packet id where no broker waits for an acknowledgement."""


@dataclass(slots=True, eq=False)
class Downstream:
    """Deliveries of one client's broker on their way to the client.

    Attributes:
        receive_max: How many unacknowledged deliveries the client accepts.
        plain: Whether packets pass unchanged after ``note``.
    """

    version: Version
    receive_max: int
    to_client: list[bytes]
    to_broker: list[bytes]
    plain: bool = True
    _ids: dict[int, int] = field(default_factory=dict)  # the client's unanswered id: the broker's
    # the broker's id: the client's, if it differs
    _names: dict[int, int] = field(default_factory=dict)
    _twos: set[int] = field(default_factory=set)  # the client's ids of QoS 2
    _received: set[int] = field(default_factory=set)  # QoS 2: the client sent its PUBREC
    _foreign: int = 0  # ids that are not the broker's own
    _held: list[bytes] | None = None
    # the broker's id and the packet
    _waiting: list[tuple[int, bytes]] = field(default_factory=list)
    _subacks: HeldSubacks = field(default_factory=HeldSubacks)
    _mutes: bool = False
    _muted: set[int] = field(default_factory=set)  # QoS 2: retained values not forwarded
    _next: int = PACKET_ID_MAX

    @property
    def unacknowledged(self) -> int:
        """Deliveries not yet sent to the client, or not acknowledged."""
        return len(self._ids) + len(self._waiting)

    def note(self, packet_id: int, two: int) -> None:
        """Note a QoS 1 delivery, or QoS 2 if ``two``, that passes unchanged."""
        self._ids[packet_id] = packet_id
        if two:
            self._twos.add(packet_id)

    def hold(self) -> None:
        """Hold deliveries from now on, until ``give``.

        Retained values that a 3.1.1 broker sends because we subscribe again are dropped, for the
        client has them; in 3.1.1 a live publication never has the retain flag.
        """
        if self._held is None:
            self._held = []
        self.mute()
        self.plain = False

    def mute(self) -> None:
        """Drop retained values, which the client has, until ``unmute``."""
        self._mutes = self.version != V5
        self.plain = self.plain and not self._mutes

    def hold_suback(self, suback: bytes, filters: Iterable[str]) -> AskSettled:
        """Hold ``suback``, and deliveries on its ``filters``, until ``release_suback``."""
        asked = self._subacks.hold(suback, filters)
        self._settle()
        return asked

    def release_suback(self, token: int) -> None:
        """Send the SUBACK that is held for ``token``, and the deliveries behind it."""
        suback = self._subacks.release(token)
        if suback is not None:
            self.to_client.append(suback)
            self._deliver_all(self._subacks.take(token))

    def unmute(self) -> None:
        """Let retained values pass again: the client itself subscribes, or ours have arrived."""
        if self._mutes:
            self._mutes = False
            self._settle()

    def lose(self) -> None:
        """Take over the open handshakes of the broker, which is gone."""
        for packet_id in self._ids:
            self._ids[packet_id] = OURS
        for packet_id in sorted(self._received):  # the dead broker cannot send these
            self.to_client.append(wire.write_ack(Kind.PUBREL, packet_id, self.version))
        self._foreign = len(self._ids)
        self._names.clear()
        self._muted.clear()
        waiting = (packet for _, packet in self._waiting)
        given = [*waiting, *self._subacks.take_all(), *(self._held or ())]
        self._waiting = [(OURS, packet) for packet in given]
        self._held = None
        self.hold()
        self._flush()

    def deliver(self, packet: bytes) -> None:
        """Take a delivery of the broker that cannot pass unchanged."""
        if self._mutes and packet[0] & wire.RETAIN:
            self._mute(packet)
        elif self._held is not None:
            self._held.append(packet)
        elif self._subacks and self._subacks.keeps(wire.topic_of(packet), packet):
            if self._subacks.full:
                self._deliver_all(self._subacks.take_all())
        else:
            packet_id = (
                wire.publish_id(packet, wire.only(packet))[0] if packet[0] & wire.QOS else OURS
            )
            self._offer(packet_id, packet)

    def give(self, missed: Iterable[bytes]) -> None:
        """Send the ``missed`` packets, then the held ones, and hold no more."""
        held, self._held = self._held or (), None
        for packet in missed:
            self._offer(OURS, packet)
        self._deliver_all(held)

    def take_puback(self, packet_id: int) -> bool:
        """Take the client's plain PUBACK, which is forwarded; return whether it was one."""
        if not self.plain or self._twos or packet_id not in self._ids:
            return False
        del self._ids[packet_id]
        return True

    def on_ack(self, kind: int, packet_id: int, reason: int) -> bytes:
        """Take the client's PUBACK, PUBREC or PUBCOMP; return what to send to the broker.

        Raises:
            MalformedError: The packet does not fit the delivery's QoS and state.
        """
        broker_id = self._ids.get(packet_id)
        # an unknown id: while all ids are the broker's, the broker handles it
        if broker_id is None:
            return PASS if self.plain else SWALLOW
        if (kind == Kind.PUBACK) == (packet_id in self._twos) or (
            kind == Kind.PUBCOMP and packet_id not in self._received
        ):
            text = f"{Kind(kind).name} for a delivery that wants another answer"
            raise MalformedError(text, Reason.PROTOCOL_ERROR)
        if kind == Kind.PUBREC and reason < Reason.UNSPECIFIED:
            self._received.add(packet_id)
            if broker_id == OURS:
                self.to_client.append(wire.write_ack(Kind.PUBREL, packet_id, self.version))
        else:
            del self._ids[packet_id]
            self._twos.discard(packet_id)
            self._received.discard(packet_id)
            self._names.pop(broker_id, None)
            if broker_id != packet_id:
                self._foreign -= 1
            if not self.plain:
                self._flush()
                self._settle()
        if broker_id == packet_id:
            return PASS
        return wire.write_ack(Kind(kind), broker_id, self.version, reason) if broker_id else SWALLOW

    def on_pubrel(self, broker_id: int, reason: int) -> bytes:
        """Take the broker's PUBREL; return what to send to the client."""
        if broker_id in self._muted:
            self._muted.discard(broker_id)
            self.to_broker.append(wire.write_ack(Kind.PUBCOMP, broker_id, self.version))
            return SWALLOW
        packet_id = self._names.get(broker_id)
        if packet_id is not None:
            return wire.write_ack(Kind.PUBREL, packet_id, self.version, reason)
        if self._ids.get(broker_id) != broker_id:
            if broker_id in self._ids:  # the client uses this id for another delivery
                self.to_broker.append(wire.write_ack(Kind.PUBCOMP, broker_id, self.version))
                return SWALLOW
            self.note(broker_id, True)  # begun on an earlier connection of the client
            self._received.add(broker_id)
        return PASS

    def _deliver_all(self, packets: Iterable[bytes]) -> None:
        for packet in packets:
            self.deliver(packet)
        self._settle()

    def _mute(self, packet: bytes) -> None:
        if not packet[0] & wire.QOS:
            return
        packet_id, _ = wire.publish_id(packet, wire.only(packet))
        two = packet[0] & wire.QOS_2
        if two:
            self._muted.add(packet_id)
        kind = Kind.PUBREC if two else Kind.PUBACK
        self.to_broker.append(wire.write_ack(kind, packet_id, self.version))

    def _offer(self, broker_id: int, packet: bytes) -> None:
        """Send ``packet`` in its turn, when the client has room."""
        self._waiting.append((broker_id, packet))
        self._flush()

    def _flush(self) -> None:
        sent = 0
        for broker_id, packet in self._waiting:
            if packet[0] & wire.QOS:
                if len(self._ids) >= min(self.receive_max, PACKET_ID_MAX - 1):
                    break
                packet = self._addressed(broker_id, packet)
            self.to_client.append(packet)
            sent += 1
        del self._waiting[:sent]

    def _addressed(self, broker_id: int, packet: bytes) -> bytes:
        """Return ``packet`` with an id that is free on the client's side."""
        packet_id = broker_id
        if packet_id == OURS or packet_id in self._ids:
            while self._next in self._ids:
                self._next = self._next - 1 or PACKET_ID_MAX
            packet_id = self._next
            self._next = self._next - 1 or PACKET_ID_MAX
        self._ids[packet_id] = broker_id
        if packet[0] & wire.QOS_2:
            self._twos.add(packet_id)
        if packet_id != broker_id:
            self._foreign += 1
            if broker_id != OURS:
                self._names[broker_id] = packet_id
        return packet if packet_id == broker_id else wire.again(packet, packet_id)

    def _settle(self) -> None:
        """Let deliveries pass unchanged again once all ids are the broker's own."""
        waits = self._waiting or self._held is not None or self._mutes or self._subacks
        self.plain = not (self._foreign or waits)
