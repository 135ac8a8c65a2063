"""What an agent publishes on its own broker: the publications in frames, and custody's marker.

A frame's body is written to our broker as it came, once every packet in it was checked: after one
wrong byte the broker would close our connection.

Source: docs/protocol.md sections 8 and 11.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from mqtt5 import PublishPacket, QoS
from msgspec.structs import replace

from federator.errors import DecodeError
from federator.protocol.custody.ports import KnownStamp
from federator.protocol.data.features import Features
from federator.protocol.data.ports import DataLink, Stamps
from federator.protocol.effects import Notice
from federator.protocol.forwarding.bundles import Run, in_order, runs_of
from federator.protocol.forwarding.counters import DataCounters, Delays
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, topics_of
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.telemetry.frame_events import Delivered
from federator.protocol.types import BrokerId, Millis, Now

COMPLAINT_GAP_MS = Millis(60_000)

CLOCK_AHEAD_US: Final = 60_000_000
CLOCK_GAP_MS = Millis(600_000)
CLOCKS_MAX: Final = 256

WAIT_LOOKS: Final = 25
"""For how many looks a frame waits for another agent to bring it. Looks are counted instead of
time, for while this process stands still the other agent brings nothing either.
"""

WAITING_MAX: Final = 16_384
"""At most so many frames wait; of more, the oldest are published."""


@dataclass(eq=False)
class Delivery:
    """Publishes on our own broker."""

    self_id: BrokerId
    marker_topic: str  # where our broker keeps custody's marker
    counters: DataCounters
    tell: Callable[[Notice], None]
    features: Features
    delays: Delays = field(default_factory=Delays)

    def __post_init__(self) -> None:
        self.link: DataLink | None = self.features.link  # to our broker
        self.stamps: Stamps | None = self.features.stamps  # recognises what came by another way
        self._retained, self._frame_events = self.features.retained, self.features.frame_events
        self._note_arrival = self.features.note_arrival
        self._complaints: RateLimiter[None] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1)
        self._ahead: RateLimiter[BrokerId] = RateLimiter(gap_ms=CLOCK_GAP_MS, keys_max=CLOCKS_MAX)
        self._checker = RunChecker()
        self._waiting: WaitingFrames | None = None  # frames that another agent may bring first

    @property
    def room(self) -> bool:
        """Whether our broker can take a good deal more."""
        return self.link is not None and self.link.room

    @property
    def settled(self) -> bool:
        """Whether our broker has acknowledged everything that we published."""
        return self.link is not None and not self.link.unacknowledged

    @property
    def unsaved_stamps(self) -> MutableSequence[KnownStamp]:
        return [] if self.stamps is None else self.stamps.unsaved

    def mark(self, marker: bytes, *, asks: bool = False) -> None:
        """Publish the retained ``marker`` after everything that we published.

        At QoS 0 it leaves together with the last of that, and our broker sends no answer. If
        publications still wait for room, or for a connection, only a QoS 1 publication stays behind
        them. With ``asks`` it is one as well, for our broker may refuse it.
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

    def publish_over(self, link: DataLink | None) -> DataLink | None:
        """Publish over another connection; return the former one."""
        former, self.link = self.link, link
        return former

    def malformed(self, error: DecodeError, now_ms: Millis) -> None:
        """Count a malformed frame, and report it now and then."""
        self.counters.malformed_frames += 1
        if self._complaints.allow(None, now_ms):
            so_far = self.counters.malformed_frames
            details: dict[str, int | str] = {"reason": str(error), "so_far": so_far}
            self.tell(Notice("frame.malformed", "warning", details))

    def deliver(self, frame: Frame, now: Now) -> None:
        """Publish the body of ``frame``, and record its delay."""
        if self._waiting is not None and frame.acknowledged:
            for due in self._waiting.put(frame):
                self._deliver(due, now)
        else:
            self._deliver(frame, now)

    def wait(self) -> None:
        """Let frames under custody wait: another agent at our broker may bring them first."""
        self._waiting = WaitingFrames()

    def look_at_waiting(self, now: Now) -> None:
        """Publish frames that waited long enough."""
        if self._waiting is not None:
            for due in self._waiting.look():
                self._deliver(due, now)

    def deliver_waiting(self, now: Now) -> None:
        """Publish all waiting frames, and stop waiting."""
        waiting, self._waiting = self._waiting, None
        for frame in waiting.all() if waiting is not None else ():
            self._deliver(frame, now)

    def deliver_in_order(self, frames: Sequence[Frame], now: Now) -> None:
        """Publish frames of one bundle, their packets in the order in which they were published.

        Frames are published whole, one after the other, if that is their order, if stamps number
        equal publications within a frame, or if one frame is malformed: the others must not be lost
        with it.
        """
        runs = runs_of(frames)
        joined: list[tuple[Frame, list[Run]]] = []
        counted = self.stamps is not None and self.stamps.counts_in_frames
        if self._waiting is None and self._note_arrival is None and not counted:
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
        """The packets of ``frames`` in order, in as few frames of one kind and time as possible:
        each with its runs.

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
        if taken and self._frame_events is not None:
            origin, size = frame.origin, len(frame.body)
            hops = frame.hops + (origin != self.self_id)
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
                    frame.origin_time_us,
                )
            )

    def _publish(self, frame: Frame, now: Now) -> int:
        """Publish the body of ``frame``; return how many publications our connection accepted."""
        run, count, taken = bytes(frame.body), frame.publications, 0
        under_custody = frame.acknowledged
        try:
            places = self._checker.check(run, acknowledged=under_custody, publications=count)
            retained = self._retained if self._checker.retained else None
            here = run
            if self.stamps is not None:
                may_bear = self._checker.properties
                here = self.stamps.arriving(frame, run, now_ms=now.ms, may_bear=may_bear)
            if retained is not None:
                here = retained.arrive(here, time_us=frame.origin_time_us, origin=frame.origin)
            if (landed := self.features.to_local_names(here)) is not run:
                # These are other packets, perhaps none: they were not checked.
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
        if self._note_arrival is not None and taken:
            self._note_arrival(frame.keys, run, count)
        self.counters.delivered_publications += taken
        self.counters.dropped += count - taken
        return taken


class WaitingFrames:
    """Frames under custody that are published a little later: another agent here may bring them.

    An agent that joins a stream in its middle may be ahead of the agent that brought the stream
    until then. It lets that one go on first, and fills what that one missed; so the stream stays in
    order.
    """

    def __init__(self) -> None:
        # With the number of the look at which each came.
        self._frames: deque[tuple[int, Frame]] = deque()
        self._looks = 0

    def put(self, frame: Frame) -> list[Frame]:
        """Let ``frame`` wait; return the frames that no longer fit."""
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
