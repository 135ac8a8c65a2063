"""What stands around an agent's data plane here: packets that can be followed, and connections.

The data plane is the daemon's own. A publication is a real PUBLISH packet whose payload is its
number in this world, so that the watchers can follow it.
"""

from collections.abc import Callable, Iterator, Sequence

import mqtt5
from mqtt5 import PublishPacket

from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import packets_in

FEDERATION = "fed"

HOP_LIMIT = 255
"""The most a frame can say, so that the watchers see a loop before the limit hides it."""

NUMBER_BYTES = 8
MUCH_BYTES = 1 << 30


class NeighbourLink:
    """A connection to a neighbour's broker, as the data plane sees it.

    ``send`` takes the payload of a frame and says whether there is a connection.
    """

    room = True
    queued_bytes = unacknowledged = 0

    def __init__(self, send: Callable[[bytes], bool], is_clogged: Callable[[], bool]) -> None:
        self._send = send
        self._is_clogged = is_clogged

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent."""
        return not self._is_clogged()

    @property
    def urgent_bytes(self) -> int:
        """Much, while the way is clogged."""
        return MUCH_BYTES if self._is_clogged() else 0

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Send the frame that a PUBLISH brings."""
        [packet] = packets_in(b"".join(parts))
        return self._send(packet.payload)

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Frames are published at QoS 0."""
        raise AssertionError("frames are published at QoS 0")


class LocalLink:
    """The data connection to a broker whose clients are imagined: what arrives is told."""

    room = idle = True
    queued_bytes = urgent_bytes = unacknowledged = 0

    def __init__(self, delivered: Callable[[PublishPacket], None]) -> None:
        self._delivered = delivered

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Publish a run of QoS 0."""
        for packet in packets_in(b"".join(parts)):
            self._delivered(packet)
        return True

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish one at QoS 1."""
        return self.write_packets([bytes(packet)], 1)


def packet_of(
    topic: str, number: int, qos: int, packet_id: int = 1, *, duplicate: bool = False
) -> bytes:
    """The PUBLISH packet of a publication; ``packet_id`` is the broker's, at QoS 1."""
    payload = number.to_bytes(NUMBER_BYTES, "big")
    if not qos:
        return PublishPacket(topic, payload).write()
    once = mqtt5.QoS.AT_LEAST_ONCE
    packet = PublishPacket(topic, payload, qos=once, packet_id=packet_id, duplicate=duplicate)
    return packet.write()


def number_of(packet: PublishPacket) -> int:
    """Which publication of this world a packet is."""
    return int.from_bytes(packet.payload, "big")


def publications_of(frame: Frame) -> Iterator[tuple[int, str, int]]:
    """The number, the topic and the QoS of each publication in the body."""
    for packet in packets_in(frame.body):
        yield number_of(packet), packet.topic, int(packet.qos)
