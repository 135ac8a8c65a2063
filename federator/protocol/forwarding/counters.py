"""The counters of the data path: plain integers, incremented on the hot path and read on demand.

Source: docs/observability.md.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from federator.protocol.types import BrokerId

ARRIVALS_MAX = 1_024

DELAY_BOUNDS_US = tuple(250 * 2**exponent for exponent in range(16))
"""Upper bounds of the delay histogram, 0.25 ms to 8.2 s; one more count is for longer delays."""

AHEAD_US = 50_000
"""Synchronised clocks differ by less."""


@dataclass(slots=True)
class DataCounters:
    """Counts since the agent started. Most count publications; where frames count, it says so."""

    publications_in: int = 0  # received from our own clients
    publications_out: int = 0  # sent in frames by us as their origin, once per publication
    frames_out: int = 0  # frames written to neighbours' brokers, each copy counted
    copies_out: int = 0  # in those frames
    frame_bytes_out: int = 0  # of those frames
    frames_in: int = 0  # frames that arrived
    frame_bytes_in: int = 0  # in those frames
    relayed: int = 0  # in frames forwarded for other origins, once per next hop
    delivered_publications: int = 0  # published on our own broker
    duplicate_frames: int = 0  # frames that arrived before
    duplicates_suppressed: int = 0  # in such frames
    no_route: int = 0  # others want them, but no neighbour leads there now
    kept: int = 0  # collected elsewhere, and kept here nevertheless, as a steerer's plan says
    kept_bytes: int = 0  # of their packets
    unwanted: int = 0  # covered by our subscriptions, but wanted by no broker
    # Filter keys in frames that we have no route for (our table lags behind).
    unknown_filters: int = 0
    # Delivered, though no client is known to want them: see ``Discovery.doubted``.
    in_doubt: int = 0
    in_doubt_bytes: int = 0  # of the frames with those
    hop_limit_exceeded: int = 0  # frames that travelled too far to be forwarded
    malformed_frames: int = 0  # frames that do not decode or that no broker would accept
    # Frames whose sender has no link to us, or from a leaf in another broker's name; dropped.
    frames_of_strangers: int = 0
    unproven_frames: int = 0  # frames under custody that their origin did not prove; dropped
    dropped: int = 0  # refused by a connection: it is down, or its queue is full. Lost
    # As ``dropped``, or kept out of a full queue, but under custody: they will be requested.
    deferred: int = 0
    redelivered: int = 0  # sent again by our broker, although in our log already
    # Flows that used a new route before their former one was known to be empty.
    flows_unsettled: int = 0


@dataclass(slots=True)
class Delays:
    """How long frames took from their origin to us, by wall clocks: skew included, never negative.

    Attributes:
        ahead: Frames that their origin dated more than ``AHEAD_US`` later than our clock: one of
            the two clocks is wrong.
        counts: Frames by ``DELAY_BOUNDS_US``.
        sum_us: Of all delays.
        latest: (origin, links travelled, delay in microseconds) of the latest frames.
    """

    ahead: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(DELAY_BOUNDS_US) + 1))
    sum_us: int = 0
    latest: deque[tuple[BrokerId, int, int]] = field(
        default_factory=lambda: deque(maxlen=ARRIVALS_MAX)
    )

    def note(self, origin: BrokerId, links: int, delay_us: int) -> None:
        """Record one frame."""
        if delay_us < -AHEAD_US:
            self.ahead += 1
        delay_us = max(0, delay_us)
        self.counts[bisect_left(DELAY_BOUNDS_US, delay_us)] += 1
        self.sum_us += delay_us
        self.latest.append((origin, links, delay_us))
