"""The data plane at work: publications of our clients out, frames of other agents in.

All PUBLISHes of one socket read come at once. Those of our clients are sorted into batches by
route, and each batch becomes one frame; runs of packets with one route are never taken apart. A
frame from another agent is delivered once, written to our broker as it came, and carried on under
a new label. What decides is in ``protocol``; what counts here is to touch bytes rarely.

Source: design section 3.4; docs/protocol.md section 8.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Forwarder, Sends, TopicRoute
from federator.protocol.frames import Frame, pack_label, unpack
from federator.protocol.link_gates import LinkGates
from federator.protocol.publications import RunChecker, packets_of, variable_byte_integer
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.data_counters import DataCounters, Delays
from federator.runtime.gathering import GAP_S, Batch, OpenBatches, Pace, RouteBatches

FRAME_BYTES_MAX = 262_144
HOP_LIMIT = 64
COMPLAINT_GAP_S = 60.0
SENDER_LINGER_S = 10.0
"""How long frames of a neighbour are taken after its link went down: they may be on their way."""

_QOS_BITS = 0x06

_log = structlog.get_logger()


class DataLink(Protocol):
    """What the data path needs of a connection to a broker. Methods tell whether it was taken."""

    def write_packets(self, parts: Sequence[bytes | memoryview], count: int) -> bool:
        """Write a run of ready-made QoS 0 PUBLISH packets."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 or 2 packet."""


