"""What the data path writes down while it works: one event per frame, nothing more.

The hot path only adds events; ten times a second a window aggregator reads what they mean and adds
them up, off the hot path.

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
    repeated: bool  # it was here before
    flags: int
    origin: BrokerId
    epoch: int
    seq: int
    hops: int  # links travelled, the last one included
    origin_time_us: int
    now_us: int  # the wall clock


class Delivered(msgspec.Struct, gc=False):
    """A frame's publications were handed to our broker."""

    origin: BrokerId
    hops: int  # links travelled
    flags: int
    keys: bytes
    epoch: int
    seq: int
    publications: int  # those that our broker's connection took
    bytes: int  # of the body
    delay_us: int  # since its origin made the frame, by two clocks
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
    """A copy of a frame could not be sent; under custody it is asked for later."""

    neighbour: BrokerId
    publications: int
    kept: bool
    flags: int
    origin: BrokerId
    epoch: int
    seq: int


FrameEvent: TypeAlias = Came | Delivered | Made | Sent | Refused


class FrameEventSink(Protocol):
    """What the data path tells its events."""

    def add(self, event: FrameEvent) -> None:
        """Write down an event. Called for each frame: it takes a moment, and never raises."""


class FrameEventBuffer:
    """The events since somebody last took them.

    Args:
        events_max: When there are so many, they are taken at once.
    """

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self.on_full: Callable[[], None] = self._forget  # takes them
        self.lost = 0  # events forgotten, because nobody takes them
        self._events: list[FrameEvent] = []
        self._events_max = events_max

    def add(self, event: FrameEvent) -> None:
        """Write down an event."""
        events = self._events
        events.append(event)
        if len(events) >= self._events_max:
            self.on_full()

    def take(self) -> Sequence[FrameEvent]:
        """All events written down; the buffer is empty then."""
        events, self._events = self._events, []
        return events

    def _forget(self) -> None:
        self.lost += len(self.take())
