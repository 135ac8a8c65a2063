"""What a client publishes at QoS 1 and 2, until a broker has it for good.

The client's packet ids go to its broker unchanged, for they are its own connection's there. So in
the steady state there is nothing to translate; there is only a note of each packet that is not
answered. When the broker is gone, the next one gets them again, after those that the lost broker
acknowledged and no agent took custody of (they bear ids of ours; the client knows nothing of it).
Of QoS 2 a client may be told no half of the handshake twice: what it has heard is remembered.

Source: OASIS MQTT 5.0, 4.3 and 4.4; docs/gateway.md.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import Kind, Packet, Reason, Version

RESEND_WINDOW: Final = 20
"""Publications sent again that may wait for an answer: Mosquitto's own bound on QoS 2."""

PACKET_ID_MAX: Final = 65_535

PUBLISHED_TOPICS_MAX: Final = 1_024
"""Topics of one client that are told in session reports; more are not."""

PUBLISHED_TOPIC_CHARACTERS_MAX: Final = 256
"""Longer ones are not told."""

PASS: Final = b"as it came"
"""The packet goes on unchanged."""

SWALLOW: Final = b""


@dataclass(slots=True, eq=False)
class Backlog:
    """What a client sends while it has no broker: it waits here, in order, until it has one."""

    packets: deque[bytes] = field(default_factory=deque)
    bytes_held: int = 0
    leaving: bool = False  # it said goodbye, behind what waits

    def add(self, packet: bytes, kind: int) -> None:
        """Let ``packet`` wait."""
        self.leaving = self.leaving or kind == Kind.DISCONNECT
        self.packets.append(packet)
        self.bytes_held += len(packet)

    def lets_pass(self, block: bytes, packet: Packet, version: Version, up: "Upstream") -> bool:
        """Whether ``packet`` need not wait behind those that wait."""
        match packet[0] & 0xF0:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                return True  # of deliveries, whose order is their own
            case Kind.PUBREL:
                return up.has(wire.read_ack(block, packet, version)[0])
            case Kind.DISCONNECT:
                return not self.packets
            case _:
                return False

    def take(self) -> bytes:
        """What waits longest, which then waits no more."""
        packet = self.packets.popleft()
        self.bytes_held -= len(packet)
        return packet

    def clear(self) -> None:
        """Let nothing wait."""
        self.packets.clear()
        self.bytes_held = 0


