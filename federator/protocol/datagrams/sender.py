"""Our end of a link over datagrams: frames out, in blocks, with repair packets behind each.

A part leaves as soon as the pace allows; nothing waits for a block to fill. A block ends when it is
full or when its first part is ``wait_ms`` old, and then its repair packets follow: so many that it
seldom fails, as things were on this link lately. A frame stays here until a report says that it is
whole over there. One that a report says is not, though everything of its block must have come, or
that no report tells of in time, is **given back**: its owner sends it by the broker.

Why blocks and not blocks woven into each other: of all ways to spread so many parts and repair
packets over so long a time, one block of all of them mends every pattern of losses that any other
mends.

Source: docs/udp-fec.md; RFC 9002 for what counts as lost and for round trips.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.datagrams import wire
from federator.protocol.datagrams.erasure import Coder
from federator.protocol.datagrams.protection import repairs_for
from federator.protocol.types import Millis

REORDER_MAX: Final = 3
"""Datagrams that may overtake another before that counts as lost."""

TIMEOUT_FIRST_MS: Final = 500
TIMEOUT_EXTRA_MS: Final = 60
"""On top of round trips: the other side's report waits, and timers are late."""

QUEUE_MS_MAX: Final = 50
"""What may wait for its turn, in time at our pace; beyond it frames go by the broker."""

BURST_MS: Final = 10
SENT_TIMES_MAX: Final = 4_096
RENEW_AT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Limits:
    """How a link over datagrams may be used.

    Attributes:
        datagram_bytes: Longest datagram, without its seal.
        wait_ms: A block ends so long after its first part.
        bytes_per_s: Pace.
        in_flight_bytes_max: Of frames that nobody reported whole yet.
        parts_per_block_max: A block with so many parts is full.
        repairs_max: Repair packets of one block, at most.
        failing_max: Share of blocks that may fail.
    """

    datagram_bytes: int = 1_167
    wait_ms: int = 30
    bytes_per_s: int = 1_000_000
    in_flight_bytes_max: int = 4 * 1024 * 1024
    parts_per_block_max: int = 16
    repairs_max: int = 16
    failing_max: float = 0.002


@dataclass(slots=True)
class SenderCounters:
    """What happened since the start."""

    frames: int = 0
    parts: int = 0
    repairs: int = 0
    part_bytes: int = 0
    repair_bytes: int = 0
    blocks: int = 0
    given_back: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Block:
    number: int
    opened_ms: Millis
    contents: list[bytes] = field(default_factory=list)
    closed: bool = False
    waiting: int = 0  # datagrams of it that wait for their turn
    last_number: int = 0  # of its datagrams, so far
    sent_ms: Millis = Millis(0)  # when that one left


@dataclass(frozen=True, slots=True)
class _Flight:
    frame: bytes
    block: _Block  # that holds its last part


@dataclass(slots=True)
class Outcome:
    """What is to be done, in order.

    Attributes:
        datagrams: To be sealed and sent.
        given_back: Frames that must go another way.
    """

    datagrams: list[bytes] = field(default_factory=list)
    given_back: list[bytes] = field(default_factory=list)


