"""Events that the data path records while it works: one per frame, nothing more.

The hot path only appends events; ten times a second a window aggregator interprets and adds them
up, off the hot path.

Source: docs/metrics.md, "What it costs".
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from federator.protocol.types import BrokerId

EVENTS_MAX: Final = 8_192


class Came(msgspec.Struct, gc=False):
    """A frame arrived."""

    sender: BrokerId
    publications: int
    bytes: int
    repeated: bool  # a duplicate
    flags: int
    origin: BrokerId
    epoch: int
    seq: int
    hops: int  # links travelled, the last one included
    origin_time_us: int
    now_us: int  # the wall clock


class Delivered(msgspec.Struct, gc=False):
    """We sent a frame's publications to our broker."""

    origin: BrokerId
    hops: int  # links travelled
    flags: int
    keys: bytes
    epoch: int
    seq: int
    publications: int  # those that were written to our broker's connection
    bytes: int  # of the body
    delay_us: int  # since its origin made the frame, by both brokers' clocks
    origin_time_us: int


class Made(msgspec.Struct, gc=False):
    """We made a frame of our clients' publications."""

    keys: bytes
    flags: int
    epoch: int
    seq: int
    publications: int
    bytes: int
    time_us: int


class Sent(msgspec.Struct, gc=False):
    """A copy of a frame was written to a neighbour's connection."""

    neighbour: BrokerId
    publications: int
    bytes: int
    flags: int
    origin: BrokerId
    epoch: int
    seq: int


class Refused(msgspec.Struct, gc=False):
    """A copy of a frame could not be sent; under custody the receiver requests it later."""

    neighbour: BrokerId
    publications: int
    kept: bool
    flags: int
    origin: BrokerId
    epoch: int
    seq: int


FrameEvent: TypeAlias = Came | Delivered | Made | Sent | Refused


class FrameEventSink(Protocol):
    """Where the data path records its events."""

    def add(self, event: FrameEvent) -> None:
        """Record an event. Called for each frame: it is fast, and never raises."""


class FrameEventBuffer:
    """The events since they were last taken.

    Args:
        events_max: When there are so many, ``on_full`` takes them at once.
    """

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self.on_full: Callable[[], object] = self.take  # without a taker they are dropped
        self._events: list[FrameEvent] = []
        self._events_max = events_max

    def add(self, event: FrameEvent) -> None:
        events = self._events
        events.append(event)
        if len(events) >= self._events_max:
            self.on_full()

    def take(self) -> Sequence[FrameEvent]:
        """Return all recorded events, and empty the buffer."""
        events, self._events = self._events, []
        return events
