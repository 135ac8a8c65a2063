"""Records what one agent did with sampled frames, from frame events, within bounds.

Clients decide how many frames there are, so a share of them may still be too many. Beyond a number
per second no more are followed, and in the next second the share is smaller: a subset of other
agents' shares, so that traces stay whole where all agents are equally busy. After seconds with few
frames the share grows again.

Source: docs/how-to/opentelemetry.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG
from federator.protocol.opentelemetry.spans import FrameName
from federator.protocol.telemetry.frame_events import (
    Came,
    Delivered,
    FrameEvent,
    FrameEventSink,
    Made,
    Refused,
    Sent,
)
from federator.protocol.telemetry.records import place_of, salt_of
from federator.protocol.types import BrokerId, Millis, Now

FOLLOWED_MS: Final = 1_000
"""How long a frame is followed; a later delivery from custody is a span of its own."""
CLOSED_MAX: Final = 4_096
"""Frames remembered as reported."""
COPIES_MAX: Final = 64
"""Next hops of one frame in a span."""
_SECOND_MS: Final = 1_000


class Hop(msgspec.Struct, kw_only=True):
    """What this agent did with one frame. Times are by its wall clock, in microseconds."""

    frame: FrameName
    place: int
    places: int  # the number of places followed, one of which is ``place``
    opened_ms: Millis
    start_us: int  # when it arrived, or was made
    end_us: int  # when it was last sent or delivered
    begun: bool = False  # its arrival or making was recorded
    sender: BrokerId | None = None  # the previous hop; ``None``: we made it, or it is a delivery
    hops: int = 0  # links travelled
    flags: int = 0
    publications: int = 0
    size: int = 0  # bytes, from the event
    origin_time_us: int | None = None
    keys: bytes = b""  # of the filters that routed it, if an event had them
    delivered: int = 0  # publications that were written to our broker's connection
    sent_to: list[BrokerId] = msgspec.field(default_factory=list)
    # Neighbours with a full queue.
    refused_to: list[BrokerId] = msgspec.field(default_factory=list)
    lost: int = 0  # publications of QoS 0 for them
    is_delivery: bool = False  # a frame reported before, which was delivered only now

    @property
    def is_one(self) -> bool:
        """Whether the frame's arrival was recorded, or that it was sent.

        A frame that we make while there is no route to any broker goes nowhere, and the next frame
        gets its number.
        """
        went = self.sent_to or self.refused_to
        return self.begun and bool(self.sender is not None or self.is_delivery or went)


@dataclass(kw_only=True, eq=False, repr=False)
class HopRecorder:
    """Follows a share of all frames; satisfies ``FrameEventSink``.

    Attributes:
        passed_over: Frames of the share that were not followed: too many in a second.
    """

    self_id: BrokerId
    places: int  # how many of the ``PLACES`` are followed now: the share
    hops_per_s_max: int  # new frames
    now: Callable[[], Now]
    also: FrameEventSink | None = None  # gets all events, too
    passed_over: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._places_max = self.places
        self._open: dict[FrameName, Hop] = {}
        self._closed: Recent[FrameName, None] = Recent(CLOSED_MAX)
        self._second_ms = self.now().ms
        self._opened = self._refused = 0  # in this second

    def add(self, event: FrameEvent) -> None:
        """Record an event, if its frame is followed."""
        if self.also is not None:
            self.also.add(event)
        origin = self.self_id if isinstance(event, Made) else event.origin
        place = place_of(salt_of(origin, event.epoch), event.seq)
        if place < self._places_max and event.publications:
            self._note(event, origin, place)

    def take(self) -> list[Hop]:
        """Return finished hops; call several times a second."""
        now_ms = self.now().ms
        if now_ms - self._second_ms >= _SECOND_MS:
            self._end_second(now_ms)
        over: list[Hop] = []
        for frame, hop in self._open.items():  # in the order in which they were opened
            if now_ms - hop.opened_ms < FOLLOWED_MS:
                break
            over.append(hop)
            if hop.is_one:
                self._closed.put(frame, None)
        for hop in over:
            del self._open[hop.frame]
        return [hop for hop in over if hop.is_one]

    def take_all(self) -> list[Hop]:
        """Return all hops, finished or not, before we stop."""
        hops = [hop for hop in self._open.values() if hop.is_one]
        self._open.clear()
        return hops

    # Helpers

    def _note(self, event: FrameEvent, origin: BrokerId, place: int) -> None:
        if isinstance(event, Came) and event.repeated:
            return
        frame = FrameName(origin, event.epoch, event.flags & CUSTODY_FLAG, event.seq)
        hop = self._open.get(frame)
        if hop is None:
            hop = self._opened_for(event, frame, place)
            if hop is None:
                return
        if isinstance(event, Came | Made):
            self._begin(hop, event)
            return
        hop.end_us = max(hop.end_us, self.now().us)
        if isinstance(event, Delivered):
            self._deliver(hop, event)
        elif isinstance(event, Sent):
            if len(hop.sent_to) < COPIES_MAX:
                hop.sent_to.append(event.neighbour)
        else:
            hop.lost += 0 if event.kept else event.publications
            if len(hop.refused_to) < COPIES_MAX:
                hop.refused_to.append(event.neighbour)

    def _opened_for(self, event: FrameEvent, frame: FrameName, place: int) -> Hop | None:
        """A hop for the first event of ``frame``; ``None``: it is not followed, or no longer."""
        if isinstance(event, Sent | Refused) and event.flags & REPAIR_FLAG:
            return None  # a late answer to a repair request
        if frame in self._closed and not isinstance(event, Delivered):
            return None
        if place >= self.places or self._opened >= self.hops_per_s_max:
            if isinstance(event, Came | Made):
                self.passed_over += 1
                self._refused += place < self.places
            return None
        self._opened += 1
        now = self.now()
        hop = Hop(
            frame=frame,
            place=place,
            places=self.places,
            opened_ms=now.ms,
            start_us=now.us,
            end_us=now.us,
        )
        if frame in self._closed:
            hop.begun = hop.is_delivery = True
        self._open[frame] = hop
        return hop

    def _begin(self, hop: Hop, event: Came | Made) -> None:
        if hop.is_one:
            return  # another copy, for other filters
        hop.begun = True
        hop.flags, hop.publications, hop.size = event.flags, event.publications, event.bytes
        if isinstance(event, Came):
            hop.sender, hop.hops = event.sender, event.hops
            hop.start_us, hop.origin_time_us = event.now_us, event.origin_time_us
        else:
            hop.start_us, hop.keys = event.time_us, event.keys
        hop.end_us = max(hop.end_us, hop.start_us)

    def _deliver(self, hop: Hop, event: Delivered) -> None:
        hop.delivered += event.publications
        hop.keys, hop.origin_time_us = event.keys, event.origin_time_us
        if hop.is_delivery:
            hop.flags, hop.hops = event.flags, event.hops
            hop.publications, hop.size = event.publications, event.bytes

    def _end_second(self, now_ms: Millis) -> None:
        """Reduce the share if this second had too many frames, and raise it if it had few."""
        asked = self._opened + self._refused
        if asked > self.hops_per_s_max:
            self.places = max(1, self.places * self.hops_per_s_max // asked)
        elif 2 * asked <= self.hops_per_s_max:
            self.places = min(2 * self.places, self._places_max)
        self._opened = self._refused = 0
        self._second_ms = now_ms
