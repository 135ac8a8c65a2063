"""What leaves an agent for its own broker: the publications in frames, and custody's marker.

A frame's body is written to our broker as it came, once every packet in it was looked at: one byte
out of place, and the broker would hang up on us.

Source: docs/protocol.md sections 8 and 11.
"""

from collections.abc import Callable

from mqtt5 import PublishPacket, QoS

from federator.errors import DecodeError
from federator.protocol.data.ports import DataLink, RetainedFlow
from federator.protocol.effects import Notice
from federator.protocol.forwarding.counters import DataCounters, Delays
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, topics_of
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.telemetry.frame_events import Delivered, FrameEventBuffer
from federator.protocol.types import BrokerId, Millis, Now

COMPLAINT_GAP_MS = Millis(60_000)


class Complaints:
    """Counts malformed frames, and says so now and then.

    Args:
        counters: Where they are counted.
        tell: Tells the operator.
    """

    def __init__(self, counters: DataCounters, tell: Callable[[Notice], None]) -> None:
        self._counters = counters
        self._tell = tell
        self._limiter: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1)

    def malformed(self, error: DecodeError, now_ms: Millis) -> None:
        """A frame is not what it should be."""
        self._counters.malformed_frames += 1
        if self._limiter.allow("", now_ms):
            so_far = self._counters.malformed_frames
            details: dict[str, int | str] = {"reason": str(error), "so_far": so_far}
            self._tell(Notice("frame.malformed", "warning", details))


class Delivery:
    """Publishes on our own broker.

    Args:
        self_id: Our id.
        marker_topic: Where our broker keeps custody's marker.
        counters: Of the data plane.
        complaints: About frames that our broker would not take.
        to_local_names: What is published instead of a run that arrived.
        retained: Orders retained values; ``None`` lets them pass as they come.
        frame_events: What happens is written down here, frame by frame.

    Attributes:
        link: The connection to our broker; ``None`` until it is made.
        delays: How long frames were on their way.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        marker_topic: str,
        counters: DataCounters,
        complaints: Complaints,
        to_local_names: Callable[[bytes], bytes],
        retained: RetainedFlow | None,
        frame_events: FrameEventBuffer | None,
    ) -> None:
        self.link: DataLink | None = None
        self.marker_topic = marker_topic
        self.delays = Delays()
        self._self_id = self_id
        self._counters = counters
        self._complaints = complaints
        self._to_local_names = to_local_names
        self._retained = retained
        self._frame_events = frame_events
        self._checker = RunChecker()

    @property
    def room(self) -> bool:
        """Our broker can take a good deal more."""
        return self.link is not None and self.link.room

    @property
    def settled(self) -> bool:
        """Our broker has acknowledged all that we published."""
        return self.link is not None and not self.link.unacknowledged

    def mark(self, marker: bytes) -> None:
        """Have our broker keep ``marker`` behind all that we published."""
        if self.link is not None:
            topic = self.marker_topic
            written = PublishPacket(
                topic, marker, qos=QoS.AT_LEAST_ONCE, retain=True, packet_id=1
            ).write()
            encoded = topic.encode()
            self.link.publish_packet(bytearray(written), written.find(encoded) + len(encoded), 1)

    def deliver(self, frame: Frame, now: Now) -> None:
        """Publish the body of ``frame``, and note how long it took to come."""
        taken = self._publish(frame, now)
        delay_us = now.us - frame.origin_time_us
        self.delays.note(frame.origin, frame.hops + 1, delay_us)
        if taken and self._frame_events is not None:
            origin = frame.origin
            hops = frame.hops + (origin != self._self_id)
            size = len(frame.body)
            self._frame_events.add(
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

    def _publish(self, frame: Frame, now: Now) -> int:
        """Publish the body of ``frame``; how many publications our broker's connection took."""
        run, count, taken = bytes(frame.body), frame.publications, 0
        try:
            places = self._checker.check(run, acknowledged=frame.acknowledged, publications=count)
            retained = self._retained if self._checker.retained else None
            here = run
            if retained is not None:
                here = retained.arrive(run, time_us=frame.origin_time_us, origin=frame.origin)
            if (landed := self._to_local_names(here)) is not run:
                # Other packets now, perhaps none: what was checked says nothing about them.
                run, count = landed, len(topics_of(landed))
                places = self._checker.check(
                    run, acknowledged=frame.acknowledged, publications=count
                )
                if not count:
                    return 0
        except DecodeError as error:
            self._complaints.malformed(error, now.ms)
            return 0
        link = self.link
        if link is None:
            pass
        elif frame.acknowledged:
            for start, end, id_at, qos in places:
                taken += link.publish_packet(bytearray(run[start:end]), id_at - start, qos)
        elif link.write_packets([run], count):
            taken = count
        if taken < count and retained is not None:
            retained.missed(bytes(frame.body))
        self._counters.delivered_publications += taken
        self._counters.dropped += count - taken
        return taken