@dataclass(slots=True, eq=False)
class Upstream:
    """Publications of one client on their way to its broker.

    Attributes:
        topics: On which the client published, for session reports.
        open: Whether publications pass; otherwise what the last broker did not get goes first.
        acknowledged: Packets that the broker has, for whoever keeps them until they are safe.
        acknowledged_again: Likewise, of those that an earlier broker had acknowledged before.
    """

    version: Version
    open: bool = False
    acknowledged: list[bytes] = field(default_factory=list)
    acknowledged_again: list[bytes] = field(default_factory=list)
    bytes_held: int = 0
    topics: set[str] = field(default_factory=set)
    _window: int = RESEND_WINDOW
    _in_flight: dict[int, bytes] = field(default_factory=dict)  # the client's, in its order
    _own: dict[int, bytes] = field(default_factory=dict)  # sent again by us
    _told: set[int] = field(default_factory=set)  # QoS 2: the client got its PUBREC
    _released: set[int] = field(default_factory=set)  # QoS 2: the client sent its PUBREL
    _received: set[int] = field(default_factory=set)  # QoS 2: this broker sent its PUBREC
    _resend: deque[tuple[int, bytes]] | None = None
    _sent_again: int = 0  # of these, and not answered

    @property
    def in_flight(self) -> int:
        """Publications that are not answered."""
        return len(self._in_flight) + len(self._own) + len(self._resend or ())

    @property
    def waits_for_client(self) -> bool:
        """Whether the broker has answered everything, and the client is to release it (QoS 2)."""
        return len(self._told - self._released) == len(self._in_flight)

    @property
    def ids(self) -> Iterable[int]:
        """Packet ids in use."""
        return (*self._in_flight, *self._own)

    def note_topic(self, topic: str) -> None:
        """Remember a topic that the client publishes on, as far as reports have room for it."""
        short = len(topic) <= PUBLISHED_TOPIC_CHARACTERS_MAX
        if short and len(self.topics) < PUBLISHED_TOPICS_MAX:
            self.topics.add(topic)

    def publish(self, packet_id: int, packet: bytes) -> None:
        """Keep ``packet``, which the client publishes, until the broker has answered."""
        former = self._in_flight.get(packet_id)
        if former is not None:
            self.bytes_held -= len(former)
            self._told.discard(packet_id)  # who says it again wants to hear the answer again
        self._in_flight[packet_id] = packet
        self.bytes_held += len(packet)

    def has(self, packet_id: int) -> bool:
        """Whether the client published something under ``packet_id`` that is not answered."""
        return packet_id in self._in_flight

    def release(self, packet_id: int) -> bytes:
        """Take the client's PUBREL; return what the broker hears of it."""
        if packet_id not in self._in_flight:
            return PASS  # of an earlier connection: its broker knows
        self._released.add(packet_id)
        return PASS if packet_id in self._received else SWALLOW

    def lose(self) -> None:
        """Keep everything for the next broker: this one is gone."""
        self.open = False
        self._received.clear()
        # What was to be sent again, and was not answered, is to be sent again.
        own = [*self._own.values(), *(p for i, p in self._resend or () if i not in self._in_flight)]
        self._resend = deque((0, packet) for packet in own) if own else None
        self._own.clear()

    def resume(self, kept: Iterable[bytes], *, receive_max: int, out: list[bytes]) -> None:
        """Send again what is not answered: a broker without our session accepted the client.

        Packets in ``kept`` the lost broker acknowledged, in this order; they may be lost with it.
        """
        self._window = min(RESEND_WINDOW, receive_max)
        before = [packet for _, packet in self._resend or ()]
        queue: deque[tuple[int, bytes]] = deque()
        free = PACKET_ID_MAX
        for packet in (*before, *kept):
            while free in self._in_flight:
                free -= 1
            if free < 1:  # 65,535 in flight: nothing sensible is left to do
                break
            queue.append((free, wire.again(packet, free)))
            free -= 1
        for packet_id, packet in self._in_flight.items():
            queue.append((packet_id, wire.again(packet, packet_id)))
        self._resend, self._sent_again = queue, 0
        self._pump(out)

    def take_puback(self, packet_id: int) -> bool:
        """Take the usual PUBACK, which simply passes; tell whether it was that."""
        if self._resend is not None or self._told:
            return False
        packet = self._in_flight.pop(packet_id, None)
        if packet is None:
            return False
        self.bytes_held -= len(packet)
        self.acknowledged.append(packet)
        return True

    def on_pubrec(self, packet_id: int, reason: int, out: list[bytes]) -> bytes:
        """Take the broker's PUBREC; return what the client hears of it."""
        if reason >= Reason.UNSPECIFIED:
            heard = packet_id in self._told
            answer = self.finish(packet_id, False, out)
            if not heard:
                return answer
            # The client believes it is taken. It cannot be told otherwise until it releases it.
            return SWALLOW
        self._received.add(packet_id)
        if packet_id in self._own or packet_id in self._released:
            out.append(wire.write_ack(Kind.PUBREL, packet_id, self.version))
            return SWALLOW
        if packet_id in self._told:
            return SWALLOW
        self._told.add(packet_id)
        return PASS

    def finish(self, packet_id: int, taken: bool, out: list[bytes]) -> bytes:
        """Take the broker's last word: whether it has taken it; return what the client hears."""
        packet, answer = self._own.pop(packet_id, None), SWALLOW
        if packet is None:
            packet, answer = self._in_flight.pop(packet_id, None), PASS
            if packet is None:
                # Of an earlier connection of the client, or an answer to nothing.
                return PASS
            self.bytes_held -= len(packet)
            if self._told:
                self._told.discard(packet_id)
                self._released.discard(packet_id)
            if taken:
                self.acknowledged.append(packet)
        elif taken:
            self.acknowledged_again.append(packet)
        if self._received:
            self._received.discard(packet_id)
        if self._resend is not None:
            self._sent_again -= 1
            self._pump(out)
        return answer

    def _pump(self, out: list[bytes]) -> None:
        queue = self._resend
        assert queue is not None
        while queue and self._sent_again < self._window:
            packet_id, packet = queue.popleft()
            if packet_id not in self._in_flight:
                self._own[packet_id] = packet
            out.append(packet)
            self._sent_again += 1
        if not queue and not self._own:
            self._resend = None
            self.open = True
