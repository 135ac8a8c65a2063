"""Publications of our clients on their way into frames: gathered, logged, sent, acknowledged.

An idle agent sends what one socket read brought at once. Under load a broker wakes us for one or
two publications at a time, thousands of times a second, and every frame costs system calls at every
agent and broker on its path. So from ``BUSY_READS_PER_TICK`` on, batches stay open for ``GAP_MS``,
unless processors have time to spare. Measured at 10,000 msg/s of 64 B over three hops: a third less
CPU in all, a third of it at the relays' brokers, for 0.3 to 0.6 ms of delay.

Publications at QoS 1 and 2 are written to the custody log first; then they are sent, and
acknowledged to our broker. When the log cannot be written, they wait here, unacknowledged, in the
order of their arrival.

Source: docs/protocol.md sections 8 and 11.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mqtt5 import PublishPacket

from federator.protocol.custody.custodian import Custodian
from federator.protocol.custody.ports import Record
from federator.protocol.data.features import Features, Limits
from federator.protocol.data.moves import Moves, Waiting
from federator.protocol.data.outgoing import Leaving, Outgoing
from federator.protocol.data.ports import AcknowledgingLink
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import TopicRoute
from federator.protocol.forwarding.frames import CUSTODY_FLAG, OwnFrames
from federator.protocol.forwarding.publications import RETAIN_BIT, packets_in
from federator.protocol.steering.flow_meter import FlowMeter
from federator.protocol.telemetry.frame_events import Made
from federator.protocol.timers import earliest
from federator.protocol.types import Millis, Now

GAP_MS = Millis(1)
TICK_MS = 10
BUSY_READS_PER_TICK = 20
"""From 2,000 reads a second on, publications wait for others."""

ROUTES_KEPT_MAX = 1_024
"""Routes with kept empty batches."""

RETRY_MS = Millis(1_000)
"""How long after a failed write the log is tried again."""

BUNDLE_FRAMES_MAX, BUNDLE_RUNS_MAX = 512, 4_096
"""Limits of one flush; agents accept twice as many."""

LABEL_BYTES = 80
"""What the label of a frame takes beside its packets, in most cases."""

REDELIVERED_MAX = 2_000
"""How many records are searched for a publication that our broker sends again."""


@dataclass(slots=True, eq=False)
class Batch:
    """Runs of packets that will be one frame: QoS 0 only, or QoS 1 and 2 only."""

    route: TopicRoute
    acknowledged: bool
    parts: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    count: int = 0
    retained: bool = False  # some publication in it is retained
    time_us: int = 0  # when it became a frame

    def empty(self) -> None:
        """Drop the contents."""
        self.parts = []
        self.size = self.count = 0
        self.retained = False


class RouteBatches:
    """The two batches of one route."""

    __slots__ = ("acknowledged", "plain")

    def __init__(self, route: TopicRoute) -> None:
        self.plain = Batch(route, acknowledged=False)
        self.acknowledged = Batch(route, acknowledged=True)


class OpenBatches:
    """The batches with contents, in the order in which they got them.

    Empty ones are kept by route for next time: most publications take the same few routes.

    Attributes:
        filled: These batches; a dictionary for the sake of its order.
        runs: The order in which the packets were published, as (batch, how many packets).
    """

    __slots__ = ("_by_route", "filled", "runs", "size")

    def __init__(self) -> None:
        self._by_route: dict[TopicRoute, RouteBatches] = {}
        self.filled: dict[Batch, None] = {}
        self.runs: list[tuple[Batch, int]] = []
        self.size = 0  # of all packets, in bytes

    def of(self, route: TopicRoute) -> RouteBatches:
        batches = self._by_route.get(route)
        if batches is None:
            batches = self._by_route[route] = RouteBatches(route)
        return batches

    def behind(self, route: TopicRoute, more: int, bytes_max: int) -> Batch:
        """The batch for the next ``more`` bytes under custody on ``route``, after all waiting ones.

        A topic's route may change and change back, and its publications must stay in order. Of a
        batch that waits for the log no frame grows beyond ``bytes_max``.
        """
        last = next((batch for batch in reversed(self.filled) if batch.acknowledged), None)
        if last is not None and last.route is route and last.size + more <= bytes_max:
            return last
        batches = self.of(route)
        if batches.acknowledged in self.filled:
            batches.acknowledged = Batch(route, acknowledged=True)
        return batches.acknowledged

    def add(self, batch: Batch, run: memoryview, count: int, *, retained: bool) -> None:
        """Append a run of ``count`` packets to ``batch``, one of ours."""
        if not batch.parts:
            self.filled[batch] = None
        batch.parts.append(run)
        batch.size += len(run)
        batch.count += count
        batch.retained |= retained
        self.size += len(run)
        if self.runs and self.runs[-1][0] is batch:
            count += self.runs.pop()[1]
        self.runs.append((batch, count))

    def has_room(self, more: int, bytes_max: int) -> bool:
        """Whether a run of ``more`` bytes still fits into a bundle with all others."""
        size = self.size + more + LABEL_BYTES * len(self.filled)
        return (
            size <= bytes_max
            and len(self.filled) < BUNDLE_FRAMES_MAX
            and len(self.runs) < BUNDLE_RUNS_MAX
        )

    def keep(self) -> int:
        """Copy what is still in a socket's buffer; return the bytes held in all."""
        for batch in self.filled:
            if type(batch.parts[-1]) is memoryview:
                batch.parts = [b"".join(batch.parts)]
        return self.size

    def take(self) -> tuple[list[Batch], list[tuple[Batch, int]]]:
        """Empty this, and return the batches that had contents, and their runs."""
        taken = list(self.filled), self.runs
        self.filled.clear()
        self.runs, self.size = [], 0
        if len(self._by_route) > ROUTES_KEPT_MAX:
            self._by_route.clear()
        return taken

    def put_back(self, batches: Sequence[Batch], runs: Sequence[tuple[Batch, int]]) -> None:
        """Hold again what was taken, before all that comes."""
        for batch in batches:
            self.filled[batch] = None
            self.size += batch.size
        self.runs = [(batch, count) for batch, count in runs if batch in self.filled]


