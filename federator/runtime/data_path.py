"""The data plane at work: publications of our clients out, frames of other agents in.

All PUBLISHes of one socket read come at once. Those of our clients are sorted into batches by
route, and each batch becomes one frame; runs of packets with one route are never taken apart. A
frame from another agent is delivered once, written to our broker as it came, and carried on under
a new label. What decides is in ``protocol``; what counts here is to touch bytes rarely.

Source: design section 3.4; docs/protocol.md section 8.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.custody import HELD_BYTES_MAX
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Forwarder, FrameRoute, Sends, TopicRoute
from federator.protocol.frames import (
    CUSTODY_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    TRACE_FLAG,
    Frame,
    unpack,
)
from federator.protocol.link_gates import LinkGates
from federator.protocol.own_topics import DOCTORS_WORD, data_topic
from federator.protocol.publications import (
    DUP_BIT,
    QOS_BITS,
    RETAIN_BIT,
    RunChecker,
    topics_of,
)
from federator.protocol.sharing import inbox_key, is_inbox_key
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.clocks import wall_clock_us
from federator.runtime.custody import (
    CustodyOutlet,
    CustodyStores,
    custodian,
)
from federator.runtime.data_counters import DataCounters, Delays
from federator.runtime.data_ports import DataLink, RetainedFlow, Shared, Traces
from federator.runtime.gathering import Batch, Pace, RouteBatches
from federator.runtime.intake import Intake
from federator.runtime.metrics_stream.tape import Came, Delivered, Made, Tape
from federator.runtime.outgoing import Outgoing
from federator.runtime.trust import Trust

FRAME_BYTES_MAX = 262_144
HOP_LIMIT = 64
COMPLAINT_GAP_S = 60.0
SENDER_LINGER_S = 10.0
"""How long frames of a neighbour are taken after its link went down: they may be on their way."""

_log = structlog.get_logger()


class DataPath:
    """The data plane of one agent.

    Args:
        self_id: Our id.
        epoch: Our epoch.
        federation: The federation's name.
        forwarder: Where publications go. The control plane changes it.
        stores: What custody keeps on disk.
        duplicates: Which frames were here before.
        gates: What may cross the link to a neighbour.
        land: What is published on our broker instead of a run that arrived.
        frame_bytes_max: Longest body of a frame we make; one longer publication travels alone.
        hop_limit: Links a frame of ours may travel, 1 to 255.
        held_bytes_max: What waits for earlier frames, at most; all of it may come loose at once.
        wall_clock_us: Microseconds since 1970.
        retained: Orders retained values; ``None`` lets them pass as they come.
        trust: Seals frames and breaks their seals; ``None`` in an open federation.
        tape: What happens is written down here, frame by frame.

    Attributes:
        local: The data connection to our own broker, which is also where ``on_publishes`` comes
            from. ``None`` until the application has made it.
        intake: What our clients published and is not on its way yet.
        custody: Cares for what is published at QoS 1 and 2.
        custody_log, custody_outlet: What it works with.
        shared: Sees what our clients publish, and gets the frames for our inbox, if anybody does.
        traces: Follows traces, if anybody does.
        outgoing: Sends copies of frames to neighbours.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        epoch: Epoch,
        federation: str,
        forwarder: Forwarder,
        stores: CustodyStores,
        trust: Trust | None,
        duplicates: DuplicateLog | None = None,
        gates: LinkGates | None = None,
        land: Callable[[bytes], bytes] = lambda run: run,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        hop_limit: int = HOP_LIMIT,
        held_bytes_max: int = HELD_BYTES_MAX,
        wall_clock_us: Callable[[], int] = wall_clock_us,
        retained: RetainedFlow | None = None,
        tape: Tape | None = None,
    ) -> None:
        if not 1 <= hop_limit <= 255:
            raise ValueError(f"hop_limit must be 1 to 255, got {hop_limit}")
        self.local: DataLink | None = None
        self.shared: Shared | None = None
        self.traces: Traces | None = None
        self.forwarder = forwarder
        self.counters = DataCounters()
        self.delays = Delays()
        self.data_topic = data_topic(federation)
        self._self_id = self_id
        self._inbox_key = inbox_key(self_id)
        self._seq = 0
        self._own = Frame(  # filled in again for each frame we make
            flags=0,
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
        self._custody_duplicates = DuplicateLog()  # those under custody have other numbers
        self.custody_log = stores.log
        self.custody_outlet = CustodyOutlet(self, self_id=self_id, federation=federation)
        self.custody = custodian(
            self.custody_outlet,
            stores,
            self_id=self_id,
            forwarder=forwarder,
            hop_limit=hop_limit,
            wall_clock_us=wall_clock_us,
            held_bytes_max=held_bytes_max,
        )
        self.intake = Intake(
            custody=self.custody,
            log=stores.log,
            make_frame=self._make_frame,
            time_of=self._time_of,
            frame_bytes_max=frame_bytes_max,
            counters=self.counters,
            tape=tape,
        )
        self._tape = tape
        self._unfinished = False  # custody has something to publish at the end of this read
        self._gates = gates or LinkGates()
        self.outgoing = Outgoing(
            self_id=self_id,
            topic=self.data_topic,
            counters=self.counters,
            gates=self._gates,
            trust=trust,
            tape=tape,
        )
        self._land = land
        self._frame_bytes_max = frame_bytes_max
        self._wall_clock_us = wall_clock_us
        self._retained = retained
        self._trust = trust
        self._heard_until_s: dict[BrokerId, float] = {}  # whose frames are taken; monotonic
        self._pace = Pace()
        self._checker = RunChecker()
        self._complained_at_s = -COMPLAINT_GAP_S

    @property
    def origins(self) -> int:
        """How many origins the duplicate window remembers."""
        return len(self._duplicates)

    def reach(self, neighbour: BrokerId, link: DataLink | None) -> None:
        """Send what is meant for ``neighbour`` over ``link``; ``None``: it cannot be reached."""
        self.outgoing.reach(neighbour, link)
        if link is not None:
            self.custody.on_way_opened()
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

    def set_route(self, filter: str, route: FilterRoute | None, *, lost: bool = False) -> None:
        """Replace the route of ``filter``; ``None`` forgets it. ``lost``: see ``SetRoute``."""
        self.intake.on_route_changes()
        if not filter.startswith("$"):  # others are between agents: see protocol.sharing
            route = self.custody.on_route(filter, route, lost=lost)
        for other in self.forwarder.set_route(filter, route):
            _log.warning("filter.key_collision", filter=filter, other=other)

    def set_destinations(self, next_hops: Mapping[BrokerId, BrokerId | None]) -> None:
        """Frames for these brokers go by way of these next hops; see ``SetDestination``."""
        self.intake.on_route_changes()
        for broker, next_hop in next_hops.items():
            self.forwarder.set_destination(broker, next_hop)
        reached = {broker for broker, next_hop in next_hops.items() if next_hop is not None}
        self.custody.on_destinations_moved(reached)

    def renew_epoch(self, epoch: Epoch) -> None:
        """Number the frames of a new epoch from 1."""
        self._own.epoch = epoch
        self._seq = 0

    def share(self, filters: frozenset[str]) -> None:
        """Shared groups of other brokers want exactly these of our clients' publications."""
        self.forwarder.share(filters)
        self.custody.share(filters)

    def on_publishes(
        self, link: object, chunk: memoryview, publishes: Sequence[tuple[PublishPacket, int, int]]
    ) -> None:
        """Take all PUBLISHes of one socket read of the data connection.

        Args:
            link: The data connection to our own broker.
            chunk: What was read. Not kept.
            publishes: The packets, and where each stands in ``chunk``.
        """
        if self.shared is not None:
            self.shared.on_publishes(chunk, publishes)
        data_topic = self.data_topic
        if len(publishes) == 1 and not self.intake.filled:
            packet, start, end = publishes[0]
            if packet.topic == data_topic:
                self._on_frame(packet.payload)
                if self._unfinished:
                    self._finish_custody()
                return
            if packet.packet_id is None:
                self._on_publication(packet.topic, chunk[start:end])
                return
        frame_bytes_max = self._frame_bytes_max
        seen: dict[str, RouteBatches | None] = {}
        batch: Batch | None = None
        run_start = run_end = run_count = first_bytes = 0
        for packet, start, end in publishes:
            topic = packet.topic
            if topic in seen:
                batches = seen[topic]
            elif topic == data_topic:
                self._on_frame(packet.payload)
                continue
            else:
                route = self.forwarder.route_topic(topic)
                batches = seen[topic] = None if route is None else self.intake.of(route)
            if batches is None:
                self.counters.unwanted += 1
                continue
            first_byte = chunk[start]
            into = batches.acknowledged if first_byte & QOS_BITS else batches.plain
            if first_byte & DUP_BIT and self.intake.is_logged(packet):
                self.counters.redelivered += 1
                continue
            if into is batch and start == run_end and end - run_start <= frame_bytes_max:
                run_end = end
                run_count += 1
                first_bytes |= first_byte
                continue
            if batch is not None:
                self.intake.add(batch, chunk[run_start:run_end], run_count, first_bytes)
            batch, run_start, run_end, run_count, first_bytes = into, start, end, 1, first_byte
        if batch is not None:
            self.intake.add(batch, chunk[run_start:run_end], run_count, first_bytes)
            self.intake.end_read(self._pace.is_busy(time.monotonic()))
        if self._unfinished:
            self._finish_custody()

    def _finish_custody(self) -> None:
        self._unfinished = False
        self.custody.finish()

    # What custody asks for

    def broker(self) -> DataLink | None:
        """The connection to our broker."""
        return self.local

    def send_copies(self, frame: Frame, sends: Sends, body: bytes) -> int:
        """Send copies of a frame of ours to next hops."""
        return self.outgoing.send(frame, 0, sends, (body,), len(body))

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""
        return self.outgoing.send_repair(neighbour, frame)

    def deliver(self, frame: Frame) -> None:
        """Publish the body of ``frame`` on our own broker."""
        taken = self._deliver(frame)
        delay_us = self._wall_clock_us() - frame.origin_time_us
        self.delays.note(frame.origin, frame.hops + 1, delay_us)
        if taken and self._tape is not None:
            origin = frame.origin
            hops = frame.hops + (origin != self._self_id)
            size = len(frame.body)
            self._tape.add(
                Delivered(
                    origin,
                    hops,
                    frame.flags,
                    frame.keys,
                    frame.epoch,
                    frame.seq,
                    taken,
                    size,
                    delay_us,
                )
            )

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""
        self._seq += 1
        return self._own.epoch, self._seq

    # Our clients' publications

    def send_to(
        self, broker: BrokerId, parts: Sequence[bytes | memoryview], size: int, count: int
    ) -> bool:
        """Send a frame to the inbox of one broker, once; whether there is a way.

        Args:
            broker: Whose inbox.
            parts: The body,
            size: of so many bytes,
            count: with so many publications.
        """
        frame = self._own
        keys = inbox_key(broker)
        route = self.forwarder.route_frame(keys, 1, sender=self._self_id, origin=self._self_id)
        if not route.sends:
            return False
        self._seq += 1
        frame.seq = self._seq
        frame.origin_time_us = self._wall_clock_us()
        frame.publications = count
        frame.keys = keys
        return self.outgoing.send(frame, 0, route.sends, parts, size) > 0

    def trace(self, route: TopicRoute, sends: Sends, body: bytes) -> int:
        """Send a trace to ``sends``, next hops of ``route``; its number."""
        self._seq += 1
        frame = msgspec.structs.replace(
            self._own,
            flags=TRACE_FLAG,
            seq=self._seq,
            origin_time_us=self._wall_clock_us(),
            publications=0,
            keys=route.keys,
        )
        self.outgoing.send(frame, 0, sends, (body,), len(body))
        return self._seq

    def _on_publication(self, topic: str, packet: memoryview) -> None:
        """Take one of QoS 0 that came alone and finds no batch open: the way of the least delay.

        Args:
            topic: Where it was published.
            packet: All of it. Not kept.
        """
        route = self.forwarder.route_topic(topic)
        if route is None:
            self.counters.unwanted += 1
        elif self._pace.is_busy(time.monotonic()):
            self.intake.add(self.intake.of(route).plain, packet, 1, packet[0])
            self.intake.end_read(True)
        else:
            self.counters.publications_in += 1
            retained = packet[0] & RETAIN_BIT
            time_us = self._time_of((packet,), retained=True) if retained else self._wall_clock_us()
            self._make_frame(route, (packet,), len(packet), 1, time_us)

    def _time_of(self, parts: Sequence[bytes | memoryview], *, retained: bool) -> int:
        """When a frame of ours was made; retained values in it get their versions by that."""
        if retained and self._retained is not None:
            return self._retained.leave(b"".join(parts))
        return self._wall_clock_us()

    def _make_frame(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        time_us: int,
    ) -> None:
        """Send ``count`` QoS 0 publications, ``size`` bytes in all, as one frame."""
        if self._tape is not None:
            made = Made(route.keys, 0, self._own.epoch, self._seq + 1, count, size, time_us)
            self._tape.add(made)
        if not route.sends:
            self.counters.no_route += count
            return
        self._seq += 1
        self.counters.publications_out += count
        frame = self._own
        frame.seq = self._seq
        frame.origin_time_us = time_us
        frame.publications = count
        frame.keys = route.keys
        self.outgoing.send(frame, 0, route.sends, parts, size)

    # Frames of others

    def on_datagram_frames(self, neighbour: BrokerId, frames: Sequence[bytes]) -> None:
        """Take frames that ``neighbour`` sent in datagrams, under seals of their own."""
        for frame in frames:
            self._on_frame(frame, neighbour)
        if self._unfinished:
            self._finish_custody()

    def _on_frame(self, payload: bytes, sealed_by: BrokerId | None = None) -> None:
        """Deliver a frame, carry it on, or drop it."""
        counters = self.counters
        counters.frames_in += 1
        counters.frame_bytes_in += len(payload)
        if payload == DOCTORS_WORD:
            counters.frames_of_strangers += 1
            return
        if self._trust is not None and sealed_by is None:
            opened = self._trust.open_frame(payload)
            if opened is None:
                return
            sealed_by, payload = opened
        try:
            frame = unpack(payload)
        except DecodeError as error:
            self._complain(error)
            return
        if sealed_by is not None and frame.sender != sealed_by:
            counters.frames_of_strangers += 1
            return
        heard_until_s = self._heard_until_s.get(frame.sender, 0.0)
        if heard_until_s != math.inf and heard_until_s <= time.monotonic():
            counters.frames_of_strangers += 1
            return
        if self._gates.active:
            let_in = self._gates.incoming(frame)
            if let_in is None:
                return
            frame = let_in
        if frame.flags & TRACE_FLAG:
            self._on_trace(frame)
            return
        if frame.flags & REPAIR_FLAG:
            self._note_came(frame, len(payload))
            self.custody.on_repair(frame)
            self._unfinished = True
            return
        origin = frame.origin
        if origin == self._self_id:
            self._suppress(frame, len(payload))
            return
        seen = self._custody_duplicates if frame.flags & CUSTODY_FLAG else self._duplicates
        first, new = seen.admit(origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask)
        if not first and not new:
            self._suppress(frame, len(payload))
            return
        if self._tape is not None:
            self._note_came(frame, len(payload))
        route = self.forwarder.route_frame(frame.keys, new, sender=frame.sender, origin=origin)
        counters.unknown_filters += route.unknown
        if frame.flags:
            self._keep_or_deliver(frame, route, first=first)
        elif is_inbox_key(frame.keys):
            if first and self.shared is not None and frame.keys == self._inbox_key:
                self.shared.on_parcel(frame)
        elif first and route.deliver:
            self.deliver(frame)
        if not route.sends:
            return
        if frame.hops + 1 >= frame.hop_limit:
            counters.hop_limit_exceeded += 1
            return
        counters.relayed += self.outgoing.send(
            frame, frame.hops + 1, route.sends, [frame.body], len(frame.body)
        )

    def _on_trace(self, frame: Frame) -> None:
        """Carry on a frame without publications as one of QoS 0 that had some."""
        origin = frame.origin
        if self.traces is None or origin == self._self_id:
            return
        first, new = self._duplicates.admit(
            origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask
        )
        route = None
        if first or new:
            route = self.forwarder.route_frame(frame.keys, new, sender=frame.sender, origin=origin)
        try:
            sends, body = self.traces.on_frame(frame, route)
        except DecodeError as error:
            self._complain(error)
            return
        if frame.hops + 1 < frame.hop_limit:
            self.outgoing.send(frame, frame.hops + 1, sends, (body,), len(body))

    def _keep_or_deliver(self, frame: Frame, route: FrameRoute, *, first: bool) -> None:
        """Let custody see the frame; publish it here when custody does not."""
        self.custody.on_frame(frame, route.local, first=first)
        self._unfinished = True
        counted = route.local or frame.flags & TAIL_FLAG
        if first and route.deliver and not counted:
            self.deliver(frame)

    def _note_came(self, frame: Frame, size: int, *, repeated: bool = False) -> None:
        """Write down that ``frame`` arrived, in a payload of ``size`` bytes."""
        if self._tape is not None:
            self._tape.add(
                Came(
                    frame.sender,
                    frame.publications,
                    size,
                    repeated,
                    frame.flags,
                    frame.origin,
                    frame.epoch,
                    frame.seq,
                    frame.hops + 1,
                    frame.origin_time_us,
                    self._wall_clock_us(),
                )
            )

    def _suppress(self, frame: Frame, size: int) -> None:
        self._note_came(frame, size, repeated=True)
        self.counters.duplicate_frames += 1
        self.counters.duplicates_suppressed += frame.publications

    def _deliver(self, frame: Frame) -> int:
        """Publish the body of ``frame`` on our own broker; how many publications it took."""
        run, count, taken = bytes(frame.body), frame.publications, 0
        try:
            places = self._checker.check(run, acknowledged=frame.acknowledged, publications=count)
            retained = self._retained if self._checker.retained else None
            here = run
            if retained is not None:
                here = retained.arrive(run, time_us=frame.origin_time_us, origin=frame.origin)
            if (landed := self._land(here)) is not run:
                run, count = landed, len(topics_of(landed))
                places = self._checker.check(
                    run, acknowledged=frame.acknowledged, publications=count
                )
                if not count:
                    return 0
        except DecodeError as error:
            self._complain(error)
            return 0
        local = self.local
        if local is None:
            pass
        elif frame.acknowledged:
            for start, end, id_at, qos in places:
                taken += local.publish_packet(bytearray(run[start:end]), id_at - start, qos)
        elif local.write_packets([run], count):
            taken = count
        if taken < count and retained is not None:
            retained.missed(bytes(frame.body))
        self.counters.delivered_publications += taken
        self.counters.dropped += count - taken
        return taken

    def _complain(self, error: DecodeError) -> None:
        """Count a malformed frame; say so at most once per ``COMPLAINT_GAP_S``."""
        self.counters.malformed_frames += 1
        now_s = time.monotonic()
        if now_s - self._complained_at_s >= COMPLAINT_GAP_S:
            self._complained_at_s = now_s
            _log.warning(
                "frame.malformed", reason=str(error), so_far=self.counters.malformed_frames
            )
