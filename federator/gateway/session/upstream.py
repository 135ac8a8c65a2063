"""A client's QoS 1 and 2 publications, until a broker has acknowledged them for good.

The client's packet ids are sent to its broker unchanged, for the client's connection there is its
own. So in the steady state nothing is translated; we only note each unacknowledged packet. When the
broker is gone, the next one gets these again, after those that the lost broker acknowledged and no
agent took into custody (with ids of ours, unknown to the client). At QoS 2 the client must get no
half of the handshake twice, so we remember which half it got.

Source: OASIS MQTT 5.0, 4.3 and 4.4; docs/gateway.md.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import Kind, Packet, Reason, Version

RESEND_WINDOW: Final = 20
"""Repeated publications that may await an acknowledgement: Mosquitto's own bound on QoS 2."""

PACKET_ID_MAX: Final = 65_535

PUBLISHED_TOPICS_MAX: Final = 1_024
"""Topics of one client in session reports; more are left out."""

PUBLISHED_TOPIC_CHARACTERS_MAX: Final = 256
"""Longer topics are left out."""

PASS: Final = b"as it came"
"""The packet is forwarded unchanged."""

SWALLOW: Final = b""


@dataclass(slots=True, eq=False)
class Backlog:
    """What a client sends while it has no broker, in order."""

    packets: deque[bytes] = field(default_factory=deque)
    bytes_held: int = 0
    leaving: bool = False  # a DISCONNECT waits at the end

    def add(self, packet: bytes, kind: int) -> None:
        """Append ``packet``."""
        self.leaving = self.leaving or kind == Kind.DISCONNECT
        self.packets.append(packet)
        self.bytes_held += len(packet)

    def lets_pass(self, block: bytes, packet: Packet, version: Version, up: "Upstream") -> bool:
        """Whether ``packet`` need not wait behind earlier ones."""
        match packet[0] & 0xF0:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                return True  # they acknowledge deliveries, whose order is their own
            case Kind.PUBREL:
                return up.has(wire.read_ack(block, packet, version)[0])
            case Kind.DISCONNECT:
                return not self.packets
            case _:
                return False

    def take(self) -> bytes:
        """Remove and return the oldest packet."""
        packet = self.packets.popleft()
        self.bytes_held -= len(packet)
        return packet

    def clear(self) -> None:
        self.packets.clear()
        self.bytes_held = 0


@dataclass(slots=True, eq=False)
class Upstream:
    """Publications of one client on their way to its broker.

    Attributes:
        topics: Topics the client published on, for session reports.
        open: Whether new publications pass; otherwise what the last broker did not get goes first.
        acknowledged: Packets that the broker acknowledged; the caller keeps them until they are
            safe.
        acknowledged_again: The same for those that an earlier broker had acknowledged before.
    """

    version: Version
    open: bool = False
    acknowledged: list[bytes] = field(default_factory=list)
    acknowledged_again: list[bytes] = field(default_factory=list)
    bytes_held: int = 0
    topics: set[str] = field(default_factory=set)
    _window: int = RESEND_WINDOW
    _in_flight: dict[int, bytes] = field(default_factory=dict)  # the client's, in its order
    _own: dict[int, bytes] = field(default_factory=dict)  # repeated with ids of ours
    _told: set[int] = field(default_factory=set)  # QoS 2: the client got its PUBREC
    _released: set[int] = field(default_factory=set)  # QoS 2: the client sent its PUBREL
    _received: set[int] = field(default_factory=set)  # QoS 2: this broker sent its PUBREC
    _resend: deque[tuple[int, bytes]] | None = None
    _sent_again: int = 0  # of these, sent and unacknowledged

    @property
    def in_flight(self) -> int:
        """Publications without their last acknowledgement."""
        return len(self._in_flight) + len(self._own) + len(self._resend or ())

    @property
    def waits_for_client(self) -> bool:
        """Whether only PUBRELs of the client are missing (QoS 2)."""
        return len(self._told - self._released) == len(self._in_flight)

    @property
    def ids(self) -> Iterable[int]:
        """Packet ids in use."""
        return (*self._in_flight, *self._own)

    def note_topic(self, topic: str) -> None:
        """Remember a topic that the client publishes on, within the limits of reports."""
        short = len(topic) <= PUBLISHED_TOPIC_CHARACTERS_MAX
        if short and len(self.topics) < PUBLISHED_TOPICS_MAX:
            self.topics.add(topic)

    def publish(self, packet_id: int, packet: bytes) -> None:
        """Keep ``packet``, a publication of the client, until it is acknowledged."""
        former = self._in_flight.get(packet_id)
        if former is not None:
            self.bytes_held -= len(former)
            self._told.discard(packet_id)  # a client that repeats it expects the answer again
        self._in_flight[packet_id] = packet
        self.bytes_held += len(packet)

    def has(self, packet_id: int) -> bool:
        """Whether a publication with this ``packet_id`` is unacknowledged."""
        return packet_id in self._in_flight

    def release(self, packet_id: int) -> bytes:
        """Take the client's PUBREL; return what to send to the broker."""
        if packet_id not in self._in_flight:
            return PASS  # of an earlier connection: its broker has it
        self._released.add(packet_id)
        return PASS if packet_id in self._received else SWALLOW

    def lose(self) -> None:
        """Keep everything for the next broker: this one is gone."""
        self.open = False
        self._received.clear()
        # Repeated packets without an acknowledgement are to be repeated once more.
        own = [*self._own.values(), *(p for i, p in self._resend or () if i not in self._in_flight)]
        self._resend = deque((0, packet) for packet in own) if own else None
        self._own.clear()

    def resume(self, kept: Iterable[bytes], *, receive_max: int, out: list[bytes]) -> None:
        """Repeat what is unacknowledged: a broker without our session accepted the client.

        ``kept``: packets the lost broker acknowledged, in this order; they may be lost with it.
        """
        self._window = min(RESEND_WINDOW, receive_max)
        before = [packet for _, packet in self._resend or ()]
        queue: deque[tuple[int, bytes]] = deque()
        free = PACKET_ID_MAX
        for packet in (*before, *kept):
            while free in self._in_flight:
                free -= 1
            if free < 1:  # 65,535 in flight: there is no id left
                break
            queue.append((free, wire.again(packet, free)))
            free -= 1
        for packet_id, packet in self._in_flight.items():
            queue.append((packet_id, wire.again(packet, packet_id)))
        self._resend, self._sent_again = queue, 0
        self._pump(out)

    def take_puback(self, packet_id: int) -> bool:
        """Take a plain PUBACK, which is forwarded; return whether it was one."""
        if self._resend is not None or self._told:
            return False
        packet = self._in_flight.pop(packet_id, None)
        if packet is None:
            return False
        self.bytes_held -= len(packet)
        self.acknowledged.append(packet)
        return True

    def on_pubrec(self, packet_id: int, reason: int, out: list[bytes]) -> bytes:
        """Take the broker's PUBREC; return what to send to the client."""
        if reason >= Reason.UNSPECIFIED:
            got_pubrec = packet_id in self._told
            answer = self.finish(packet_id, False, out)
            if not got_pubrec:
                return answer
            # The client got a PUBREC before. It cannot learn of the refusal until it sends PUBREL.
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
        """Take the last acknowledgement, positive if ``taken``; return what the client gets."""
        packet, answer = self._own.pop(packet_id, None), SWALLOW
        if packet is None:
            packet, answer = self._in_flight.pop(packet_id, None), PASS
            if packet is None:
                # Of an earlier connection of the client, or for nothing.
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
