"""What we sent with QoS 1 or 2 and the broker has not acknowledged yet.

A message waits in a queue, gets an identifier when the broker's Receive Maximum has room for it,
and is forgotten at PUBACK (QoS 1) or PUBCOMP (QoS 2; PUBREC turns it into a PUBREL). A lost
connection forgets nothing: with the session still there messages keep their identifiers and go
again with DUP; without it they go again as new ones. So a message may arrive twice after a fault,
never not at all.

Pure: every method appends what must be sent to ``out``.

Source: OASIS MQTT 5.0, sections 4.3 (QoS), 4.4 (delivery retry) and 4.9 (flow control).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federator.protocol.forwarding.publications import Place
from federator.runtime.mqtt import wire
from federator.runtime.mqtt.wire import Out

PACKET_ID_MAX = 65_535
PACKET_ID_USUAL = 2_048
"""While few are in use, identifiers stay below: a successor of ours can release them all."""

IN_FLIGHT_MAX = 65_000
"""Leaves identifiers for SUBSCRIBE and UNSUBSCRIBE, whatever the broker's Receive Maximum is."""

_ERROR = 0x80  # reason codes from here on say failure


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What the broker said it grants, in its CONNACK."""

    receive_max: int
    packet_bytes_max: int
    qos_max: int
    subscription_ids_available: bool


class PacketIds:
    """Identifiers in use, shared by PUBLISH, SUBSCRIBE and UNSUBSCRIBE; bounded by the callers."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        """A free identifier, the least recently used first."""
        assert len(self._used) < PACKET_ID_MAX, "no packet identifier is free"
        few = 2 * len(self._used) < PACKET_ID_USUAL
        top = PACKET_ID_USUAL if few else PACKET_ID_MAX
        while True:
            self._last = self._last % top + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def release(self, packet_id: int) -> None:
        """Make ``packet_id`` free again."""
        self._used.discard(packet_id)

    def __len__(self) -> int:
        return len(self._used)


@dataclass(slots=True)
class _Outgoing:
    packet: bytearray
    id_at: int
    qos: int
    position: int
    on_answer: Callable[[int], None] | None = None
    released: bool = False  # PUBREC came, PUBREL went out


class OutboundWindow:
    """The messages that are in flight, and those that wait for room.

    Args:
        bytes_max: Bytes kept, in flight and waiting; what would exceed them is refused.
    """

    def __init__(self, ids: PacketIds, *, bytes_max: int) -> None:
        self._ids = ids
        self._bytes_max = bytes_max
        self._in_flight: dict[int, _Outgoing] = {}  # in the order sent
        self._waiting: deque[_Outgoing] = deque()
        self._limit = 0  # Receive Maximum; 0 while there is no connection
        self._packet_bytes_max = 0
        self._qos_max = 2
        self.offered = 0  # messages taken so far: the last one's position
        self.bytes = 0
        self.rejected = 0  # by the broker, with an error code
        self.oversized = 0  # dropped: longer than the broker takes
        self.first_rejection: str | None = None

    @property
    def in_flight(self) -> int:
        """How many messages hold an identifier."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """How many messages wait for room in the window."""
        return len(self._waiting)

    @property
    def settled_through(self) -> int:
        """Up to this position, the broker has, or never will have, every message."""
        oldest = self.offered + 1
        if self._waiting:
            oldest = self._waiting[0].position
        if self._in_flight:
            oldest = min(oldest, next(iter(self._in_flight.values())).position)
        return oldest - 1

    def offer(
        self,
        packet: bytearray,
        id_at: int,
        qos: int,
        out: Out,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Take charge of ``packet``, send it when there is room; ``False`` when refused.

        ``on_answer`` hears the reason code of the broker's last word on it.
        """
        taken = self._keep(packet, id_at, qos, on_answer)
        self._fill(out)
        return taken

    def offer_run(self, run: bytes, places: Sequence[Place], out: Out) -> int:
        """Take charge of the packets at ``places`` of ``run`` as of one each; how many were."""
        taken = 0
        for start, end, id_at, qos in places:
            taken += self._keep(bytearray(run[start:end]), id_at - start, qos)
        self._fill(out)
        return taken

    def on_run_acknowledged(self, packet_ids: Sequence[int], out: Out) -> None:
        """Take PUBACKs that say success."""
        in_flight = self._in_flight
        for packet_id in packet_ids:
            message = in_flight.get(packet_id)
            if message is not None and message.qos == 1:
                self._finish(packet_id, message, 0)
        self._fill(out)

    def on_acknowledged(self, packet_id: int, reason: int, out: Out, *, qos: int) -> None:
        """Take a PUBACK (``qos`` 1) or PUBCOMP (2): the broker has the message."""
        message = self._in_flight.get(packet_id)
        if message is None or message.qos != qos or message.released != (qos == 2):
            return
        self._finish(packet_id, message, reason)
        self._fill(out)

    def on_received(self, packet_id: int, reason: int, out: Out) -> None:
        """Take a PUBREC: release the message, or forget it when the broker refused it."""
        message = self._in_flight.get(packet_id)
        if message is None or message.qos != 2:
            out.append(wire.unknown_release(packet_id))
        elif reason >= _ERROR:
            self._finish(packet_id, message, reason)
            self._fill(out)
        else:
            message.released = True
            out.append(wire.acknowledgement(wire.PUBREL, packet_id))

    def resume(self, limits: BrokerLimits, *, session_present: bool, out: Out) -> None:
        """Send again, on a new connection, what was in flight, then what waits.

        ``session_present``: the broker still knows our identifiers.
        """
        self._limit = min(limits.receive_max, IN_FLIGHT_MAX)
        self._packet_bytes_max = limits.packet_bytes_max
        self._qos_max = limits.qos_max
        # The broker may take fewer at a time than before, and of a lost session it knows none.
        keep = self._limit if session_present else 0
        self._demote(list(self._in_flight)[keep:])
        for packet_id, message in self._in_flight.items():
            if message.released:
                out.append(wire.acknowledgement(wire.PUBREL, packet_id))
            else:
                wire.address_publish(message.packet, message.id_at, packet_id, duplicate=True)
                out.append(message.packet)
        self._fill(out)

    def suspend(self) -> None:
        """Keep everything and send nothing: the connection is gone."""
        self._limit = 0

    def _demote(self, packet_ids: list[int]) -> None:
        """Put messages back in front of the queue, as if never sent."""
        for packet_id in reversed(packet_ids):
            message = self._in_flight.pop(packet_id)
            self._ids.release(packet_id)
            message.released = False
            self._waiting.appendleft(message)

    def _keep(
        self,
        packet: bytearray,
        id_at: int,
        qos: int,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Let ``packet`` wait behind the others, if there is room."""
        if self.bytes + len(packet) > self._bytes_max:
            return False
        self.bytes += len(packet)
        self.offered += 1
        self._waiting.append(_Outgoing(packet, id_at, qos, self.offered, on_answer))
        return True

    def _fill(self, out: Out) -> None:
        while self._waiting and len(self._in_flight) < self._limit:
            message = self._waiting.popleft()
            if len(message.packet) > self._packet_bytes_max:
                self.oversized += 1
                self.bytes -= len(message.packet)
                continue
            if message.qos > self._qos_max:
                self.bytes -= len(message.packet)
                message.packet = wire.lower_qos(message.packet, message.id_at, self._qos_max)
                message.qos = self._qos_max
                if message.qos == 0:
                    out.append(message.packet)
                    continue
                self.bytes += len(message.packet)
            packet_id = self._ids.take()
            wire.address_publish(message.packet, message.id_at, packet_id, duplicate=False)
            self._in_flight[packet_id] = message
            out.append(message.packet)

    def _finish(self, packet_id: int, message: _Outgoing, reason: int) -> None:
        del self._in_flight[packet_id]
        self._ids.release(packet_id)
        self.bytes -= len(message.packet)
        if reason >= _ERROR:
            self.rejected += 1
            if self.first_rejection is None:
                topic = wire.publish_topic(message.packet)
                self.first_rejection = f"reason 0x{reason:02x} for a publication on {topic!r}"
        if message.on_answer is not None:
            message.on_answer(reason)