class Sender:
    """Frames to one neighbour.

    Args:
        limits: How the link may be used.
        coder: Makes repair packets.
        stream: Greater than that of every sender to this neighbour before, under the same keys.

    Attributes:
        counters: What happened so far.
        plr: Share of datagrams the link loses, as the other side says.
        abl: How many in a row, likewise.
        asked_ms: When something left last that the other side has to report.
    """

    def __init__(self, limits: Limits, coder: Coder, *, stream: int) -> None:
        self.counters = SenderCounters()
        self.plr = 0.0
        self.abl = 1.0
        self.asked_ms: Millis | None = None
        self._limits = limits
        self._coder = coder
        self._piece_bytes = _piece_bytes(limits.datagram_bytes)
        self._stream = stream
        self._number = 0
        self._frame = 0
        self._block_number = 0
        self._open: _Block | None = None
        self._flights: dict[int, _Flight] = {}
        self._in_flight_bytes = 0
        self._queue: deque[tuple[int, bytes, _Block]] = deque()
        self._queued_bytes = 0
        self._credit = 0.0  # bytes that may leave now
        self._credited_ms: Millis | None = None
        self._sent_at: deque[tuple[int, Millis]] = deque(maxlen=SENT_TIMES_MAX)
        self._smoothed_ms: float | None = None
        self._deviation_ms = 0.0

    @property
    def round_trip_ms(self) -> float | None:
        """Smoothed; ``None`` before the first report."""
        return self._smoothed_ms

    @property
    def in_flight(self) -> int:
        """Frames that nobody reported whole yet."""
        return len(self._flights)

    @property
    def in_flight_bytes(self) -> int:
        """Their bytes."""
        return self._in_flight_bytes

    @property
    def timeout_ms(self) -> int:
        """How long after the last datagram of its block a frame is waited for."""
        if self._smoothed_ms is None:
            return TIMEOUT_FIRST_MS
        spread = 4 * self._deviation_ms
        return round(self._smoothed_ms + spread) + self._limits.wait_ms + TIMEOUT_EXTRA_MS

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` has something to do."""
        times: list[float] = []
        if self._open is not None:
            times.append(self._open.opened_ms + self._limits.wait_ms)
        if self._queue and self._credited_ms is not None:
            lacking = max(0.0, 1.0 - self._credit)
            times.append(self._credited_ms + 1 + lacking * 1000 / self._limits.bytes_per_s)
        first = next(iter(self._flights.values()), None)
        if first is not None and first.block.closed and not first.block.waiting:
            times.append(first.block.sent_ms + self.timeout_ms)
        return Millis(int(min(times)) + 1) if times else None

    def head(self, kind: int, now_ms: Millis) -> bytes:
        """The head of a datagram that leaves now, out of turn."""
        self._number += 1
        if kind == wire.PROBE:
            self.asked_ms = now_ms
            self._sent_at.append((self._number, now_ms))
        return wire.head(kind, stream=self._stream, number=self._number)

    def offer(self, frame: bytes, *, now_ms: Millis) -> Outcome | None:
        """Send ``frame``; ``None``: not this way, there is no room for it or it is too long."""
        parts = -(-len(frame) // self._piece_bytes)
        limits = self._limits
        if (
            parts > wire.PARTS_PER_FRAME_MAX
            or self._in_flight_bytes + len(frame) > limits.in_flight_bytes_max
            or len(self._flights) >= wire.WINDOW
            or self._queued_bytes * 1000 > limits.bytes_per_s * QUEUE_MS_MAX
            or not self._can_number()
        ):
            self.counters.refused += 1
            return None
        self._frame += 1
        self.counters.frames += 1
        block: _Block | None = None
        for part in range(parts):
            piece = memoryview(frame)[part * self._piece_bytes : (part + 1) * self._piece_bytes]
            place = wire.Place(self._frame, part, parts)
            block = self._add(wire.content(place, piece), now_ms)
        assert block is not None, "a frame has at least one part"
        self._flights[self._frame] = _Flight(frame, block)
        self._in_flight_bytes += len(frame)
        outcome = Outcome()
        self._pump(outcome.datagrams, now_ms)
        return outcome

    def is_about(self, report: wire.Report) -> bool:
        """Whether ``report`` tells of our stream, and of nothing that we did not send."""
        return report.stream == self._stream and report.newest <= self._number

    def on_report(self, report: wire.Report, *, now_ms: Millis) -> Outcome:
        """Forget what arrived; give back what must be lost."""
        outcome = Outcome()
        if not self.is_about(report):
            return outcome
        self.plr = report.plr_ppm / 1_000_000
        self.abl = report.abl_hundredths / 100
        self._time(report, now_ms)
        for number in list(self._flights):
            at = report.top - number
            if at < 0:
                break
            if at < wire.WINDOW and report.whole >> at & 1:
                self._forget(number)
        self._give_back(outcome, lambda block: block.last_number + REORDER_MAX <= report.newest)
        self._pump(outcome.datagrams, now_ms)
        return outcome

    def on_deadline(self, *, now_ms: Millis) -> Outcome:
        """End the block, send what waits for its turn, give back what was not reported."""
        outcome = Outcome()
        if self._open is not None and now_ms >= self._open.opened_ms + self._limits.wait_ms:
            self._close()
        self._pump(outcome.datagrams, now_ms)
        timeout_ms = self.timeout_ms
        self._give_back(outcome, lambda block: now_ms >= block.sent_ms + timeout_ms)
        return outcome

    def give_all_back(self) -> list[bytes]:
        """The link is not to be used for now: all frames that nobody reported whole.

        Another stream begins, so that nobody waits for them over there.
        """
        frames = [flight.frame for flight in self._flights.values()]
        self.counters.given_back += len(frames)
        self._flights.clear()
        self._queue.clear()
        self._open = None
        self._in_flight_bytes = self._queued_bytes = 0
        self._renew()
        return frames

    # -- blocks -----------------------------------------------------------------------------------

    def _add(self, content: bytes, now_ms: Millis) -> _Block:
        block = self._open
        if block is None:
            self._block_number += 1
            block = self._open = _Block(self._block_number, now_ms)
        part = wire.Part(block.number, len(block.contents), self._wait_byte(), content)
        block.contents.append(content)
        self.counters.parts += 1
        self._enqueue(wire.PART, wire.part_body(part), block)
        if len(block.contents) >= self._limits.parts_per_block_max:
            self._close()
        return block

    def _wait_byte(self) -> int:
        return min(self._limits.wait_ms, 255)

    def _close(self) -> None:
        """End the open block with its repair packets."""
        block, self._open = self._open, None
        assert block is not None
        block.closed = True
        self.counters.blocks += 1
        contents, block.contents = block.contents, []
        count = repairs_for(
            len(contents),
            self.plr,
            self.abl,
            failing_max=self._limits.failing_max,
            repairs_max=self._limits.repairs_max,
        )
        if not count:
            return
        size = wire.symbol_bytes(contents)
        symbols = [wire.to_symbol(content, size) for content in contents]
        for at, symbol in enumerate(self._coder.repairs(symbols, count)):
            self.counters.repairs += 1
            repair = wire.Repair(block.number, len(symbols) + at, len(symbols), symbol)
            self._enqueue(wire.REPAIR, wire.repair_body(repair), block)

    # -- pace -------------------------------------------------------------------------------------

    def _enqueue(self, kind: int, body: bytes, block: _Block) -> None:
        block.waiting += 1
        self._queue.append((kind, body, block))
        self._queued_bytes += len(body)

    def _pump(self, datagrams: list[bytes], now_ms: Millis) -> None:
        """Let go what may leave by now. One datagram may overdraw; the next one waits for it."""
        rate = self._limits.bytes_per_s
        burst = max(rate * BURST_MS / 1000, self._limits.datagram_bytes)
        if self._credited_ms is None:
            self._credit = burst
        else:
            self._credit += (now_ms - self._credited_ms) * rate / 1000
        self._credit = min(self._credit, burst)
        self._credited_ms = now_ms
        while self._queue and self._credit > 0:
            kind, body, block = self._queue.popleft()
            self._queued_bytes -= len(body)
            self._number += 1
            datagram = wire.head(kind, stream=self._stream, number=self._number) + body
            self._credit -= len(datagram)
            if kind == wire.PART:
                self.counters.part_bytes += len(datagram)
            else:
                self.counters.repair_bytes += len(datagram)
            block.waiting -= 1
            block.last_number = self._number
            block.sent_ms = self.asked_ms = now_ms
            self._sent_at.append((self._number, now_ms))
            datagrams.append(datagram)

    def _can_number(self) -> bool:
        """Numbers are left; a stream that had many is followed by another when nothing is out."""
        if self._number < RENEW_AT:
            return True
        if not self._flights and not self._queue and self._open is None:
            self._renew()
            return True
        return False

    def _renew(self) -> None:
        self._stream += 1
        self._number = self._frame = self._block_number = 0
        self._sent_at.clear()

    # -- what arrived -----------------------------------------------------------------------------

    def _time(self, report: wire.Report, now_ms: Millis) -> None:
        """Learn a round trip from the newest datagram that came, unless we did before."""
        sent_ms: Millis | None = None
        while self._sent_at and self._sent_at[0][0] <= report.newest:
            number, at_ms = self._sent_at.popleft()
            if number == report.newest:
                sent_ms = at_ms
        if sent_ms is None:
            return
        sample_ms = max(0.0, float(now_ms - sent_ms - report.held_ms))
        if self._smoothed_ms is None:
            self._smoothed_ms, self._deviation_ms = sample_ms, sample_ms / 2
            return
        self._deviation_ms += (abs(sample_ms - self._smoothed_ms) - self._deviation_ms) / 4
        self._smoothed_ms += (sample_ms - self._smoothed_ms) / 8

    def _forget(self, number: int) -> bytes:
        frame = self._flights.pop(number).frame
        self._in_flight_bytes -= len(frame)
        return frame

    def _give_back(self, outcome: Outcome, is_lost: Callable[[_Block], bool]) -> None:
        """Give back the oldest frames, as long as their blocks are all sent and count as lost."""
        for number, flight in list(self._flights.items()):
            block = flight.block
            if not block.closed or block.waiting or not is_lost(block):
                return
            self.counters.given_back += 1
            outcome.given_back.append(self._forget(number))


def _piece_bytes(datagram_bytes: int) -> int:
    """How much of a frame goes in one part, so that its symbol fits in a datagram, too."""
    room = datagram_bytes - wire.REPAIR_BYTES
    symbol = min(room // wire.SYMBOL_ALIGNMENT * wire.SYMBOL_ALIGNMENT, wire.SYMBOL_BYTES_MAX)
    return min(symbol - wire.SYMBOL_EXTRA, datagram_bytes - wire.PART_BYTES)
