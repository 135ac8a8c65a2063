"""QoS 1 and 2 messages that we sent and the broker has not acknowledged yet.

A message waits in a queue, gets an identifier when the broker's Receive Maximum has room for it,
and is forgotten at PUBACK (QoS 1) or PUBCOMP (QoS 2; PUBREC turns it into a PUBREL). A lost
connection forgets nothing: if the session is still there, messages keep their identifiers and are
sent again with DUP; otherwise they are sent again as new ones. So a fault may duplicate a message,
but never lose it.

A broker that was killed restores the session that it saved last. That session may hold QoS 2
messages that we have finished since, under identifiers that we no longer use, or use for others;
Mosquitto counts them against our Receive Maximum, and answers messages beyond it with 0x97, or
hangs up. So on each connection we first release every identifier that it may hold and we do not.
And it may lack messages that we released: if it probably died, we release all, and send all again
from the start. A message answered with 0x97 waits again, in its old position, until the broker has
room.

Brokers forward a QoS 1 publication when it arrives, and a QoS 2 one when it is released. So we send
QoS 1 after the release of all QoS 2 before it on the same topic, or it would reach subscribers
first. That takes a round trip to the broker each time; other topics do not wait for it.

Pure: every method appends what must be sent to ``out``.

Source: OASIS MQTT 5.0, sections 4.3 (QoS), 4.4 (delivery retry) and 4.9 (flow control).
"""

from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federator.protocol.forwarding.publications import Place
from federator.runtime.mqtt import wire
from federator.runtime.mqtt.wire import Out

PACKET_ID_MAX = 65_535
PACKET_ID_USUAL = 512
"""While few are in use, identifiers stay below, and only these are released on a new connection:

Mosquitto drops answers while more than 1,000 wait to be sent.
"""

TAKEN_BYTES = 900
"""Shorter packets are never tried first: a broker that refused them could not take part."""

IN_FLIGHT_MAX = 65_000
"""Leaves identifiers for SUBSCRIBE and UNSUBSCRIBE, whatever the broker's Receive Maximum is."""

ID_BYTES = 2  # a packet identifier, which QoS 0 lacks

