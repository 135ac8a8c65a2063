"""The data plane of one simulated agent: the real frames, duplicate log and route tables.

Only the sockets are missing. A publication is a real PUBLISH packet whose payload is its number in
this world, so that the watchers can follow it.

Source: design section 3.4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import mqtt5

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.filters import matches
from federator.protocol.forwarding import Forwarder, Sends
from federator.protocol.frames import CUSTODY_FLAG, Frame, pack_label, unpack
from federator.protocol.types import BrokerId, Epoch

HOP_LIMIT = 255
"""The most a frame can say, so that the watchers see a loop before the limit hides it."""

NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Passage:
    """What one agent does with one frame.

    Attributes:
        hops: Links the copies will have travelled before the next one.
        sends: Next hops, each with the wire mask of the filters it must carry on.
        deliver: Publish the body on our broker.
        first: No copy came before.
        local: Which of the frame's filters our clients subscribe to, by position.
    """

    frame: Frame
    hops: int
    sends: Sends
    deliver: bool
    first: bool = True
    local: tuple[int, ...] = ()


class DataPlane:
    """Routes publications and frames as the runtime's data path does.

    Args:
        self_id: Our broker id.
        epoch: Our incarnation.

    Attributes:
        cover: What is subscribed on our broker for others.
    """

    def __init__(self, self_id: BrokerId, epoch: Epoch) -> None:
        self.forwarder = Forwarder()
        self.log = DuplicateLog()
        self.custody_log = DuplicateLog()  # frames under custody have numbers of their own
        self._self_id = self_id
        self._epoch = epoch
        self._seq = 0
        self.cover: tuple[str, ...] = ()

    def renew(self, epoch: Epoch) -> None:
        """Number frames from the start, under a newer epoch."""
        self._epoch = epoch
        self._seq = 0

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number of the next frame that is not under custody."""
        self._seq += 1
        return self._epoch, self._seq

    def routes_changed(self) -> None:
        """Subscribe on our broker what others want now."""
        change = self.forwarder.cover_change()
        if change.subscribe or change.unsubscribe:
            self.cover = tuple(self.forwarder.cover)

    def publish(self, topic: str, numbers: range) -> Passage | None:
        """A client of our broker publishes a batch on ``topic``; ``None`` when nobody wants it."""
        if not any(matches(filter, topic) for filter in self.cover):
            return None
        route = self.forwarder.route_topic(topic)
        if route is None or not route.sends:
            return None
        body = b"".join(packet_of(topic, number, 0) for number in numbers)
        epoch, seq = self.number()
        frame = Frame(
            flags=0,
            hops=0,
            hop_limit=HOP_LIMIT,
            sender=self._self_id,
            origin=self._self_id,
            epoch=epoch,
            seq=seq,
            origin_time_us=0,
            publications=len(numbers),
            keys=route.keys,
            mask=0,  # each send has its own
            body=memoryview(body),
        )
        return Passage(frame, 0, route.sends, deliver=False)

    def receive(self, payload: bytes) -> Passage | None:
        """A frame arrived on our broker; ``None`` when it brings nothing new."""
        return self.admit(unpack(payload))

    def admit(self, frame: Frame) -> Passage | None:
        """As ``receive``, for a frame that is unpacked."""
        log = self.custody_log if frame.flags & CUSTODY_FLAG else self.log
        first, new = log.admit(frame.origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask)
        if not first and not new:
            return None
        route = self.forwarder.route_frame(
            frame.keys, new, sender=frame.sender, origin=frame.origin
        )
        hops = frame.hops + 1
        sends = route.sends if hops < frame.hop_limit else ()
        return Passage(frame, hops, sends, first and route.deliver, first, route.local)

    def copy_for(self, passage: Passage, mask: bytes) -> bytes:
        """The copy of a passing frame that is responsible for ``mask``."""
        label = pack_label(passage.frame, hops=passage.hops, sender=self._self_id, mask=mask)
        return label + passage.frame.body


def packet_of(topic: str, number: int, qos: int, packet_id: int = 1) -> bytes:
    """The PUBLISH packet of a publication; ``packet_id`` is the broker's, at QoS 1."""
    payload = number.to_bytes(NUMBER_BYTES, "big")
    if not qos:
        return mqtt5.PublishPacket(topic, payload).write()
    quality = mqtt5.QoS.AT_LEAST_ONCE
    return mqtt5.PublishPacket(topic, payload, qos=quality, packet_id=packet_id).write()


def packets_in(body: bytes | memoryview) -> Iterator[mqtt5.PublishPacket]:
    """The packets of a body."""
    rest = memoryview(body)
    while rest:
        packet, size = mqtt5.read(rest)
        assert isinstance(packet, mqtt5.PublishPacket), "a body holds PUBLISH packets only"
        yield packet
        rest = rest[size:]


def number_of(packet: mqtt5.PublishPacket) -> int:
    """Which publication of this world a packet is."""
    return int.from_bytes(packet.payload, "big")


def publications_of(frame: Frame) -> Iterator[tuple[int, str, int]]:
    """The number, the topic and the QoS of each publication in the body."""
    for packet in packets_in(frame.body):
        yield number_of(packet), packet.topic, int(packet.qos)