class Pace:
    """Measures how fast reads come, by counting them in ticks of ``TICK_MS``."""

    __slots__ = ("_before", "_now", "_tick")

    def __init__(self) -> None:
        self._tick = 0
        self._before = 0
        self._now = 0

    def is_busy(self, now_ms: Millis) -> bool:
        """Count one read; return whether this or the previous tick had ``BUSY_READS_PER_TICK``."""
        tick = now_ms // TICK_MS
        if tick != self._tick:
            self._before = self._now if tick == self._tick + 1 else 0
            self._tick, self._now = tick, 0
        self._now += 1
        return self._before >= BUSY_READS_PER_TICK or self._now >= BUSY_READS_PER_TICK


class Intake:
    """The publications of our clients that are not sent yet."""

    def __init__(
        self,
        *,
        custody: Custodian,
        own: OwnFrames,
        outgoing: Outgoing,
        moves: Moves,
        counters: DataCounters,
        limits: Limits,
        features: Features,
    ) -> None:
        self._open = OpenBatches()
        self._on_acknowledged = features.on_acknowledged
        self._has_spare_time = features.has_spare_time
        self.of: Callable[[TopicRoute], RouteBatches] = self._open.of  # the batches of a route
        self.filled = self._open.filled  # the batches that hold something
        self._custody = custody
        self._log = custody.origin.log
        self._own = own
        self._outgoing = outgoing
        self._moves = moves
        self._retained = features.retained
        self._frame_bytes_max = limits.frame_bytes_max
        self._counters = counters
        self._frame_events = features.frame_events
        overhead_bytes = outgoing.by_broker.overhead_bytes
        self.flows = FlowMeter(limits.flows_max, frame_overhead_bytes=overhead_bytes)
        self._measured = self.flows if limits.flows_max else None
        self.due_ms: Millis | None = None  # when ``on_time`` has something to do
        self._pace = Pace()
        self._flush_ms: Millis | None = None  # when gathered publications are sent
        self._retry_ms: Millis | None = None  # when the log is tried again
        self._unacknowledged: list[tuple[int, int]] = []  # (packet id, QoS) of our broker
        self._unacknowledged_of = 0  # the session they belong to
        self._source: AcknowledgingLink | None = None
        self._redelivered: dict[int, PublishPacket] = {}  # in the log, by packet id

    # Publications of one read

    def send_alone(self, route: TopicRoute, packet: memoryview, now: Now) -> None:
        """Take a publication of QoS 0 that came alone, while no batch is open.

        This is the path of least delay, unless many reads come in a short time.
        """
        if self._is_rush(now.ms):
            self.add(self.of(route).plain, packet, 1, packet[0], now)
            self.end_read(now, busy=True)
        else:
            self._counters.publications_in += 1
            retained = packet[0] & RETAIN_BIT
            time_us = self._time_of((packet,), True, now) if retained else now.us
            self._send(route, (packet,), len(packet), 1, time_us, now)

    def add(self, batch: Batch, run: memoryview, count: int, first_bytes: int, now: Now) -> None:
        """Add a run of packets to a batch; flush first when there is no room.

        ``first_bytes``: the bitwise OR of the first bytes of all its packets.
        """
        self._counters.publications_in += count
        if (
            self._retry_ms is None
            and self.filled
            and not self._open.has_room(len(run), self._frame_bytes_max)
        ):
            self.flush(now)
        if self._retry_ms is not None and batch.acknowledged:
            batch = self._open.behind(batch.route, len(run), self._frame_bytes_max)
        elif batch.count and batch.size + len(run) > self._frame_bytes_max:
            self.flush(now)
        self._open.add(batch, run, count, retained=first_bytes & RETAIN_BIT > 0)

    def end_read(self, now: Now, *, busy: bool | None = None) -> None:
        """End a read that brought several: flush at once, or within ``GAP_MS`` under load."""
        if busy is None:
            busy = self._is_rush(now.ms)
        waits = self._flush_ms is not None
        if (not waits and not busy) or self._open.keep() > self._frame_bytes_max:
            self.flush(now)
        elif not waits:
            self._flush_ms = Millis(now.ms + GAP_MS)
            self._set_due()

    @property
    def gathers(self) -> bool:
        """Whether publications wait for more to come; a flush may come before ``due_ms``."""
        return self._flush_ms is not None

    def _is_rush(self, now_ms: Millis) -> bool:
        """Count one read; return whether its publications should wait for more."""
        return self._pace.is_busy(now_ms) and not self._has_spare_time()

    def is_logged(self, packet: PublishPacket) -> bool:
        """Whether a publication that comes again is in the log already."""
        entry = self._redelivered.get(packet.packet_id or 0)
        return entry is not None and (entry.topic, entry.payload) == (packet.topic, packet.payload)

    # Sending

    def flush(self, now: Now) -> None:
        """Send what waits for more to come. To be called before the agent leaves."""
        if self._flush_ms is not None:
            self._flush_ms = None
            self._set_due()
        if not self.filled:
            return
        batches, runs = self._open.take()
        for batch in batches:
            batch.time_us = self._time_of(batch.parts, batch.retained, now)
        under_custody = [batch for batch in batches if batch.acknowledged]
        records = self._log_all(under_custody, now) if under_custody else {}
        if records is None:
            batches = [batch for batch in batches if not batch.acknowledged]
            self._send_all(batches, runs, {}, now)
            self._open.put_back(under_custody, runs)
            self._open.keep()
            return
        self._send_all(batches, runs, records, now)
        if under_custody:
            self._acknowledge()
            self._custody.finish(now)

    def on_time(self, now: Now) -> None:
        """Flush what was gathered for long enough, or what could not be logged a while ago."""
        if self.due_ms is not None and self.due_ms <= now.ms:
            if self._retry_ms is not None and self._retry_ms <= now.ms:
                self._retry_ms = None
                self._set_due()
            self.flush(now)

    def send_waited(self, route: TopicRoute, waited: Sequence[Waiting], now: Now) -> None:
        """Send what waited while its flow moved; it was measured on arrival."""
        for entry in waited:
            size = len(entry.packets)
            self._send_now(route, (entry.packets,), size, entry.count, entry.time_us, now)

    def _set_due(self) -> None:
        self.due_ms = earliest(self._flush_ms, self._retry_ms)

    def on_route_changes(self, now: Now) -> None:
        """A topic's route changes: send what was gathered by the former one first."""
        if self.filled and self._retry_ms is None:
            self.flush(now)

    def _log_all(self, batches: Sequence[Batch], now: Now) -> Mapping[Batch, Record] | None:
        """Log ``batches``, one record each; ``None``: it must be tried again later."""
        records = self._custody.origin.write(batches, now.ms)
        if records is None:
            if self._retry_ms is None:
                self._retry_ms = Millis(now.ms + RETRY_MS)
                self._set_due()
            return None
        return dict(zip(batches, records, strict=True))

    def _send_all(
        self,
        batches: Sequence[Batch],
        runs: Sequence[tuple[Batch, int]],
        records: Mapping[Batch, Record],
        now: Now,
    ) -> None:
        """Send ``batches``, a frame each and all together, and empty them."""
        if len(batches) == 1 and not records:
            [batch] = batches
            self._send(batch.route, batch.parts, batch.size, batch.count, batch.time_us, now)
            batch.empty()
            return
        leaving: list[Leaving] = []
        place_of = {batch: place for place, batch in enumerate(batches)}
        order = [(place_of[batch], count) for batch, count in runs if batch in place_of]
        for place, batch in enumerate(batches):
            record = records.get(batch)
            if record is None and self._waits(
                batch.route, batch.parts, batch.size, batch.count, batch.time_us, now
            ):
                batch.empty()
                continue
            frame_out = self._plain(batch) if record is None else self._logged(batch, record)
            frame_out.frame.place, frame_out.frame.order = place, order
            if frame_out.sends:
                leaving.append(frame_out)
            batch.empty()
        if leaving:
            self._outgoing.send_bundle(leaving, now_ms=now.ms)

    def _time_of(self, parts: Sequence[bytes | memoryview], retained: bool, now: Now) -> int:
        """When a frame of ours was made; retained values in it get their versions by that time."""
        if retained and self._retained is not None:
            return self._retained.leave(b"".join(parts))
        return now.us

    def _send(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        time_us: int,
        now: Now,
    ) -> None:
        """Send ``count`` QoS 0 publications of ``size`` bytes as one frame, or let them wait."""
        if not self._waits(route, parts, size, count, time_us, now):
            self._send_now(route, parts, size, count, time_us, now)

    def _waits(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        time_us: int,
        now: Now,
    ) -> bool:
        """Measure QoS 0 publications on arrival; return whether they wait, as their flow moves."""
        if self._measured is not None:
            self._measured.add(route, size, count)
        return bool(self._moves) and self._moves.take(route.keys, parts, count, time_us, now)

    def _send_now(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        time_us: int,
        now: Now,
    ) -> None:
        self._note_plain(route, self._own.seq + 1, size, count, time_us)
        if route.sends:
            frame = self._own.plain(route.keys, count, time_us)
            self._outgoing.send(frame, 0, route.sends, parts, size, now_ms=now.ms)

    def _plain(self, batch: Batch) -> Leaving:
        """The frame for what ``batch`` has at QoS 0."""
        route, count, time_us = batch.route, batch.count, batch.time_us
        epoch, seq = self._own.number()
        self._note_plain(route, seq, batch.size, count, time_us)
        frame = self._own.label(0, epoch, seq, time_us, count, route.keys, b"")
        return Leaving(frame, 0, route.sends, batch.parts, batch.size)

    def _note_plain(self, route: TopicRoute, seq: int, size: int, count: int, time_us: int) -> None:
        """Note that ``count`` QoS 0 publications, ``size`` bytes in all, become frame ``seq``."""
        if self._frame_events is not None:
            epoch = self._own.epoch
            self._frame_events.add(Made(route.keys, 0, epoch, seq, count, size, time_us))
        if route.sends:
            self._counters.publications_out += count
        else:
            self._counters.no_route += count

    def _logged(self, batch: Batch, record: Record) -> Leaving:
        """The frame for what ``batch`` has at QoS 1 and 2, and the log as ``record``."""
        route, count, size = batch.route, batch.count, batch.size
        frame = self._custody.origin.frame_of(record, route.keys)
        self._counters.publications_out += count
        if self._measured is not None:
            more = len(frame.chain) + len(frame.proof) if route.sends else 0
            self._measured.add(route, more + size, count)
        if self._frame_events is not None:
            made = Made(
                route.keys, CUSTODY_FLAG, frame.epoch, record.seq, count, size, batch.time_us
            )
            self._frame_events.add(made)
        return Leaving(frame, 0, route.sends, (record.body,), len(record.body))

    # Acknowledging to our broker

    def acknowledge(self, link: AcknowledgingLink, packet_ids: list[tuple[int, int]]) -> None:
        """Acknowledge publications of our broker, given as (packet id, QoS), once they are logged.

        To be called after the read was taken, for all that came with a packet id.
        """
        if self._unacknowledged_of != link.session_number:
            self._unacknowledged_of = link.session_number
            self._unacknowledged.clear()
        self._unacknowledged += packet_ids
        self._source = link
        if not any(batch.acknowledged for batch in self.filled):
            self._acknowledge()

    def on_local_up(self, *, session_present: bool) -> None:
        """The data connection is up; with its session, the broker sends again what was under way.

        It may be in the log already, in which case only the acknowledgement is missing.
        """
        self._redelivered.clear()
        if session_present:
            for record in self._log.recent(REDELIVERED_MAX):
                for publication in packets_in(record.body):
                    if publication.packet_id is not None:
                        self._redelivered.setdefault(publication.packet_id, publication)

    def on_local_down(self, now: Now) -> None:
        """The data connection is gone: log what we have, and drop what could not be logged.

        The broker sends it again.
        """
        self.flush(now)
        self._moves.end(now)
        for batch in self._open.take()[0]:
            batch.empty()
        self._unacknowledged.clear()

    def _acknowledge(self) -> None:
        source, packet_ids = self._source, self._unacknowledged
        if source is not None and packet_ids:
            source.acknowledge(packet_ids, session_number=self._unacknowledged_of)
            self._unacknowledged = []
            self._on_acknowledged()