ERROR = 0x80  # reason codes from here on mean failure
QUOTA_EXCEEDED = 0x97


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What the broker grants in its CONNACK."""

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
        self._used.discard(packet_id)

    def __len__(self) -> int:
        return len(self._used)


@dataclass(slots=True, eq=False)
class _Outgoing:
    packet: bytearray
    id_at: int
    qos: int
    position: int
    on_answer: Callable[[int], None] | None = None
    released: bool = False  # PUBREC received, PUBREL sent


class OutboundWindow:
    """The messages in flight, and those that wait for room.

    Args:
        bytes_max: Bytes kept, in flight and waiting; messages beyond are refused.
    """

    def __init__(self, ids: PacketIds, *, bytes_max: int) -> None:
        self._ids = ids
        self._bytes_max = bytes_max
        self._in_flight: dict[int, _Outgoing] = {}  # in the order sent
        self._waiting: deque[_Outgoing] = deque()
        self._unreleased: Counter[str] = Counter()  # QoS 2 in flight without PUBREC, by topic
        self._limit = 0  # Receive Maximum; 0 while there is no connection
        self._held_back = False  # the broker had no room for what we sent last
        # QoS 2 in the broker's session, also from an earlier process
        self._released_to = PACKET_ID_USUAL
        self._packet_bytes_max = 0
        self._qos_max = 2
        self._trial: int | None = None  # all others wait for its answer
        self.taken_bytes = TAKEN_BYTES  # the longest packet that the broker is known to take
        self.offered = 0  # messages accepted so far: the last one's position
        self.bytes = 0
        # Called with each message that the broker refuses, or would, and the reason code.
        self.on_refused: Callable[[bytearray, int], None] = lambda _packet, _reason: None

    @property
    def in_flight(self) -> int:
        """How many messages hold an identifier."""
        return len(self._in_flight)

    @property
    def awaits_word(self) -> bool:
        """Whether a message offered now would wait for the answer to another one."""
        return self._trial is not None or bool(self._waiting)

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
            oldest = min(oldest, *(message.position for message in self._in_flight.values()))
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

        ``on_answer`` gets the reason code of the broker's final answer.
        """
        taken = self._keep(packet, id_at, qos, on_answer)
        self._fill(out)
        return taken

    def offer_run(self, run: bytes, places: Sequence[Place], out: Out) -> int:
        """Take charge of each packet at ``places`` of ``run``; return how many were accepted."""
        taken, view = 0, memoryview(run)  # one copy of each packet is enough: it may be long
        for start, end, id_at, qos in places:
            taken += self._keep(bytearray(view[start:end]), id_at - start, qos)
        self._fill(out)
        return taken

    def on_run_acknowledged(self, packet_ids: Sequence[int], out: Out) -> None:
        """Handle PUBACKs with success."""
        in_flight = self._in_flight
        for packet_id in packet_ids:
            message = in_flight.get(packet_id)
            if message is not None and message.qos == 1:
                self._finish(packet_id, message, 0)
        self._fill(out)

    def on_acknowledged(self, packet_id: int, reason: int, out: Out, *, qos: int) -> None:
        """Handle a PUBACK (``qos`` 1) or PUBCOMP (2): the broker has the message."""
        message = self._in_flight.get(packet_id)
        if message is None or message.qos != qos or message.released != (qos == 2):
            return
        self._answered(packet_id, message, reason, out)

    def on_too_large(self, packet_id: int, out: Out, *, qos: int) -> None:
        """Handle a PUBACK or PUBREC with "packet too large"."""
        if qos == 1:
            self.on_acknowledged(packet_id, wire.PACKET_TOO_LARGE, out, qos=1)
        else:
            self.on_received(packet_id, wire.PACKET_TOO_LARGE, out)

    def on_received(self, packet_id: int, reason: int, out: Out) -> None:
        """Handle a PUBREC: release the message, or forget it when the broker refused it."""
        message = self._in_flight.get(packet_id)
        if message is None or message.qos != 2:
            out.append(wire.unknown_release(packet_id))
            return
        self._let_pass(message)
        if reason >= ERROR:
            self._answered(packet_id, message, reason, out)
        else:
            message.released = True
            out.append(wire.acknowledgement(wire.PUBREL, packet_id))
            self._fill(out)

    def resume(
        self, limits: BrokerLimits, *, session_present: bool, out: Out, died: bool = False
    ) -> None:
        """On a new connection, resend what was in flight, then what waits.

        Args:
            session_present: The broker still knows our identifiers.
            died: It probably crashed since, so that it may know others than we think.
        """
        in_flight, self._held_back = self._in_flight, False
        self._limit = min(limits.receive_max, IN_FLIGHT_MAX)
        self._packet_bytes_max = limits.packet_bytes_max
        self._qos_max = limits.qos_max
        # The Receive Maximum may be lower than before; a lost session knows no identifiers, and one
        # that a crash brought back may know them for other messages: all go again from the start.
        keep = self._limit if session_present and not died else 0
        self._demote(list(self._in_flight)[keep:])
        if session_present:
            held = {number for number, message in in_flight.items() if message.qos == 2}
            ids = range(1, min(self._released_to, PACKET_ID_USUAL) + 1)
            out += (
                wire.acknowledgement(wire.PUBREL, number) for number in ids if number not in held
            )
        else:
            self._released_to = 0
        for packet_id, message in in_flight.items():
            if message.released:
                out.append(wire.acknowledgement(wire.PUBREL, packet_id))
            else:
                wire.address_publish(message.packet, message.id_at, packet_id, duplicate=True)
                out.append(message.packet)
        self._fill(out)

    def suspend(self) -> None:
        """Keep everything and send nothing: the connection is lost."""
        self._limit = 0

    def forget_tried(self) -> list[int]:
        """Forget the packets that were only tried; return the lengths of those in flight."""
        tried = [
            packet_id
            for packet_id, message in self._in_flight.items()
            if isinstance(message.packet, wire.TriedPacket)
        ]
        lengths = [len(self._in_flight[packet_id].packet) for packet_id in tried]
        self._demote(tried)
        self._trial = None
        for message in tuple(self._waiting):
            if isinstance(message.packet, wire.TriedPacket):
                self._waiting.remove(message)
                self.bytes -= len(message.packet)
        return lengths

    def _demote(self, packet_ids: list[int]) -> None:
        """Put messages back in front of the queue, as if never sent."""
        for packet_id in reversed(packet_ids):
            message = self._in_flight.pop(packet_id)
            self._ids.release(packet_id)
            self._let_pass(message)
            message.released = False
            self._waiting.appendleft(message)

    def _keep(
        self,
        packet: bytearray,
        id_at: int,
        qos: int,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Queue ``packet`` behind the others, if there is room."""
        if self.bytes + len(packet) > self._bytes_max:
            return False
        self.bytes += len(packet)
        self.offered += 1
        self._waiting.append(_Outgoing(packet, id_at, qos, self.offered, on_answer))
        return True

    def _fill(self, out: Out) -> None:
        while self._waiting and not self._held_back and self._limit and self._trial is None:
            message = self._waiting[0]
            if (plain := self._surely_taken(message)) is not None:
                # It waited for the answer to another one, and needs no try any longer: on a full
                # link all would wait for each other for ever.
                self._waiting.popleft()
                out.append(plain)
                self._end(message, 0)
                continue
            if len(self._in_flight) >= self._limit or self._would_pass(message):
                break
            self._waiting.popleft()
            if len(message.packet) > self._packet_bytes_max:
                self._end(message, wire.PACKET_TOO_LARGE)
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
            if message.qos == 2:
                self._released_to = max(self._released_to, packet_id)
                self._unreleased[wire.publish_topic(message.packet)] += 1
            wire.address_publish(message.packet, message.id_at, packet_id, duplicate=False)
            self._in_flight[packet_id] = message
            out.append(message.packet)
            if isinstance(message.packet, wire.TriedPacket):
                self._trial = packet_id

    def _would_pass(self, message: _Outgoing) -> bool:
        """Whether subscribers would get ``message`` before QoS 2 in flight on its topic."""
        if message.qos != 1 or not self._unreleased:
            return False
        return wire.publish_topic(message.packet) in self._unreleased

    def _let_pass(self, message: _Outgoing) -> None:
        """QoS 1 on the topic of ``message`` need not wait for it any longer."""
        if message.qos == 2 and not message.released:
            topic = wire.publish_topic(message.packet)
            self._unreleased[topic] -= 1
            if self._unreleased[topic] <= 0:
                del self._unreleased[topic]

    def _surely_taken(self, message: _Outgoing) -> bytearray | None:
        """The packet at QoS 0 that was to be tried, if the broker is by now known to accept it."""
        packet = message.packet
        if not isinstance(packet, wire.TriedPacket) or len(packet) - ID_BYTES > self.taken_bytes:
            return None
        plain = wire.lower_qos(packet, message.id_at, 0)
        return plain if len(plain) <= self.taken_bytes else None

    def go_another_way(self, tell: Callable[[], None], out: Out) -> None:
        """A tried packet is too long: call ``tell``, and send its packets before all that wait.

        The tried packets of the same ``tell`` are dropped.
        """
        waiting, self._waiting, self._trial = self._waiting, deque(), None
        others: list[_Outgoing] = []
        for message in waiting:
            if getattr(message.packet, "on_too_long", None) is tell:
                self.bytes -= len(message.packet)
            else:
                others.append(message)
        tell()
        for message in others:
            self.offered += 1
            message.position = self.offered
        self._waiting += others
        self._fill(out)

    def try_again(self, out: Out) -> None:
        """Some time has passed: send what the broker had no room for."""
        if self._held_back:
            self._held_back = False
            self._fill(out)

    def _answered(self, packet_id: int, message: _Outgoing, reason: int, out: Out) -> None:
        """Handle the broker's final answer to a message, or its lack of room."""
        if reason != QUOTA_EXCEEDED:
            self._finish(packet_id, message, reason)
            self._fill(out)
            return
        del self._in_flight[packet_id]
        self._ids.release(packet_id)
        self._trial = None if packet_id == self._trial else self._trial
        message.released = False
        self.on_refused(message.packet, reason)
        self._waiting.insert(bisect(self._waiting, message.position, key=_position), message)
        self._held_back = True

    def _finish(self, packet_id: int, message: _Outgoing, reason: int) -> None:
        del self._in_flight[packet_id]
        self._ids.release(packet_id)
        if packet_id == self._trial and reason != wire.PACKET_TOO_LARGE:
            self._trial = None
        self._held_back &= reason >= ERROR
        self._end(message, reason)

    def _end(self, message: _Outgoing, reason: int) -> None:
        """Forget a message: the broker has it, or never will."""
        self.bytes -= len(message.packet)
        if reason >= ERROR:
            self.on_refused(message.packet, reason)
        if message.on_answer is not None:
            message.on_answer(reason)


def _position(message: _Outgoing) -> int:
    return message.position
