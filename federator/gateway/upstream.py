"""What a client publishes at QoS 1 and 2, until a broker has it for good.

The client's packet ids go to its broker unchanged, for they are its own connection's there. So in
the steady state there is nothing to translate; there is only a note of each packet that is not
answered. When the broker is gone, the next one gets them again, after those that the lost broker
acknowledged and no agent took custody of (they bear ids of ours; the client knows nothing of it).
Of QoS 2 a client may be told no half of the handshake twice: what it has heard is remembered.

Source: OASIS MQTT 5.0, sections 4.3 and 4.4; docs/gateway.md.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from federator.gateway.wire import QOS, Kind, Reason, Version, again, only, publish_id, write_ack

RESEND_WINDOW: Final = 20
"""Publications sent again that may wait for an answer: Mosquitto's own bound on QoS 2."""

PACKET_ID_MAX: Final = 65_535

PASS: Final = b"as it came"
"""The packet goes on unchanged."""

SWALLOW: Final = b""


class Upstream:
    """Publications of one client on their way to its broker.

    Attributes:
        open: The client's publications pass; otherwise what the last broker did not get goes first.
        acknowledged: Packets that the broker has, for whoever keeps them until they are safe.
        acknowledged_again: Likewise, of those that an earlier broker had acknowledged before.
        bytes: Of what is kept here.
    """

    __slots__ = (
        "_in_flight",
        "_own",
        "_received",
        "_released",
        "_resend",
        "_told",
        "_version",
        "_window",
        "acknowledged",
        "acknowledged_again",
        "bytes",
        "open",
    )

    def __init__(self, version: Version) -> None:
        self.open = False
        self.acknowledged: list[bytes] = []
        self.acknowledged_again: list[bytes] = []
        self.bytes = 0
        self._version = version
        self._window = RESEND_WINDOW
        self._in_flight: dict[int, bytes] = {}  # the client's, in its order
        self._own: dict[int, bytes] = {}  # sent again by us
        self._told: set[int] = set()  # QoS 2: the client got its PUBREC
        self._released: set[int] = set()  # QoS 2: the client sent its PUBREL
        self._received: set[int] = set()  # QoS 2: this broker sent its PUBREC
        self._resend: deque[tuple[int, bytes]] | None = None

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

    def publish(self, packet_id: int, packet: bytes) -> None:
        """The client publishes ``packet``, which goes to the broker."""
        former = self._in_flight.get(packet_id)
        if former is not None:
            self.bytes -= len(former)
            self._told.discard(packet_id)  # who says it again wants to hear the answer again
        self._in_flight[packet_id] = packet
        self.bytes += len(packet)

    def has(self, packet_id: int) -> bool:
        """Whether the client published something under ``packet_id`` that is not answered."""
        return packet_id in self._in_flight

    def release(self, packet_id: int) -> bytes:
        """The client sent PUBREL: ``PASS`` or ``SWALLOW``."""
        if packet_id not in self._in_flight:
            return PASS  # of an earlier connection: its broker knows
        self._released.add(packet_id)
        return PASS if packet_id in self._received else SWALLOW

    def lose(self) -> None:
        """The broker is gone."""
        self.open = False
        self._received.clear()
        # What was to be sent again, and was not answered, is to be sent again.
        own = [*self._own.values(), *(p for i, p in self._resend or () if i not in self._in_flight)]
        self._resend = deque((0, packet) for packet in own) if own else None
        self._own.clear()

    def resume(self, kept: Iterable[bytes], *, receive_max: int, out: list[bytes]) -> None:
        """A broker without our session accepted the client.

        Args:
            kept: Packets the lost broker acknowledged, in order, which may be lost with it.
            receive_max: What the broker takes at a time.
            out: Packets for the broker.
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
            _, id_at = publish_id(packet, only(packet))
            queue.append((free, again(packet, id_at, free, duplicate=False)))
            free -= 1
        for packet_id, packet in self._in_flight.items():
            _, id_at = publish_id(packet, only(packet))
            queue.append((packet_id, again(packet, id_at, packet_id, duplicate=False)))
        self._resend = queue
        self._pump(out)

    def take_puback(self, packet_id: int) -> bool:
        """The usual answer, which simply passes: whether it was that."""
        if self._resend is not None or self._told:
            return False
        packet = self._in_flight.pop(packet_id, None)
        if packet is None:
            return False
        self.bytes -= len(packet)
        self.acknowledged.append(packet)
        return True

    def on_puback(self, packet_id: int, reason: int, out: list[bytes]) -> bytes:
        """The broker's word on a QoS 1 publication: what the client hears of it."""
        return self._finish(packet_id, reason < Reason.UNSPECIFIED, out)

    def on_pubcomp(self, packet_id: int, out: list[bytes]) -> bytes:
        """The end of a QoS 2 publication: what the client hears of it."""
        return self._finish(packet_id, True, out)

    def on_pubrec(self, packet_id: int, reason: int, out: list[bytes]) -> bytes:
        """The broker has a QoS 2 publication: what the client hears of it."""
        if reason >= Reason.UNSPECIFIED:
            heard = packet_id in self._told
            answer = self._finish(packet_id, False, out)
            if not heard:
                return answer
            # The client believes it is taken. It cannot be told otherwise until it releases it.
            return SWALLOW
        self._received.add(packet_id)
        if packet_id in self._own or packet_id in self._released:
            out.append(write_ack(Kind.PUBREL, packet_id, self._version))
            return SWALLOW
        if packet_id in self._told:
            return SWALLOW
        self._told.add(packet_id)
        return PASS

    def _finish(self, packet_id: int, taken: bool, out: list[bytes]) -> bytes:
        packet, answer = self._own.pop(packet_id, None), SWALLOW
        if packet is None:
            packet, answer = self._in_flight.pop(packet_id, None), PASS
            if packet is None:
                # Of an earlier connection of the client, or an answer to nothing.
                return PASS
            self.bytes -= len(packet)
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
            self._pump(out)
        return answer

    def _pump(self, out: list[bytes]) -> None:
        queue = self._resend
        assert queue is not None
        waiting = {packet_id for packet_id, _ in queue}
        sent = len(self._own) + sum(1 for each in self._in_flight if each not in waiting)
        while queue and sent < self._window:
            packet_id, packet = queue.popleft()
            if packet_id not in self._in_flight:
                self._own[packet_id] = packet
            out.append(packet)
            sent += 1
        if not queue and not self._own:
            self._resend = None
            self.open = True


def qos_of(packet: bytes) -> int:
    """The QoS of a PUBLISH."""
    return (packet[0] & QOS) >> 1
