"""Measures what our own clients publish, by flow: the rate and its error.

A flow is what one set of filters matches. The data plane adds each frame of ours to the counter of
its route, and nothing more; once a second the counters become a **window** of each flow. A rate is
the mean of the last ``WINDOWS``; its standard error follows from their variation. So after ten
seconds a lasting change makes up the whole mean, with a small error, while a burst of two seconds
moves the mean by a fifth of itself and makes the error nearly as large: a reader that requires two
errors ignores it.

There may be as many flows as clients can invent filters, so only the heaviest are followed. A
followed flow is counted exactly, however many others there are. A new heavy flow among many is
found as a majority is found by crossing out votes in pairs (Misra and Gries 1982): a flow with more
than one part in ``NEWCOMERS_MAX`` of a window's bytes is found in that window.

Source: docs/observability.md, "How full links are".
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import sqrt
from operator import itemgetter
from typing import Final, NamedTuple

from federator.protocol.forwarding.forwarding import Forwarder, TopicRoute
from federator.protocol.forwarding.frames import KEY_BYTES, keys_in, label_bytes
from federator.protocol.messages.destinations import filter_part
from federator.protocol.messages.steering import BROKERS_MAX, FILTERS_MAX, FlowLoad, MeshFlow
from federator.protocol.types import BrokerId, Millis

WINDOW_MS: Final = 1_000
WINDOWS: Final = 10
ROUTES_MAX: Final = 1_024
"""Routes with counters that are still to be added to flows."""

NEWCOMERS_MAX: Final = 1_024
SPARE: Final = 2
"""We follow so many times the reported flows, so that others can overtake the lightest reported
one: of steerable flows, and as many others; neither crowds out the other."""

FILTER_CHARS_MAX: Final = 65_536
"""Characters of the filters of all reported flows: a filter may have 65,535 bytes."""


@dataclass(slots=True)
class _Flow:
    """Bytes and publications of one flow: of the open window, and of each closed one."""

    bytes: int = 0
    publications: int = 0
    steerable: bool = False  # some broker wanted it over the shortest path when last seen
    windows: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WINDOWS))

    def close(self) -> None:
        """Close the open window."""
        self.windows.append((self.bytes, self.publications))
        self.bytes = self.publications = 0

    def carried(self) -> int:
        """The bytes of all closed windows."""
        return sum(map(itemgetter(0), self.windows))


class _About(NamedTuple):
    filters: tuple[str, ...]
    destinations: tuple[BrokerId, ...]
    meshed: bool  # some of its filters are routed in a mesh


class FlowMeter:
    """Measures the flows of one broker's clients.

    Args:
        flows_max: Flows that are reported.
        frame_overhead_bytes: Bytes of a frame on the wire beside its label and its body.
    """

    def __init__(self, flows_max: int, *, frame_overhead_bytes: int = 0) -> None:
        self._flows_max = flows_max
        self._overhead_bytes = frame_overhead_bytes
        self._open: dict[TopicRoute, list[int]] = {}  # bytes of bodies, publications, frames
        self._flows: dict[bytes, _Flow] = {}  # followed flows, by the keys of their filters
        self._newcomers: dict[bytes, _Flow] = {}  # their bytes are a lower bound
        self._all = _Flow()
        self._spans_ms: deque[int] = deque(maxlen=WINDOWS)
        self._since_ms: Millis | None = None

    def add(self, route: TopicRoute, size: int, publications: int) -> None:
        """Count a frame with a body of ``size`` bytes for ``route``, even one without next hops.

        Everything in its label beside keys and mask counts as its body. Called for each frame.
        """
        counted = self._open.get(route)
        if counted is None:
            if len(self._open) >= ROUTES_MAX:
                self._fold()
            counted = self._open[route] = [0, 0, 0]
        counted[0] += size
        counted[1] += publications
        counted[2] += 1

    def on_time(self, now_ms: Millis) -> None:
        """Close the window if it is due; call every ``WINDOW_MS`` or so."""
        if self._since_ms is None:
            self._since_ms = now_ms
        span_ms = now_ms - self._since_ms
        if 2 * span_ms <= WINDOW_MS:
            return
        self._fold()
        for flow in self._newcomers.values():
            flow.windows.extend([(0, 0)] * len(self._spans_ms))
        self._flows |= self._newcomers
        self._newcomers.clear()
        self._spans_ms.append(span_ms)
        self._since_ms = now_ms
        self._all.close()
        for flow in self._flows.values():
            flow.close()
        self._follow_heaviest()

    def told(
        self, forwarder: Forwarder, *, steerable: bool = False, most: int | None = None
    ) -> tuple[tuple[FlowLoad, ...], float]:
        """The heaviest flows, heaviest first, and the bit/s of all others together.

        Args:
            forwarder: Knows filters by key, and which brokers want them now.
            steerable: Only flows that some broker wants over the shortest path.
            most: At most so many, if fewer than ``flows_max``.
        """
        flows: list[FlowLoad] = []
        for flow, (filters, destinations, meshed) in self._listed(
            forwarder, lambda about: not steerable or bool(about.destinations), most
        ):
            rate, error = self._rate(flow)
            is_planned = bool(forwarder.trees.of_flow(filters))
            count = self._publications(flow)
            flows.append(FlowLoad(filters, destinations, rate, error, count, meshed, is_planned))
        total = self._rate(self._all)[0]
        return tuple(flows), max(0.0, total - sum(flow.rate for flow in flows))

    def told_of_meshes(self, forwarder: Forwarder) -> tuple[MeshFlow, ...]:
        """The heaviest flows that are wanted in a mesh, heaviest first."""
        listed = self._listed(forwarder, lambda about: about.meshed)
        return tuple(MeshFlow(about.filters, self._publications(flow)) for flow, about in listed)

    # Helpers

    def _listed(
        self, forwarder: Forwarder, fits: Callable[[_About], bool], most: int | None = None
    ) -> Iterator[tuple[_Flow, _About]]:
        """The heaviest flows that fit, as many as are reported, or ``most``."""
        left = self._flows_max if most is None else min(most, self._flows_max)
        room = FILTER_CHARS_MAX
        for keys, flow in self._flows.items():  # heaviest first, since the last window
            if not left:
                return
            about = _about(keys, forwarder)
            if about is None or not fits(about):
                continue
            size = sum(map(len, about.filters))
            if size <= room:
                left, room = left - 1, room - size
                yield flow, about

    def _publications(self, flow: _Flow) -> float:
        """Publications per second."""
        return sum(count for _, count in flow.windows) * 1_000 / sum(self._spans_ms)

    def _follow_heaviest(self) -> None:
        ranked: list[tuple[int, bytes, _Flow]] = []
        for steerable in (True, False):
            alike = [
                (flow.carried(), keys, flow)
                for keys, flow in self._flows.items()
                if flow.steerable is steerable
            ]
            ranked += heapq.nlargest(SPARE * self._flows_max, alike, key=itemgetter(0))
        ranked.sort(key=lambda flow: (-flow[0], flow[1]))
        self._flows = {keys: flow for carried, keys, flow in ranked if carried}

    def _rate(self, flow: _Flow) -> tuple[float, float]:
        """bit/s, and its standard error: that of a ratio, because windows differ in length."""
        spans_ms, sizes = self._spans_ms, [size for size, _ in flow.windows]
        count, total_ms = len(spans_ms), sum(spans_ms)
        if not count:
            return 0.0, 0.0
        per_ms = sum(sizes) / total_ms
        if count == 1:
            return 8_000 * per_ms, 8_000 * per_ms
        squares = sum((s - per_ms * t) ** 2 for s, t in zip(sizes, spans_ms, strict=True))
        return 8_000 * per_ms, 8_000 * sqrt(squares * count / (count - 1)) / total_ms

    def _fold(self) -> None:
        """Add the counters of routes to their flows."""
        for route, (bodies, publications, frames) in self._open.items():
            size = bodies + frames * (label_bytes(route.keys) + self._overhead_bytes)
            self._all.bytes += size
            self._all.publications += publications
            keys = filter_part(route.keys)
            if not 0 < len(keys) <= FILTERS_MAX * KEY_BYTES:
                continue
            flow = self._flows.get(keys) or self._newcomers.get(keys)
            if flow is None:
                flow = self._newcomers[keys] = _Flow()
            flow.bytes += size
            flow.publications += publications
            flow.steerable = len(route.keys) > len(keys)
            if len(self._newcomers) >= 2 * NEWCOMERS_MAX:
                self._cross_out()
        self._open.clear()

    def _cross_out(self) -> None:
        """Leave at most ``NEWCOMERS_MAX``: subtract from each the largest size dropped."""
        newcomers = self._newcomers
        crossed = heapq.nlargest(NEWCOMERS_MAX + 1, (f.bytes for f in newcomers.values()))[-1]
        self._newcomers = {keys: flow for keys, flow in newcomers.items() if flow.bytes > crossed}
        for flow in self._newcomers.values():
            flow.bytes -= crossed


def _about(keys: bytes, forwarder: Forwarder) -> _About | None:
    """The filters and destinations of a flow; ``None``: it cannot be reported."""
    filters = sorted(name for key in keys_in(keys) for name in forwarder.filters_with(key))
    routes = [route for name in filters if (route := forwarder.route_of(name)) is not None]
    ends = {end for route in routes for end in route.destinations}
    meshed = any(r.next_hops or (r.wanted and not r.destinations) for r in routes)
    whole = len(routes) == len(filters) >= len(keys) // KEY_BYTES  # each filter still has a route
    if not whole or len(filters) > FILTERS_MAX or len(ends) > BROKERS_MAX:
        return None
    return _About(tuple(filters), tuple(sorted(ends)), meshed)
