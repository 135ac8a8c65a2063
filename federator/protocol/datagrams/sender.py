"""The sending end of a link over datagrams: frames out, followed by repair packets.

A part is sent as soon as the pace allows; no part waits for others. Parts that are sent within
``wait_ms`` are a **group**; when frames are rarer than that, those of each frame are. After it
repair packets follow for a window of this group and those before, so that each part is protected at
least twice: if a burst ate a part together with the repair packets after it, those after the next
group still repair it. A group without a next one gets its second window alone. A frame stays here
until a report says that it arrived completely.

If a report shows a frame as incomplete although everything for it must have arrived, or no report
mentions it in time, the frame is **given back**: its owner sends it through the broker.

Source: docs/udp-fec.md; RFC 9002 for what counts as lost and for round trips.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.datagrams import wire
from federator.protocol.datagrams.protection import Coder, repairs_for
from federator.protocol.types import Millis

REORDER_MAX: Final = 3
"""How many later datagrams may overtake another before that one counts as lost."""

TIMEOUT_FIRST_MS: Final = 500
TIMEOUT_EXTRA_MS: Final = 160
"""Added to round trips: reports wait, some are lost, and timers are late."""

QUEUE_MS_MAX: Final = 50
"""What may wait to be sent, in time at our pace; beyond it frames go through the broker."""

GAPS_KEPT: Final = 7
"""Intervals between frames; their median predicts the next one."""

GROUPS_BACK_MAX: Final = 2
PARTS_BACK_MAX: Final = 8
"""A window looks back on one group; on more only as long as they are short."""

BURST_MS: Final = 10
SENT_TIMES_MAX: Final = 4_096
RENEW_AT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits and settings of a link over datagrams."""

    datagram_bytes: int = 1_167  # of the longest datagram, without its seal
    wait_ms: int = 8  # a group ends at most so long after its first part
    bytes_per_s: int = 1_000_000  # the pace
    in_flight_bytes_max: int = 4 * 1024 * 1024  # of frames not reported as complete yet
    parts_per_group_max: int = 16  # a group with so many parts is full
    repairs_max: int = 16  # repair packets of one window, at most
    failing_max: float = 0.0005  # share of groups of which a part may stay lost
    late_max: float = 0.0015  # share of groups that their own window may not repair


@dataclass(slots=True)
class SenderCounters:
    """Counts since the start."""

    frames: int = 0
    parts: int = 0
    repairs: int = 0
    part_bytes: int = 0
    repair_bytes: int = 0
    groups: int = 0
    given_back: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Group:
    """Parts that were sent one after the other."""

    first: int  # number of its first part
    due_ms: Millis  # when its window, and later its second one, is to follow
    contents: list[bytes] = field(default_factory=list)
    repairs: int = 0  # repair packets after it
    done: bool = False  # no further window follows
    waiting: int = 0  # datagrams for it that wait to be sent
    last_number: int = 0  # of the last datagram for it so far
    sent_ms: Millis = Millis(0)  # when that one was sent


@dataclass(frozen=True, slots=True)
class _Flight:
    frame: bytes
    group: _Group  # the group with its last part


@dataclass(slots=True)
class Outcome:
    """What follows from one datagram, or from a deadline."""

    datagrams: list[bytes] = field(default_factory=list)  # to be sealed and sent, in order
    given_back: list[bytes] = field(default_factory=list)  # frames that must go through the broker
    frames: list[bytes] = field(default_factory=list)  # received from the neighbour


