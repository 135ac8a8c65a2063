"""The other end: parts in, whole frames out in the order they were sent, reports back.

A part that came goes straight into its frame. Blocks are looked at only when something of them is
missing and there are packets enough to rebuild it. A frame whose predecessor is missing waits for
it, but not longer than the repair packets of that one can take: what is still missing then comes by
the broker, late, as it would over another way of the mesh.

All of it is bounded: blocks, frames that are not whole, frames that wait.

Source: docs/udp-fec.md.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from federator.errors import DecodeError
from federator.protocol.datagrams import wire
from federator.protocol.datagrams.erasure import Coder
from federator.protocol.datagrams.loss import LossMeter
from federator.protocol.types import Millis

BLOCKS_MAX: Final = 64
PARTIAL_BYTES_MAX: Final = 8 * 1024 * 1024
READY_BYTES_MAX: Final = 8 * 1024 * 1024

HOLD_EXTRA_MS: Final = 10
"""How late the repair packets of a block may be, for the pace and for timers."""

REPORT_WAIT_MS: Final = 25
REPORT_SOON_MS: Final = 5
AGE_MS: Final = 10_000
"""Between times at which what the link lost before counts half as much."""

REPORT_AFTER: Final = 64
"""Datagrams after which a report does not wait."""


@dataclass(slots=True)
class ReceiverCounters:
    """What happened since the start."""

    frames: int = 0
    parts: int = 0
    repairs: int = 0
    rebuilt_parts: int = 0
    undecodable: int = 0
    skipped: int = 0
    stale: int = 0


@dataclass(slots=True)
class _Block:
    have: dict[int, bytes] = field(default_factory=dict)
    repairs: dict[int, bytes] = field(default_factory=dict)
    parts: int | None = None
    done: bool = False


@dataclass(slots=True)
class _Partial:
    pieces: list[bytes | None]
    missing: int
    size: int = 0


class Receiver:
    """Frames of one neighbour.

    Args:
        coder: Rebuilds what is missing.

    Attributes:
        counters: What happened so far.
        meter: What the link loses.
    """

    def __init__(self, coder: Coder) -> None:
        self.counters = ReceiverCounters()
        self.meter = LossMeter()
        self._coder = coder
        self._stream = -1
        self._begin(-1)
        self._report_at_ms: Millis | None = None
        self._aged_at_ms = Millis(0)

    def _begin(self, stream: int) -> None:
        self._stream = stream
        self.meter.restart()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._partials: OrderedDict[int, _Partial] = OrderedDict()
        self._partial_bytes = 0
        self._ready: dict[int, tuple[bytes, Millis]] = {}
        self._ready_bytes = 0
        self._next = 1  # the frame whose turn it is
        self._top = 0
        self._whole = 0  # bit i: frame top - i
        self._newest = 0
        self._newest_at_ms = Millis(0)
        self._unreported = 0
        self._hold_ms = 0

    @property
    def held_bytes(self) -> int:
        """Of frames that are not whole or wait."""
        return self._partial_bytes + self._ready_bytes

    def take(self, stream: int, number: int, body: wire.Body, *, now_ms: Millis) -> list[bytes]:
        """Take a datagram that is no report; return the frames whose turn has come.

        Raises:
            DecodeError: It contradicts itself, or others of its block.
        """
        if stream < self._stream:
            self.counters.stale += 1
            return []
        released: list[bytes] = []
        if stream > self._stream:
            released = self._release_all()
            self._begin(stream)
        self._note_arrival(number, now_ms)
        if isinstance(body, wire.Part):
            self._hold_ms = 2 * body.wait_ms + HOLD_EXTRA_MS
            late = self._on_part(body, now_ms)
        elif isinstance(body, wire.Repair):
            late = self._on_repair(body, now_ms)
        else:
            late = []
        return released + late + self._release(now_ms)

    def note_number(self, stream: int, number: int) -> None:
        """A report came, which has a number like all."""
        if stream == self._stream:
            self.meter.note(number)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` or ``report`` has something to do."""
        times = [] if self._report_at_ms is None else [self._report_at_ms]
        if self._ready:
            times.append(Millis(self._ready[min(self._ready)][1] + self._hold_ms))
        return min(times) if times else None

    def on_deadline(self, *, now_ms: Millis) -> list[bytes]:
        """Frames that waited long enough for those before them."""
        return self._release(now_ms)

    def report(self, *, now_ms: Millis) -> wire.Report | None:
        """What arrived, when it is time to tell."""
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
        self.meter.note(number)
        gap = number > self._newest + 1
        if number > self._newest:
            self._newest, self._newest_at_ms = number, now_ms
        self._unreported += 1
        wait_ms = REPORT_WAIT_MS
        if self._unreported >= REPORT_AFTER:
            wait_ms = 0
        elif gap:
            wait_ms = REPORT_SOON_MS
        at_ms = Millis(now_ms + wait_ms)
        if self._report_at_ms is None or at_ms < self._report_at_ms:
            self._report_at_ms = at_ms

    def _on_part(self, part: wire.Part, now_ms: Millis) -> list[bytes]:
        wire.open_content(part.content)
        block = self._block(part.block)
        if block is None or block.done or part.place in block.have:
            return []
        if block.parts is not None and part.place >= block.parts:
            raise DecodeError(f"part: place {part.place} in a block of {block.parts}")
        self.counters.parts += 1
        block.have[part.place] = part.content
        return self._assemble(part.content, now_ms) + self._rebuild(block, now_ms)

    def _on_repair(self, repair: wire.Repair, now_ms: Millis) -> list[bytes]:
        block = self._block(repair.block)
        if block is None or block.done:
            return []
        size = len(repair.symbol)
        if block.parts not in (None, repair.parts) or any(
            len(other) != size for other in block.repairs.values()
        ):
            raise DecodeError("repair: unlike others of its block")
        if any(
            place >= repair.parts or wire.symbol_bytes([content]) > size
            for place, content in block.have.items()
        ):
            raise DecodeError("repair: unlike the parts of its block")
        self.counters.repairs += 1
        block.parts = repair.parts
        block.repairs[repair.place] = repair.symbol
        return self._rebuild(block, now_ms)

    def _block(self, number: int) -> _Block | None:
        """The block of that number; ``None`` when it is too old to be remembered."""
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= BLOCKS_MAX and number < next(iter(self._blocks)):
                return None
            block = self._blocks[number] = _Block()
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        return block

    def _rebuild(self, block: _Block, now_ms: Millis) -> list[bytes]:
        """Rebuild what is missing in ``block``, if that can be done."""
        parts, have = block.parts, block.have
        if parts is None or len(have) + len(block.repairs) < parts:
            return []
        rebuilt: list[bytes] = []
        if len(have) < parts:
            size = len(next(iter(block.repairs.values())))
            if any(wire.symbol_bytes([content]) > size for content in have.values()):
                raise DecodeError("part: longer than the symbols of its block")
            packets = {place: wire.to_symbol(have[place], size) for place in sorted(have)}
            symbols = self._coder.rebuild(parts, size, packets | block.repairs)
            if symbols is None:
                self.counters.undecodable += 1
                return []
            rebuilt = [symbols[place] for place in range(parts) if place not in have]
        block.done = True
        block.have, block.repairs = {}, {}
        late: list[bytes] = []
        for symbol in rebuilt:
            self.counters.rebuilt_parts += 1
            late += self._assemble(wire.from_symbol(symbol), now_ms)
        return late

    # -- frames -----------------------------------------------------------------------------------

    def _assemble(self, content: bytes, now_ms: Millis) -> list[bytes]:
        """Put a piece into its frame; return the frame when it is whole and comes too late."""
        place, piece = wire.open_content(content)
        number = place.frame
        if number > self._top:
            shift = min(number - self._top, wire.WINDOW)
            self._whole = (self._whole << shift) & ((1 << wire.WINDOW) - 1)
            self._top = number
        at = self._top - number
        if at >= wire.WINDOW or self._whole >> at & 1:
            return []
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

    def _release(self, now_ms: Millis) -> list[bytes]:
        """Frames whose turn it is, and those behind a gap that lasted too long."""
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
        frame, _ = self._ready.pop(number)
        self._ready_bytes -= len(frame)
        return frame

    def _release_all(self) -> list[bytes]:
        return [self._pop(number) for number in sorted(self._ready)]
