"""The receiving end of a link over datagrams: takes parts, returns whole frames, makes reports.

A part that arrives goes straight into its frame. A window is decoded only when a part of it is
missing and there are enough repair packets to rebuild it. A complete frame waits for earlier frames
that are missing, but no longer than their repair packets can take. Then it is released without
them; what was missing comes later, through the broker or from a late repair packet, as it would by
another path of the mesh.

It keeps parts, windows, incomplete frames and waiting frames; all are bounded. Datagrams were
authenticated before they come here.

Source: docs/udp-fec.md.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from federator.errors import DecodeError
from federator.protocol.bounded_cache import Recent
from federator.protocol.datagrams import wire
from federator.protocol.datagrams.protection import Coder, LossMeter
from federator.protocol.types import Millis

WINDOWS_MAX: Final = 64
PARTS_KEPT: Final = 256
"""Parts kept to decode their windows: those of two groups, and later ones that overtake them."""

PARTIAL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of incomplete frames; beyond it the oldest are dropped."""
READY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of frames that wait for earlier ones; beyond it they do not wait any longer."""

HOLD_EXTRA_MS: Final = 10
"""How late repair packets may be, because of the pace and of timers."""

REPORT_WAIT_MS: Final = 25
"""How long a datagram may go unreported."""
REPORT_SOON_MS: Final = 5
"""The same for one that shows a gap."""
REPORT_AFTER: Final = 64
"""After so many unreported datagrams a report is due at once."""
AGE_MS: Final = 10_000
"""Interval after which earlier losses count half as much."""


@dataclass(slots=True)
class ReceiverCounters:
    """Counts since the start."""

    frames: int = 0  # completed
    parts: int = 0  # received, without copies
    repairs: int = 0  # repair packets, without those of windows that are done
    rebuilt_parts: int = 0
    undecodable: int = 0  # attempts to decode a window that failed
    skipped: int = 0  # frames that later ones stopped waiting for
    stale: int = 0  # datagrams of an earlier stream


@dataclass(slots=True)
class _Window:
    """The repair packets of one window."""

    repairs: dict[int, bytes] = field(default_factory=dict)  # by place
    done: bool = False  # it needs no more repair packets, or cannot use them


@dataclass(slots=True)
class _Partial:
    """An incomplete frame."""

    pieces: list[bytes | None]  # by part; ``None``: missing
    missing: int  # how many of them are
    size: int = 0  # bytes of the others


class Receiver:
    """Receives the frames of one neighbour."""

    def __init__(self, coder: Coder) -> None:
        self.counters = ReceiverCounters()
        self.meter = LossMeter()  # what the link loses
        self._coder = coder
        self._start_stream(-1)
        self._report_at_ms: Millis | None = None
        self._aged_at_ms = Millis(0)  # when losses last lost half their weight

    def _start_stream(self, stream: int) -> None:
        """Forget the stream before: the sender began another one, with all numbers anew."""
        self._stream = stream
        self.meter.restart()
        self._parts: dict[int, bytes] = {}  # by ordinal
        self._part_top = 0  # the highest ordinal of a part
        # By the first part's ordinal and the number of parts.
        self._windows: Recent[tuple[int, int], _Window] = Recent(WINDOWS_MAX)
        self._partials: OrderedDict[int, _Partial] = OrderedDict()  # by frame, oldest first
        self._partial_bytes = 0
        # Complete frames that wait for earlier ones, and since when.
        self._ready: dict[int, tuple[bytes, Millis]] = {}
        self._ready_bytes = 0
        self._next = 1  # the next frame to release
        self._top = 0  # the highest frame of which a part arrived
        self._whole = 0  # the complete frames: bit i is frame top - i
        self._newest = 0  # the highest number of a datagram
        self._newest_at_ms = Millis(0)
        self._unreported = 0  # datagrams since the last report
        self._hold_ms = 0  # how long a complete frame waits for earlier ones

    @property
    def held_bytes(self) -> int:
        """The bytes of frames that are incomplete, or wait for earlier ones."""
        return self._partial_bytes + self._ready_bytes

    def take(self, stream: int, number: int, body: wire.Body, *, now_ms: Millis) -> list[bytes]:
        """Take a datagram other than a report; return the frames that can be released now.

        Raises:
            DecodeError: It contradicts itself, or an earlier datagram.
        """
        if stream < self._stream:
            self.counters.stale += 1
            return []
        released: list[bytes] = []
        if stream > self._stream:
            released = [self._pop(frame) for frame in sorted(self._ready)]
            self._start_stream(stream)
        self._note_arrival(number, now_ms)
        if isinstance(body, wire.Part):
            self._hold_ms = (1 + wire.SECOND_WAITS) * body.wait_ms + HOLD_EXTRA_MS
            released += self._on_part(body, now_ms)
        elif isinstance(body, wire.Repair):
            released += self._on_repair(body, now_ms)
        return released + self.release(now_ms=now_ms)

    def note_number(self, stream: int, number: int) -> None:
        """Note the number of a report: the numbers of all datagrams show what is lost."""
        if stream == self._stream:
            self.meter.note(number)

    def next_deadline_ms(self) -> Millis | None:
        """When ``release`` or ``report`` has something to do."""
        times = [] if self._report_at_ms is None else [self._report_at_ms]
        if self._ready:
            times.append(Millis(self._ready[min(self._ready)][1] + self._hold_ms))
        return min(times, default=None)

    def report(self, *, now_ms: Millis) -> wire.Report | None:
        """The report of what arrived, if it is due."""
        if self._report_at_ms is None or now_ms < self._report_at_ms:
            return None
        self._report_at_ms = None
        self._unreported = 0
        if now_ms - self._aged_at_ms >= AGE_MS:
            self._aged_at_ms = now_ms
            self.meter.age()
        return wire.Report(
            stream=self._stream,
            newest=self._newest,
            held_ms=min(now_ms - self._newest_at_ms, 65_535),
            top=self._top,
            whole=self._whole,
            plr_ppm=min(round(self.meter.plr * 1_000_000), 1_000_000),
            abl_hundredths=min(round(self.meter.abl * 100), 65_535),
        )

    # -- datagrams --------------------------------------------------------------------------------

    def _note_arrival(self, number: int, now_ms: Millis) -> None:
        """Measure losses, and set when the next report is due."""
        self.meter.note(number)
        gap = number > self._newest + 1
        if number > self._newest:
            self._newest, self._newest_at_ms = number, now_ms
        self._unreported += 1
        wait_ms = REPORT_SOON_MS if gap else REPORT_WAIT_MS
        at_ms = Millis(now_ms + (wait_ms if self._unreported < REPORT_AFTER else 0))
        if self._report_at_ms is None or at_ms < self._report_at_ms:
            self._report_at_ms = at_ms

    # Frames go out by two ways. These methods return only *late* ones: frames that are complete
    # when later ones were already released. All others become ready, and ``release`` returns them.

    def _on_part(self, part: wire.Part, now_ms: Millis) -> list[bytes]:
        wire.open_content(part.content)  # raises before the part is kept
        if not self._keep(part.ordinal, part.content):
            return []
        self.counters.parts += 1
        late = self._assemble(part.content, now_ms)
        return late + self._rebuild(now_ms) if self._windows else late

    def _on_repair(self, repair: wire.Repair, now_ms: Millis) -> list[bytes]:
        key = repair.first, repair.parts
        window = self._windows.get(key)
        if window is None:
            window = _Window()
            self._windows.put(key, window)
        if window.done:
            return []
        size = len(repair.symbol)
        if any(len(other) != size for other in window.repairs.values()):
            raise DecodeError("repair: unlike others of its window")
        self.counters.repairs += 1
        window.repairs[repair.place] = repair.symbol
        return self._rebuild(now_ms)

    def _keep(self, ordinal: int, content: bytes) -> bool:
        """Remember a part; return whether it is new and not too old."""
        parts = self._parts
        if ordinal in parts or ordinal <= self._part_top - PARTS_KEPT:
            return False
        if ordinal > self._part_top:
            for old in range(self._part_top - PARTS_KEPT + 1, ordinal - PARTS_KEPT + 1):
                if not parts:
                    break
                parts.pop(old, None)
            self._part_top = ordinal
        parts[ordinal] = content
        return True

    def _rebuild(self, now_ms: Millis) -> list[bytes]:
        """Rebuild missing parts; again while rebuilt parts let another window be decoded."""
        late: list[bytes] = []
        progress = True
        while progress:
            progress = False
            for (first, count), window in list(self._windows.items()):
                if window.done:
                    continue
                missing = [i for i in range(first, first + count) if i not in self._parts]
                if not missing or first <= self._part_top - PARTS_KEPT:
                    window.done, window.repairs = True, {}
                elif len(missing) <= len(window.repairs):
                    rebuilt = self._decode(first, count, window)
                    for ordinal in missing if rebuilt else ():
                        content = wire.from_symbol(rebuilt[ordinal - first])
                        wire.open_content(content)
                        if self._keep(ordinal, content):
                            progress = True
                            self.counters.rebuilt_parts += 1
                            late += self._assemble(content, now_ms)
        return late

    def _decode(self, first: int, count: int, window: _Window) -> list[bytes]:
        """Rebuild all symbols of a window; return an empty list if the packets do not suffice."""
        size = len(next(iter(window.repairs.values())))
        parts = {i: self._parts[first + i] for i in range(count) if first + i in self._parts}
        if parts and wire.symbol_bytes([*parts.values()]) > size:
            window.done = True
            raise DecodeError("repair: unlike the parts of its window")
        packets = {place: wire.to_symbol(content, size) for place, content in parts.items()}
        symbols = self._coder.rebuild(count, size, packets | window.repairs)
        if symbols is None:
            self.counters.undecodable += 1
            return []
        window.done, window.repairs = True, {}
        return symbols

    # -- frames -----------------------------------------------------------------------------------

    def _assemble(self, content: bytes, now_ms: Millis) -> list[bytes]:
        """Put a piece into its frame; return the frame when it is complete and late."""
        place, piece = wire.open_content(content)
        number = place.frame
        if number > self._top:
            shift = min(number - self._top, wire.WINDOW)
            self._whole = (self._whole << shift) & ((1 << wire.WINDOW) - 1)
            self._top = number
        bit = self._top - number
        if bit >= wire.WINDOW or self._whole >> bit & 1:
            return []  # too old, or complete already
        if place.parts == 1:
            return self._on_whole(number, piece, now_ms)
        partial = self._partials.get(number)
        if partial is None:
            partial = self._partials[number] = _Partial([None] * place.parts, place.parts)
        if len(partial.pieces) != place.parts:
            raise DecodeError(f"part: of {place.parts}, others of {len(partial.pieces)}")
        if partial.pieces[place.part] is None:
            partial.pieces[place.part] = piece
            partial.missing -= 1
            partial.size += len(piece)
            self._partial_bytes += len(piece)
        if partial.missing:
            self._bound_partials()
            return []
        self._drop_partial(number)
        return self._on_whole(number, b"".join(p for p in partial.pieces if p), now_ms)

    def _bound_partials(self) -> None:
        """Drop the oldest incomplete frames beyond the bounds."""
        while self._partials and (
            self._partial_bytes > PARTIAL_BYTES_MAX or len(self._partials) > wire.WINDOW
        ):
            self._drop_partial(next(iter(self._partials)))

    def _drop_partial(self, number: int) -> None:
        self._partial_bytes -= self._partials.pop(number).size

    def _on_whole(self, number: int, frame: bytes, now_ms: Millis) -> list[bytes]:
        self._whole |= 1 << (self._top - number)
        self.counters.frames += 1
        if number < self._next:
            return [frame]
        self._ready[number] = (frame, now_ms)
        self._ready_bytes += len(frame)
        return []

    def release(self, *, now_ms: Millis) -> list[bytes]:
        """Return the frames that are next in order, and those after a gap that lasted too long."""
        released: list[bytes] = []
        while self._ready:
            if self._next in self._ready:
                released.append(self._pop(self._next))
                self._next += 1
                continue
            first = min(self._ready)
            waited_ms = now_ms - self._ready[first][1]
            if waited_ms < self._hold_ms and self._ready_bytes <= READY_BYTES_MAX:
                break
            self.counters.skipped += first - self._next
            self._next = first
        return released

    def _pop(self, number: int) -> bytes:
        """Remove a waiting frame, and return it."""
        frame, _ = self._ready.pop(number)
        self._ready_bytes -= len(frame)
        return frame