@dataclass(eq=False)
class Sender:
    """Sends frames to one neighbour."""

    limits: Limits
    coder: Coder
    stream: int  # greater than any to this neighbour before, under the same keys
    plr: float = 0.0  # share of datagrams the link loses, as the other side reports
    abl: float = 1.0  # how many in a row, likewise
    # When a datagram was last sent that the other side has to report.
    asked_ms: Millis | None = None
    round_trip_ms: float | None = None  # smoothed; ``None`` before the first report

    def __post_init__(self) -> None:
        self.counters = SenderCounters()
        self._piece_bytes = _piece_bytes(self.limits.datagram_bytes)
        self._number = 0
        self._frame = 0
        self._part = 0
        self._open: _Group | None = None  # parts are added to it
        self._past: deque[_Group] = deque()  # groups that wait for another window
        self._gaps_ms: deque[int] = deque(maxlen=GAPS_KEPT)
        self._offered_ms: Millis | None = None
        self._flights: dict[int, _Flight] = {}
        self._in_flight_bytes = 0
        self._queue: deque[tuple[int, bytes, tuple[_Group, ...]]] = deque()
        self._queued_bytes = 0
        self._credit = 0.0  # bytes that may be sent now
        self._credited_ms: Millis | None = None
        self._sent_at: deque[tuple[int, Millis]] = deque(maxlen=SENT_TIMES_MAX)
        self._deviation_ms = 0.0

    @property
    def in_flight(self) -> int:
        """Frames not reported as complete yet."""
        return len(self._flights)

    @property
    def timeout_ms(self) -> int:
        """How long after the last datagram for it a frame's report may take."""
        if self.round_trip_ms is None:
            return TIMEOUT_FIRST_MS
        spread = 4 * self._deviation_ms
        return round(self.round_trip_ms + spread) + self.limits.wait_ms + TIMEOUT_EXTRA_MS

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` has something to do."""
        last = self._open or (self._past[-1] if self._past else None)
        times: list[float] = [] if last is None else [last.due_ms]
        if self._queue and self._credited_ms is not None:
            lacking = max(0.0, 1.0 - self._credit)
            times.append(self._credited_ms + 1 + lacking * 1000 / self.limits.bytes_per_s)
        first = next(iter(self._flights.values()), None)
        if first is not None and first.group.done and not first.group.waiting:
            times.append(first.group.sent_ms + self.timeout_ms)
        return Millis(int(min(times)) + 1) if times else None

    def head(self, kind: int, now_ms: Millis) -> bytes:
        """The head of a datagram that is sent now, before queued ones."""
        self._number += 1
        if kind == wire.PROBE:
            self.asked_ms = now_ms
            self._sent_at.append((self._number, now_ms))
        return wire.head(kind, stream=self.stream, number=self._number)

    def offer(self, frame: bytes, *, now_ms: Millis) -> list[bytes] | None:
        """The datagrams to send now for ``frame``; ``None``: no room, or it is too long."""
        parts = -(-len(frame) // self._piece_bytes)
        limits = self.limits
        if (
            parts > wire.PARTS_PER_FRAME_MAX
            or self._in_flight_bytes + len(frame) > limits.in_flight_bytes_max
            or len(self._flights) >= wire.WINDOW
            or self._queued_bytes * 1000 > limits.bytes_per_s * QUEUE_MS_MAX
            or not self._can_number()
        ):
            self.counters.refused += 1
            return None
        if self._offered_ms is not None:
            self._gaps_ms.append(now_ms - self._offered_ms)
        self._offered_ms = now_ms
        self._frame += 1
        self.counters.frames += 1
        for part in range(parts):
            piece = memoryview(frame)[part * self._piece_bytes : (part + 1) * self._piece_bytes]
            place = wire.Place(self._frame, part, parts)
            group = self._add(wire.content(place, piece), now_ms)
        self._flights[self._frame] = _Flight(frame, group)
        self._in_flight_bytes += len(frame)
        if self._open is not None and now_ms + self._gap_ms() >= self._open.due_ms:
            self._close(now_ms)
        return self._pump(now_ms)

    def _gap_ms(self) -> int:
        """The median time between frames: most often the next one comes no sooner."""
        gaps = sorted(self._gaps_ms)
        return gaps[len(gaps) // 2] if gaps else 0

    def on_report(self, report: wire.Report, *, now_ms: Millis) -> Outcome | None:
        """Handle a report: drop what arrived; give back what must be lost.

        ``None``: the report is not about our stream, or names numbers that we did not send.
        """
        if report.stream != self.stream or report.newest > self._number:
            return None
        self.plr = report.plr_ppm / 1_000_000
        self.abl = report.abl_hundredths / 100
        self._time(report, now_ms)
        for number in list(self._flights):
            at = report.top - number
            if at < 0:
                break
            if at < wire.WINDOW and report.whole >> at & 1:
                self._forget(number)
        lost = self._give_back(lambda group: group.last_number + REORDER_MAX <= report.newest)
        return Outcome(self._pump(now_ms), lost)

    def on_deadline(self, *, now_ms: Millis) -> Outcome:
        """Send repair packets and queued datagrams; give back frames that were not reported."""
        if self._open is not None:
            if now_ms >= self._open.due_ms:
                self._close(now_ms)
        elif self._past and now_ms >= self._past[-1].due_ms:
            self._look_back()
        datagrams, timeout_ms = self._pump(now_ms), self.timeout_ms
        return Outcome(datagrams, self._give_back(lambda g: now_ms >= g.sent_ms + timeout_ms))

    def give_all_back(self) -> list[bytes]:
        """Return all frames not reported as complete: the link is not used for now.

        Another stream begins, so that the receiver does not wait for them.
        """
        frames = [flight.frame for flight in self._flights.values()]
        self.counters.given_back += len(frames)
        self._flights.clear()
        self._queue.clear()
        self._open = None
        self._past.clear()
        self._in_flight_bytes = self._queued_bytes = 0
        self._renew()
        return frames

    # -- groups and windows -----------------------------------------------------------------------

    def _add(self, content: bytes, now_ms: Millis) -> _Group:
        self._part += 1
        group = self._open
        if group is None:
            due_ms = now_ms + self.limits.wait_ms
            if self._past:
                due_ms = min(due_ms, max(now_ms, self._past[-1].due_ms))
            group = self._open = _Group(self._part, Millis(due_ms))
        part = wire.Part(self._part, min(self.limits.wait_ms, 255), content)
        group.contents.append(content)
        self.counters.parts += 1
        self._enqueue(wire.PART, wire.part_body(part), group)
        if len(group.contents) >= self.limits.parts_per_group_max:
            self._close(now_ms)
        return group

    def _close(self, now_ms: Millis) -> None:
        """End the open group, and send repair packets for it and those before."""
        group, past = self._open, self._past
        assert group is not None
        self.counters.groups += 1
        group.due_ms = Millis(now_ms + wire.SECOND_WAITS * self.limits.wait_ms)
        self._open = None
        past.append(group)
        group.repairs = self._repairs_for(group, late_max=self.limits.late_max)
        self._repair(group.repairs, 0)
        while len(past) > 1 and (
            len(past) > GROUPS_BACK_MAX or sum(len(g.contents) for g in past) > PARTS_BACK_MAX
        ):
            past.popleft().done = True

    def _look_back(self) -> None:
        """Send the second window of a group without a next one, with other repair packets."""
        last = self._past[-1]
        self._repair(self._repairs_for(last, late_max=1.0), last.repairs)
        for group in self._past:
            group.done = True
        self._past.clear()

    def _repairs_for(self, group: _Group, *, late_max: float) -> int:
        limits = self.limits
        return repairs_for(
            len(group.contents),
            self.plr,
            self.abl,
            failing_max=limits.failing_max,
            late_max=late_max,
            repairs_max=limits.repairs_max,
        )

    def _repair(self, count: int, skip: int) -> None:
        """Queue ``count`` repair packets for the past groups, not the first ``skip``."""
        if not count:
            return
        groups = tuple(self._past)
        contents = [content for group in groups for content in group.contents]
        size = wire.symbol_bytes(contents)
        symbols = [wire.to_symbol(content, size) for content in contents]
        first = groups[0].first
        for at, symbol in enumerate(self.coder.repairs(symbols, skip + count)[skip:], skip):
            self.counters.repairs += 1
            repair = wire.Repair(first, len(symbols) + at, len(symbols), symbol)
            self._enqueue(wire.REPAIR, wire.repair_body(repair), *groups)

    # -- pace -------------------------------------------------------------------------------------

    def _enqueue(self, kind: int, body: bytes, *groups: _Group) -> None:
        for group in groups:
            group.waiting += 1
        self._queue.append((kind, body, groups))
        self._queued_bytes += len(body)

    def _pump(self, now_ms: Millis) -> list[bytes]:
        """Return the datagrams to send now. One may overdraw; the next one waits for it."""
        datagrams: list[bytes] = []
        rate = self.limits.bytes_per_s
        burst = max(rate * BURST_MS / 1000, self.limits.datagram_bytes)
        if self._credited_ms is None:
            self._credit = burst
        else:
            self._credit += (now_ms - self._credited_ms) * rate / 1000
        self._credit = min(self._credit, burst)
        self._credited_ms = now_ms
        while self._queue and self._credit > 0:
            kind, body, groups = self._queue.popleft()
            self._queued_bytes -= len(body)
            self._number += 1
            datagram = wire.head(kind, stream=self.stream, number=self._number) + body
            self._credit -= len(datagram)
            if kind == wire.PART:
                self.counters.part_bytes += len(datagram)
            else:
                self.counters.repair_bytes += len(datagram)
            self.asked_ms = now_ms
            for group in groups:
                group.waiting -= 1
                group.last_number = self._number
                group.sent_ms = now_ms
            self._sent_at.append((self._number, now_ms))
            datagrams.append(datagram)
        return datagrams

    def _can_number(self) -> bool:
        """Whether numbers are left; a stream that used many is replaced once it is idle."""
        if self._number < RENEW_AT:
            return True
        if not self._flights and not self._queue and self._open is None and not self._past:
            self._renew()
            return True
        return False

    def _renew(self) -> None:
        self.stream += 1
        self._number = self._frame = self._part = 0
        self._sent_at.clear()

    # -- what arrived -----------------------------------------------------------------------------

    def _time(self, report: wire.Report, now_ms: Millis) -> None:
        """Measure the round trip of the newest reported datagram, unless it was measured before."""
        sent_ms: Millis | None = None
        while self._sent_at and self._sent_at[0][0] <= report.newest:
            number, at_ms = self._sent_at.popleft()
            if number == report.newest:
                sent_ms = at_ms
        if sent_ms is None:
            return
        sample_ms = max(0.0, float(now_ms - sent_ms - report.held_ms))
        if self.round_trip_ms is None:
            self.round_trip_ms, self._deviation_ms = sample_ms, sample_ms / 2
            return
        self._deviation_ms += (abs(sample_ms - self.round_trip_ms) - self._deviation_ms) / 4
        self.round_trip_ms += (sample_ms - self.round_trip_ms) / 8

    def _forget(self, number: int) -> bytes:
        frame = self._flights.pop(number).frame
        self._in_flight_bytes -= len(frame)
        return frame

    def _give_back(self, is_lost: Callable[[_Group], bool]) -> list[bytes]:
        """Give back the oldest frames if all their datagrams were sent and count as lost."""
        frames: list[bytes] = []
        for number, flight in list(self._flights.items()):
            group = flight.group
            if not group.done or group.waiting or not is_lost(group):
                break
            frames.append(self._forget(number))
        self.counters.given_back += len(frames)
        return frames


def _piece_bytes(datagram_bytes: int) -> int:
    """How much of a frame goes in one part, so that its symbol fits in a datagram, too."""
    room = datagram_bytes - wire.REPAIR_BYTES
    symbol = min(room // wire.SYMBOL_ALIGNMENT * wire.SYMBOL_ALIGNMENT, wire.SYMBOL_BYTES_MAX)
    return min(symbol - wire.SYMBOL_EXTRA, datagram_bytes - wire.PART_BYTES)
