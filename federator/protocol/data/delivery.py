"""What leaves an agent for its own broker: the publications in frames, and custody's marker.

A frame's body is written to our broker as it came, once every packet in it was looked at: one byte
out of place, and the broker would hang up on us.

Source: docs/protocol.md sections 8 and 11.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from mqtt5 import PublishPacket, QoS
from msgspec.structs import replace

from federator.errors import DecodeError
from federator.protocol.data.ports import DataLink, RetainedFlow, Stamps
from federator.protocol.effects import Notice
from federator.protocol.forwarding.bundles import Run, in_order, runs_of
from federator.protocol.forwarding.counters import DataCounters, Delays
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, topics_of
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.telemetry.frame_events import Delivered, FrameEventSink
from federator.protocol.types import BrokerId, Millis, Now

COMPLAINT_GAP_MS = Millis(60_000)

CLOCK_AHEAD_US: Final = 60_000_000
CLOCK_GAP_MS = Millis(600_000)
CLOCKS_MAX: Final = 256

WAIT_LOOKS: Final = 25
"""How many looks frames wait for another agent to bring them. They are counted, and not the time,
for while this process stands still that one brings nothing either."""

WAITING_MAX: Final = 16_384
"""Frames that wait at most; of more, the oldest are published."""


@dataclass(kw_only=True, eq=False)
class Delivery:
    """Publishes on our own broker."""

    self_id: BrokerId
    marker_topic: str  # where our broker keeps custody's marker
    counters: DataCounters
    tell: Callable[[Notice], None]
    to_local_names: Callable[[bytes], bytes]
    retained: RetainedFlow | None
    frame_events: FrameEventSink | None
    stamps: Stamps | None = None  # knows what came by another way
    link: DataLink | None = None  # to our broker, once it is made
    waiting: "WaitingFrames | None" = None  # what another one may bring first
    # Told the keys of a frame, its packets by their names here, and how many they are.
    note_arrival: Callable[[bytes, bytes, int], None] | None = None
    delays: Delays = field(default_factory=Delays)

    def __post_init__(self) -> None:
        self._complaints: RateLimiter[None] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1)
        self._ahead: RateLimiter[BrokerId] = RateLimiter(gap_ms=CLOCK_GAP_MS, keys_max=CLOCKS_MAX)
        self._checker = RunChecker()

    @property
    def room(self) -> bool:
        """Our broker can take a good deal more."""
        return self.link is not None and self.link.room

    @property
    def settled(self) -> bool:
        """Our broker has acknowledged all that we published."""
        return self.link is not None and not self.link.unacknowledged

    def mark(self, marker: bytes, *, asks: bool = False) -> None:
        """Have our broker keep ``marker`` behind all that we published.

        At QoS 0 it leaves with the last of that, and our broker has no answer to send. What still
        waits for room, or for a connection, only a QoS 1 publication stays behind; and with
        ``asks`` it is one, for our broker may refuse it.
        """
        link, topic = self.link, self.marker_topic
        if link is None:
            return
        plain = PublishPacket(topic, marker, retain=True).write()
        if not (asks or link.waiting) and link.write_packets((plain,), 1):
            return
        qos = QoS.AT_LEAST_ONCE
        written = PublishPacket(topic, marker, qos=qos, retain=True, packet_id=1).write()
        encoded = topic.encode()
        link.publish_packet(bytearray(written), written.find(encoded) + len(encoded), 1)

    def malformed(self, error: DecodeError, now_ms: Millis) -> None:
        """Count a frame that is not what it should be, and say so now and then."""
        self.counters.malformed_frames += 1
        if self._complaints.allow(None, now_ms):
            so_far = self.counters.malformed_frames
            details: dict[str, int | str] = {"reason": str(error), "so_far": so_far}
            self.tell(Notice("frame.malformed", "warning", details))

    def deliver(self, frame: Frame, now: Now) -> None:
        """Publish the body of ``frame``, and note how long it took to come."""
        if self.waiting is not None and frame.acknowledged:
            for each in self.waiting.put(frame):
                self._deliver(each, now)
        else:
            self._deliver(frame, now)

    def look_at_waiting(self, now: Now) -> None:
        """Publish what waited long enough."""
        if self.waiting is not None:
            for each in self.waiting.look():
                self._deliver(each, now)

    def deliver_waiting(self, now: Now) -> None:
        """Publish what waits; nothing waits any more."""
        waiting, self.waiting = self.waiting, None
        for each in waiting.all() if waiting is not None else ():
            self._deliver(each, now)

    def deliver_in_order(self, frames: Sequence[Frame], now: Now) -> None:
        """Publish frames of one bundle, their packets in the order in which they were published.

        Whole frames, one after the other, where that is the order, where stamps count what is alike
        in a frame, and where one of them is malformed: the others must not be lost with it.
        """
        runs = runs_of(frames)
        joined: list[tuple[Frame, list[Run]]] = []
        counted = self.stamps is not None and self.stamps.counts_in_frames
        if self.waiting is None and self.note_arrival is None and not counted:
            with contextlib.suppress(DecodeError):
                joined = list(self._joined(frames, runs))
        if not joined:
            for index in dict.fromkeys(index for index, _ in runs):
                self.deliver(frames[index], now)
            return
        taken_of = [0] * len(frames)
        for frame, pieces in joined:
            taken = self._publish(frame, now)
            for index, count in pieces:
                taken_of[index] += min(count, taken)
                taken -= min(count, taken)
        for frame, taken in zip(frames, taken_of, strict=True):
            self._note_delivered(frame, taken, now)

    def _joined(
        self, frames: Sequence[Frame], runs: Sequence[Run]
    ) -> Iterator[tuple[Frame, list[Run]]]:
        """The packets of ``frames`` in order, as few frames of one kind and one time: each with
        its runs.

        Raises:
            DecodeError: One of them is malformed.
        """
        pieces = zip(runs, in_order([frame.body for frame in frames], runs), strict=True)

        def kind_of(piece: tuple[Run, memoryview]) -> tuple[bool, int]:
            frame = frames[piece[0][0]]
            return frame.acknowledged, frame.origin_time_us

        for _, alike in groupby(pieces, kind_of):
            its_runs, bodies = zip(*alike, strict=True)
            body, count = b"".join(bodies), sum(count for _, count in its_runs)
            like = frames[its_runs[0][0]]
            self._checker.check(body, acknowledged=like.acknowledged, publications=count)
            yield replace(like, body=memoryview(body), publications=count), list(its_runs)

    def _deliver(self, frame: Frame, now: Now) -> None:
        self._note_delivered(frame, self._publish(frame, now), now)

    def _note_delivered(self, frame: Frame, taken: int, now: Now) -> None:
        """Note that our broker took ``taken`` publications of ``frame``."""
        delay_us = now.us - frame.origin_time_us
        self.delays.note(frame.origin, frame.hops + 1, delay_us)
        if delay_us < -CLOCK_AHEAD_US and self._ahead.allow(frame.origin, now.ms):
            seconds = -delay_us // 1_000_000
            details: dict[str, int | str] = {"origin": frame.origin, "ahead_s": seconds}
            self.tell(Notice("clock.ahead", "warning", details))
        if taken and self.frame_events is not None:
            origin, size = frame.origin, len(frame.body)
            hops = frame.hops + (origin != self.self_id)
            self.frame_events.add(
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
                    frame.origin_time_us,
                )
            )

    def _publish(self, frame: Frame, now: Now) -> int:
        """Publish the body of ``frame``; how many publications our broker's connection took."""
        run, count, taken = bytes(frame.body), frame.publications, 0
        under_custody = frame.acknowledged
        try:
            places = self._checker.check(run, acknowledged=under_custody, publications=count)
            retained = self.retained if self._checker.retained else None
            here = run
            if self.stamps is not None:
                may_bear = self._checker.properties
                here = self.stamps.arriving(frame, run, now_ms=now.ms, may_bear=may_bear)
            if retained is not None:
                here = retained.arrive(here, time_us=frame.origin_time_us, origin=frame.origin)
            if (landed := self.to_local_names(here)) is not run:
                # Other packets now, perhaps none: what was checked says nothing about them.
                run, count = landed, len(topics_of(landed))
                places = self._checker.check(run, acknowledged=under_custody, publications=count)
                if not count:
                    return 0
        except DecodeError as error:
            self.malformed(error, now.ms)
            return 0
        link = self.link
        if link is None:
            pass
        elif under_custody:
            taken = link.publish_run(run, places)
        elif link.write_packets([run], count):
            taken = count
        if taken < count and retained is not None:
            retained.missed(bytes(frame.body))
        if self.note_arrival is not None and taken:
            self.note_arrival(frame.keys, run, count)
        self.counters.delivered_publications += taken
        self.counters.dropped += count - taken
        return taken


class WaitingFrames:
    """Frames under custody that are published a little later: another agent here may bring them.

    Who comes to a stream in the middle of it may be ahead of who brought it until then. It lets
    that one go on first, and gives what it missed; so the stream stays in order.
    """

    def __init__(self) -> None:
        self._frames: deque[tuple[int, Frame]] = deque()  # with the look at which each came
        self._looks = 0

    def put(self, frame: Frame) -> list[Frame]:
        """Let ``frame`` wait; what waits no longer."""
        self._frames.append((self._looks, replace(frame, body=memoryview(bytes(frame.body)))))
        over = len(self._frames) - WAITING_MAX
        return [self._frames.popleft()[1] for _ in range(max(0, over))]

    def look(self) -> list[Frame]:
        self._looks += 1
        taken = []
        while self._frames and self._frames[0][0] + WAIT_LOOKS < self._looks:
            taken.append(self._frames.popleft()[1])
        return taken

    def all(self) -> list[Frame]:
        return [frame for _, frame in self._frames]