class DataPath:
    """The data plane of one agent.

    Args:
        self_id: Our id.
        epoch: Our epoch.
        federation: The federation's name.
        forwarder: Where publications go. The control plane changes it.
        duplicates: Which frames were here before.
        gates: What may cross the link to a neighbour.
        land: What is published on our broker instead of a run that arrived.
        frame_bytes_max: Longest body of a frame we make; one longer publication travels alone.
        hop_limit: Links a frame of ours may travel, 1 to 255.
        wall_clock_us: Microseconds since 1970.

    Attributes:
        local: The data connection to our own broker, which is also where ``on_publishes`` comes
            from. ``None`` until the application has made it.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        epoch: Epoch,
        federation: str,
        forwarder: Forwarder,
        duplicates: DuplicateLog | None = None,
        gates: LinkGates | None = None,
        land: Callable[[bytes], bytes] = lambda run: run,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        hop_limit: int = HOP_LIMIT,
        wall_clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        if not 1 <= hop_limit <= 255:
            raise ValueError(f"hop_limit must be 1 to 255, got {hop_limit}")
        self.local: DataLink | None = None
        self.forwarder = forwarder
        self.counters = DataCounters()
        self.delays = Delays()
        self.data_topic = f"$fed/{federation}/data"
        self._self_id = self_id
        self._seq = 0
        self._own = Frame(  # filled in again for each frame we make
            acknowledged=False,
            hops=0,
            hop_limit=hop_limit,
            sender=self_id,
            origin=self_id,
            epoch=epoch,
            seq=0,
            origin_time_us=0,
            publications=0,
            keys=b"",
            mask=0,
            body=memoryview(b""),
        )
        self._duplicates = DuplicateLog() if duplicates is None else duplicates
        self._gates = gates or LinkGates()
        self._land = land
        self._frame_bytes_max = frame_bytes_max
        self._wall_clock_us = wall_clock_us
        self._links: dict[BrokerId, DataLink] = {}
        self._heard_until_s: dict[BrokerId, float] = {}  # whose frames are taken; monotonic
        self._open = OpenBatches()
        self._pace = Pace()
        self._gap: asyncio.TimerHandle | None = None
        self._checker = RunChecker()
        topic = self.data_topic.encode()
        self._topic_field = len(topic).to_bytes(2, "big") + topic
        self._complained_at_s = -COMPLAINT_GAP_S

    @property
    def origins(self) -> int:
        """How many origins the duplicate window remembers."""
        return len(self._duplicates)

    def reach(self, neighbour: BrokerId, link: DataLink | None) -> None:
        """Send what is meant for ``neighbour`` over ``link``; ``None``: it cannot be reached."""
        if link is None:
            self._links.pop(neighbour, None)
        else:
            self._links[neighbour] = link
        self.hear(neighbour, link is not None)

    def hear(self, neighbour: BrokerId, up: bool) -> None:
        """Take frames that ``neighbour`` sends: from now on, or for a little while still.

        Anybody may publish on our broker, and a frame changes the duplicate window for good.
        """
        now_s = time.monotonic()
        if up:
            self._heard_until_s[neighbour] = math.inf
        elif self._heard_until_s.get(neighbour) == math.inf:
            self._heard_until_s[neighbour] = now_s + SENDER_LINGER_S
            for gone in [n for n, until_s in self._heard_until_s.items() if until_s < now_s]:
                del self._heard_until_s[gone]

    def set_route(self, filter: str, route: FilterRoute | None) -> None:
        """Replace the route of ``filter``; ``None`` forgets it."""
        for other in self.forwarder.set_route(filter, route):
            _log.warning("filter.key_collision", filter=filter, other=other)

    def renew_epoch(self, epoch: Epoch) -> None:
        """Number the frames of a new epoch from 1."""
        self._own.epoch = epoch
        self._seq = 0

    def on_publishes(
        self, link: object, chunk: memoryview, publishes: Sequence[tuple[PublishPacket, int, int]]
    ) -> None:
        """Take all PUBLISHes of one socket read of the data connection.

        Args:
            link: The data connection to our own broker.
            chunk: What was read. Not kept.
            publishes: The packets, and where each stands in ``chunk``.
        """
        data_topic = self.data_topic
        if len(publishes) == 1 and not self._open.filled:
            packet, start, end = publishes[0]
            if packet.topic == data_topic:
                self._on_frame(packet.payload)
            else:
                self._on_publication(packet.topic, chunk[start:end])
            return
        frame_bytes_max = self._frame_bytes_max
        seen: dict[str, RouteBatches | None] = {}
        batch: Batch | None = None
        run_start = run_end = run_count = 0
        for packet, start, end in publishes:
            topic = packet.topic
            if topic in seen:
                batches = seen[topic]
            elif topic == data_topic:
                self._on_frame(packet.payload)
                continue
            else:
                route = self.forwarder.route_topic(topic)
                batches = seen[topic] = None if route is None else self._open.of(route)
            if batches is None:
                self.counters.unwanted += 1
                continue
            into = batches.acknowledged if chunk[start] & _QOS_BITS else batches.plain
            if into is batch and start == run_end and end - run_start <= frame_bytes_max:
                run_end = end
                run_count += 1
                continue
            if batch is not None:
                self._add(batch, chunk[run_start:run_end], run_count)
            batch, run_start, run_end, run_count = into, start, end, 1
        if batch is not None:
            self._add(batch, chunk[run_start:run_end], run_count)
            self._flush_or_gather(self._pace.is_busy(time.monotonic()))

    def flush(self) -> None:
        """Send what waits for more to come. To be called before the agent leaves."""
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None
        for batch in self._open.filled:
            self._flush(batch)
        self._open.clear()

    def _on_publication(self, topic: str, packet: memoryview) -> None:
        """Take a publication that came alone and finds no batch open: the way of the least delay.

        Args:
            topic: Where it was published.
            packet: All of it. Not kept.
        """
        route = self.forwarder.route_topic(topic)
        if route is None:
            self.counters.unwanted += 1
            return
        acknowledged = packet[0] & _QOS_BITS != 0
        busy = self._pace.is_busy(time.monotonic())
        if busy:
            batches = self._open.of(route)
            self._add(batches.acknowledged if acknowledged else batches.plain, packet, 1)
            self._flush_or_gather(busy)
        else:
            self.counters.publications_in += 1
            self._make_frame(route, (packet,), len(packet), 1, acknowledged=acknowledged)

    def _flush_or_gather(self, busy: bool) -> None:
        """End a read: flush at once when idle, within ``GAP_S`` when reads come thick and fast."""
        if (self._gap is None and not busy) or self._open.keep() > self._frame_bytes_max:
            self.flush()
        elif self._gap is None:
            self._gap = asyncio.get_running_loop().call_later(GAP_S, self.flush)

    def _add(self, batch: Batch, run: memoryview, count: int) -> None:
        """Add a run to a batch, which becomes a frame first when there is no room."""
        self.counters.publications_in += count
        if batch.size + len(run) > self._frame_bytes_max:
            self._flush(batch)
        self._open.add(batch, run, count)

    def _flush(self, batch: Batch) -> None:
        """Send what ``batch`` holds as one frame, and empty it."""
        if not batch.count:
            return
        self._make_frame(
            batch.route, batch.parts, batch.size, batch.count, acknowledged=batch.acknowledged
        )
        batch.parts = []
        batch.size = batch.count = 0

    def _make_frame(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        *,
        acknowledged: bool,
    ) -> None:
        """Send ``count`` publications of our clients, ``size`` bytes in all, as one frame."""
        if not route.sends:
            self.counters.no_route += count
            return
        self._seq += 1
        self.counters.publications_out += count
        frame = self._own
        frame.acknowledged = acknowledged
        frame.seq = self._seq
        frame.origin_time_us = self._wall_clock_us()
        frame.publications = count
        frame.keys = route.keys
        self._send(frame, 0, route.sends, parts, size)

    def _on_frame(self, payload: bytes) -> None:
        """Deliver a frame, carry it on, or drop it."""
        counters = self.counters
        counters.frames_in += 1
        counters.frame_bytes_in += len(payload)
        try:
            frame = unpack(payload)
        except DecodeError as error:
            self._complain(error)
            return
        heard_until_s = self._heard_until_s.get(frame.sender, 0.0)
        if heard_until_s != math.inf and heard_until_s <= time.monotonic():
            counters.frames_of_strangers += 1
            return
        origin = frame.origin
        if origin == self._self_id:
            self._suppress(frame)
            return
        if self._gates.active:
            let_in = self._gates.incoming(frame)
            if let_in is None:
                return
            frame = let_in
        first, new = self._duplicates.admit(
            origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask
        )
        if not first and not new:
            self._suppress(frame)
            return
        route = self.forwarder.route_frame(frame.keys, new, sender=frame.sender, origin=origin)
        counters.unknown_filters += route.unknown
        if first and route.deliver:
            self._deliver(frame)
            self.delays.note(origin, frame.hops + 1, self._wall_clock_us() - frame.origin_time_us)
        if not route.sends:
            return
        if frame.hops + 1 >= frame.hop_limit:
            counters.hop_limit_exceeded += 1
            return
        counters.relayed += self._send(
            frame, frame.hops + 1, route.sends, [frame.body], len(frame.body)
        )

    def _suppress(self, frame: Frame) -> None:
        self.counters.duplicate_frames += 1
        self.counters.duplicates_suppressed += frame.publications

    def _deliver(self, frame: Frame) -> None:
        """Publish the body of ``frame`` on our own broker."""
        run, count, taken = bytes(frame.body), frame.publications, 0
        try:
            places = self._checker.check(run, acknowledged=frame.acknowledged, publications=count)
            if (landed := self._land(run)) is not run:
                run, count = landed, len(packets_of(landed))
                places = self._checker.check(
                    run, acknowledged=frame.acknowledged, publications=count
                )
                if not count:
                    return
        except DecodeError as error:
            self._complain(error)
            return
        local = self.local
        if local is None:
            pass
        elif frame.acknowledged:
            for start, end, id_at, qos in places:
                taken += local.publish_packet(bytearray(run[start:end]), id_at - start, qos)
        elif local.write_packets([run], count):
            taken = count
        self.counters.delivered_publications += taken
        self.counters.dropped += count - taken

    def _send(
        self, frame: Frame, hops: int, sends: Sends, parts: Sequence[bytes | memoryview], size: int
    ) -> int:
        """Send copies of ``frame`` to the next hops; return publications sent, of all copies."""
        sent, count, whole = 0, frame.publications, (frame, parts, size)
        for hop, mask in sends:
            if self._gates.active:
                frame, parts, size = whole
                let_out = self._gates.outgoing(hop, frame, parts)
                if let_out is None:
                    continue
                if let_out is not frame:
                    frame, parts, size = let_out, (let_out.body,), len(let_out.body)
                count = frame.publications
            link = self._links.get(hop)
            if link is None:
                self.counters.dropped += count
                continue
            label = pack_label(frame, hops=hops, sender=self._self_id, mask=mask)
            if frame.acknowledged:
                taken = self._send_acknowledged(link, label, parts, size)
            else:
                field = self._topic_field
                length = variable_byte_integer(len(field) + 1 + len(label) + size)
                taken = link.write_packets((b"\x30", length, field, b"\0", label, *parts), 1)
            if taken:
                sent += count
                self.counters.frames_out += 1
                self.counters.frame_bytes_out += len(label) + size
            else:
                self.counters.dropped += count
        return sent

    def _send_acknowledged(
        self, link: DataLink, label: bytes, parts: Sequence[bytes | memoryview], size: int
    ) -> bool:
        field = self._topic_field
        length = variable_byte_integer(len(field) + 3 + len(label) + size)
        packet = bytearray().join((b"\x32", length, field, b"\0\0\0", label, *parts))
        return link.publish_packet(packet, 1 + len(length) + len(field), 1)

    def _complain(self, error: DecodeError) -> None:
        """Count a malformed frame; say so at most once per ``COMPLAINT_GAP_S``."""
        self.counters.malformed_frames += 1
        now_s = time.monotonic()
        if now_s - self._complained_at_s >= COMPLAINT_GAP_S:
            self._complained_at_s = now_s
            _log.warning(
                "frame.malformed", reason=str(error), so_far=self.counters.malformed_frames
            )
