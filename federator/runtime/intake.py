"""Publications of our clients on their way into frames: gathered, logged, acknowledged.

What is published at QoS 0 becomes frames at once, or within ``GAP_S`` when much comes. What is
published at QoS 1 and 2 goes into the custody log first; then our broker is told that it is ours.
When the log cannot be written, it waits here, unacknowledged, in the order in which it came.

Source: docs/protocol.md sections 8 and 11.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from mqtt5 import PublishPacket

from federator.protocol.custody import Custodian
from federator.protocol.forwarding import TopicRoute
from federator.protocol.frames import CUSTODY_FLAG
from federator.protocol.publications import RETAIN_BIT
from federator.runtime.custody_log import CustodyLog
from federator.runtime.data_counters import DataCounters
from federator.runtime.data_ports import AcknowledgingLink
from federator.runtime.gathering import GAP_S, Batch, OpenBatches, RouteBatches
from federator.runtime.metrics_stream.tape import Made, Tape
from federator.runtime.mqtt_wire import packets_of

RETRY_S = 1.0
"""Until the log is tried again that could not be written."""

REDELIVERED_MAX = 2_000
"""Records in which a publication is looked for that our broker sends again."""


class FrameMaker(Protocol):
    """What makes frames of what is not under custody."""

    def __call__(
        self,
        route: TopicRoute,
        parts: Sequence[bytes | memoryview],
        size: int,
        count: int,
        time_us: int,
    ) -> None:
        """Send ``count`` QoS 0 publications, ``size`` bytes in all, as one frame."""


class FrameClock(Protocol):
    """What dates frames."""

    def __call__(self, parts: Sequence[bytes | memoryview], *, retained: bool) -> int:
        """When a frame of ours was made, given its packets and whether some are retained."""


class Intake:
    """What our clients published and is not on its way yet.

    Args:
        custody: Takes what is published at QoS 1 and 2,
        log: and keeps it here.
        make_frame: Sends what is published at QoS 0.
        time_of: Dates frames.
        frame_bytes_max: Longest body of a frame; one longer publication travels alone.
        counters: Of the data path.
        tape: Frames that go into the log are written down here.

    Attributes:
        of: The batches of a route.
        on_acknowledged: Called when all that came is in the log, and our broker was told so.
    """

    def __init__(
        self,
        *,
        custody: Custodian,
        log: CustodyLog,
        make_frame: FrameMaker,
        time_of: FrameClock,
        frame_bytes_max: int,
        counters: DataCounters,
        tape: Tape | None = None,
    ) -> None:
        self._open = OpenBatches()
        self.on_acknowledged: Callable[[], None] = lambda: None
        self.of: Callable[[TopicRoute], RouteBatches] = self._open.of
        self._custody = custody
        self._log = log
        self._make_frame = make_frame
        self._time_of = time_of
        self._frame_bytes_max = frame_bytes_max
        self._counters = counters
        self._tape = tape
        self._gap: asyncio.Handle | None = None
        self._retry: asyncio.Handle | None = None
        self._unacknowledged: list[tuple[int, int]] = []  # (packet id, QoS) of our broker
        self._unacknowledged_of = 0  # the session they belong to
        self._source: AcknowledgingLink | None = None
        self._redelivered: dict[int, PublishPacket] = {}  # in the log, by packet id

    @property
    def filled(self) -> dict[Batch, None]:
        """The batches that hold something."""
        return self._open.filled

    def end_read(self, busy: bool) -> None:
        """End a read: flush at once when idle, within ``GAP_S`` when reads come thick and fast."""
        if (self._gap is None and not busy) or self._open.keep() > self._frame_bytes_max:
            self.flush()
        elif self._gap is None:
            self._gap = asyncio.get_running_loop().call_later(GAP_S, self.flush)

    def add(self, batch: Batch, run: memoryview, count: int, first_bytes: int) -> None:
        """Add a run to a batch, which becomes a frame first when there is no room.

        Args:
            first_bytes: Of all packets in the run, ored.
        """
        self._counters.publications_in += count
        if self._retry is not None and batch.acknowledged:
            batch = self._open.behind(batch.route)
        if batch.count and batch.size + len(run) > self._frame_bytes_max:
            if not batch.acknowledged:
                self._flush(batch)
            elif self._retry is not None or not self._take_custody([batch]):
                batch = self._open.after(batch)  # what waits for the log goes first
        self._open.add(batch, run, count, retained=first_bytes & RETAIN_BIT > 0)

    def flush(self) -> None:
        """Send what waits for more to come. To be called before the agent leaves."""
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None
        under_custody = [batch for batch in self._open.filled if batch.acknowledged]
        for batch in self._open.filled:
            if not batch.acknowledged:
                self._flush(batch)
        self._open.clear()
        if under_custody and not self._take_custody(under_custody):
            for batch in under_custody:
                self._open.filled[batch] = None
            self._open.keep()

    def on_route_changes(self) -> None:
        """A topic's route changes: what was gathered by the former one goes first."""
        if self._open.filled and self._retry is None:
            self.flush()

    def acknowledge(self, link: AcknowledgingLink, packet_ids: list[tuple[int, int]]) -> None:
        """Acknowledge publications of our broker, given as (packet id, QoS), once they are ours.

        To be called after ``on_publishes``, for all that came with a packet id.
        """
        if self._unacknowledged_of != link.session_number:
            self._unacknowledged_of = link.session_number
            self._unacknowledged.clear()
        self._unacknowledged += packet_ids
        self._source = link
        if not any(batch.acknowledged for batch in self._open.filled):
            self._acknowledge()

    def on_local_up(self, *, session_present: bool) -> None:
        """The data connection is up; with its session, the broker sends again what was on its way.

        It may be in the log already, in which case only the acknowledgement is missing.
        """
        self._redelivered.clear()
        if session_present:
            for record in self._log.recent(REDELIVERED_MAX):
                for publication in packets_of(record.body):
                    if publication.packet_id is not None:
                        self._redelivered.setdefault(publication.packet_id, publication)

    def on_local_down(self) -> None:
        """It is gone: log what we have, and forget what could not be logged. It comes again."""
        self.flush()
        for batch in self._open.filled:
            batch.empty()
        self._open.clear()
        self._unacknowledged.clear()

    def is_logged(self, packet: PublishPacket) -> bool:
        """Whether a publication that comes again is in the log already."""
        known = self._redelivered.get(packet.packet_id or 0)
        return known is not None and (known.topic, known.payload) == (packet.topic, packet.payload)

    def _flush(self, batch: Batch) -> None:
        """Send what ``batch`` holds as one frame, and empty it."""
        if batch.count:
            self._date(batch)
            self._make_frame(batch.route, batch.parts, batch.size, batch.count, batch.time_us)
        batch.empty()

    def _date(self, batch: Batch) -> None:
        batch.time_us = self._time_of(batch.parts, retained=batch.retained)

    def _take_custody(self, batches: list[Batch]) -> bool:
        """Log and send what ``batches`` hold; ``False`` when it must be tried again later."""
        batches = [batch for batch in batches if batch.count]
        for batch in batches:
            self._date(batch)
        first = self._log.next_seq
        if not self._custody.take(batches):
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
            return False
        for seq, batch in enumerate(batches, first):
            self._counters.publications_out += batch.count
            if self._tape is not None:
                self._tape.add(self._made(batch, seq))
            batch.empty()
        if not any(batch.acknowledged and batch.count for batch in self._open.filled):
            self._acknowledge()
        self._custody.finish()
        return True

    def _made(self, batch: Batch, seq: int) -> Made:
        keys, epoch = batch.route.keys, self._log.epoch
        return Made(keys, CUSTODY_FLAG, epoch, seq, batch.count, batch.size, batch.time_us)

    def _try_again(self) -> None:
        self._retry = None
        self.flush()

    def _acknowledge(self) -> None:
        source, packet_ids = self._source, self._unacknowledged
        if source is not None and packet_ids:
            source.acknowledge(packet_ids, session_number=self._unacknowledged_of)
            self._unacknowledged = []
            self.on_acknowledged()
