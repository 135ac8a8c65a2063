"""A flow of ours that moves to another route stays in order, at QoS 0 too.

What is sent by the new route would overtake what still waits in the queues of the former one. So
the origin, which alone decides the route, lets its clients' publications wait. After the last frame
by the former route it sends a **marker**, like the red lamp on the last carriage that tells each
signal box that the line is clear: a trace, which goes through the same queues as data, and whose
echoes report where it is. When every destination has reported a marker, the waiting publications
take the new route. So they come hardly later than they would have come by the former one.

A full queue may drop a marker like any frame of QoS 0, so there are several, at growing intervals.
When the echoes of one marker show that all its copies have ended, no more of them can come. The
wait is bounded in time and in bytes. At the bound the publications go in any case, and may be out
of order then. QoS 1 and 2 do not wait: custody puts them in order.

Source: docs/protocol.md 18.9.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.filters import overlaps
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Sends, TopicRoute
from federator.protocol.forwarding.publications import topics_of
from federator.protocol.messages.control import TraceEcho
from federator.protocol.messages.destinations import destinations_in, filter_part
from federator.protocol.messages.steering import LINKS_MAX
from federator.protocol.telemetry.tracing import Logbook, Stop, write_logbook
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Millis, Now

WAIT_MS_MIN: Final = 500
"""A flow waits at least so long: relays learn of the new route a little later than we."""

WAIT_MS_MAX: Final = 60_000
"""By then queues have drained what they usually hold: 15 MB on a link of 2 Mbit/s."""

WAIT_BYTES_MAX: Final = 8_388_608
"""Limit for all flows together; the flow that exceeds it goes on."""

MOVES_MAX: Final = 1_024
"""How many flows move at a time, of which most may be silent; others move without waiting."""

MARK_GAPS_MS: Final = (100, 1_000)
"""Between markers of one flow, at first and at last."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Publications of QoS 0 that are not in a frame yet."""

    packets: bytes
    count: int
    time_us: int  # when they came


@dataclass(slots=True)
class Move:
    """A flow that moves.

    Attributes:
        former: Its route until now.
        awaited: Destinations that no marker is known to have reached.
        topic: That of some waiting publication; empty: none came since the move began.
        markers: By number of the marker: the links on which copies are known to be under way.
        mark_ms: When the next marker is sent.
    """

    flow: tuple[str, ...]  # its filters
    former: TopicRoute
    awaited: set[BrokerId]
    since_ms: Millis
    topic: str = ""
    markers: dict[int, set[tuple[BrokerId, ...]]] = field(default_factory=dict)
    mark_ms: Millis | None = None
    gap_ms: int = MARK_GAPS_MS[0]
    waiting: list[Waiting] = field(default_factory=list)

    @property
    def due_ms(self) -> Millis | None:
        """When the move has something to do."""
        ends_ms = self.since_ms + (WAIT_MS_MAX if self.awaited else WAIT_MS_MIN)
        return earliest(Millis(ends_ms), self.mark_ms if self.awaited else None)


Release = Callable[[tuple[str, ...], Sequence[Waiting], Now], None]
"""Sends the publications that waited, of a flow given by its filters, by the present route."""


class Moves:
    """The flows of one origin that move.

    Args:
        mark: Sends a trace of a topic with this body by a route; returns its number and next
            hops, which are none where links are down or link policies stop that topic.
        release: Sends the publications that waited.
    """

    def __init__(
        self,
        self_id: BrokerId,
        mark: Callable[[TopicRoute, str, bytes, Now], tuple[int, Sends]],
        release: Release,
        *,
        counters: DataCounters,
    ) -> None:
        self.due_ms: Millis | None = None  # when ``on_time`` has something to do
        self.waiting_bytes = 0
        self._self_id, self._mark, self._release = self_id, mark, release
        self._counters = counters
        self._moves: dict[bytes, Move] = {}  # by the keys of their filters

    def __bool__(self) -> bool:
        """Whether any flow moves."""
        return bool(self._moves)

    def begin(self, flow: tuple[str, ...], former: TopicRoute, now_ms: Millis) -> None:
        """The flow ``flow`` leaves the route ``former`` now."""
        key = filter_part(former.keys)
        if key in self._moves or len(self._moves) >= MOVES_MAX:
            return  # the waiting publications did not use the route that is left now
        self._moves[key] = Move(flow, former, set(destinations_in(former.keys)), now_ms)
        self._set_due()

    def take(
        self, keys: bytes, parts: Sequence[bytes | memoryview], count: int, time_us: int, now: Now
    ) -> bool:
        """Let publications of QoS 0 wait if their flow moves; return whether they do."""
        key = filter_part(keys)
        move = self._moves.get(key)
        if move is None:
            return False
        packets = b"".join(parts)
        move.waiting.append(Waiting(packets, count, time_us))
        self.waiting_bytes += len(packets)
        if not move.topic:
            move.topic = topics_of(packets)[0][2].decode(errors="replace")
            self._send_marker(move, now)
            self._set_due()
        if self.waiting_bytes > WAIT_BYTES_MAX:
            self._end(key, now)
            self._set_due()
        return True

    def on_echo(self, echo: TraceEcho) -> None:
        """Handle an echo: a trace of ours reached the last broker of its path.

        When all copies of a marker have ended, destinations still awaited get nothing by the former
        route.
        """
        broker, link = echo.path[-1], echo.path[-2:]
        for move in self._moves.values():
            under_way = move.markers.get(echo.number)
            if under_way is None:
                continue
            move.awaited.discard(broker)
            if link in under_way and len(under_way) < LINKS_MAX:
                under_way.remove(link)
                under_way.update((broker, hop) for hop, _ in echo.next_hops)
                if not under_way:
                    move.awaited.clear()
        self._set_due()

    def forget(self, brokers: Iterable[BrokerId]) -> None:
        """There is no route to ``brokers`` now: do not wait for them."""
        for move in self._moves.values():
            move.awaited.difference_update(brokers)
        self._set_due()

    def on_time(self, now: Now) -> None:
        """Send markers, and the publications that need not wait any longer."""
        for key, move in list(self._moves.items()):
            due_ms = move.due_ms
            if due_ms is None or due_ms > now.ms:
                continue
            if not move.awaited or now.ms >= move.since_ms + WAIT_MS_MAX:
                self._end(key, now)
            else:
                self._send_marker(move, now)
        self._set_due()

    def end(self, now: Now, filter: str = "") -> None:
        """End all moves; with ``filter`` only those of flows that it may match in part."""
        for key, move in list(self._moves.items()):
            if not filter or any(overlaps(filter, other) for other in move.flow):
                self._end(key, now)
        self._set_due()

    def _send_marker(self, move: Move, now: Now) -> None:
        logbook = Logbook(move.topic, (Stop(self._self_id, now.us),))
        number, sends = self._mark(move.former, move.topic, write_logbook(logbook), now)
        if not sends:
            move.awaited.clear()  # these destinations get nothing by the former route
            return
        move.markers[number] = {(self._self_id, hop) for hop, _ in sends}
        move.mark_ms = Millis(now.ms + move.gap_ms)
        move.gap_ms = min(2 * move.gap_ms, MARK_GAPS_MS[1])

    def _end(self, key: bytes, now: Now) -> None:
        move = self._moves.pop(key)
        self.waiting_bytes -= sum(len(entry.packets) for entry in move.waiting)
        self._counters.flows_unsettled += bool(move.awaited and move.waiting)
        self._release(move.flow, move.waiting, now)

    def _set_due(self) -> None:
        self.due_ms = earliest(*(move.due_ms for move in self._moves.values()))
