"""How far one spool is: what its reader has taken becomes files, and what is landed counts.

Files cover all numbers, so that their names tell where to go on. A run of batches that nobody can
have (any more) is landed, too: as one record that says so and why.

Source: docs/collector.md, "How it reads".
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from federator.protocol.telemetry.reader import SKIPPED, Batch, Missing, Pace, Reason, SpoolReader
from federator.protocol.telemetry.records import Events, encode
from federator.protocol.telemetry.replay import Again
from federator.protocol.types import BrokerId, Millis

PIECES_MAX: Final = 4
"""Pieces that wait to be landed while more is asked: a disk that is slow or full stops asking."""

HOUR_US: Final = 3_600_000_000

SpoolKey = tuple[BrokerId, str]
"""A broker and the spool of its agent."""


@dataclass(frozen=True, slots=True)
class ReadingParameters:
    """Parameters of reading and landing one spool.

    Attributes:
        federation: Its name, for the records of gaps.
        pace: How to ask.
        rotate_bytes: A file is landed when it has as many,
        rotate_ms: or has been open for so long.
        land_retry_ms: Wait after the disk failed.
    """

    federation: str
    pace: Pace
    rotate_bytes: int = 8_388_608
    rotate_ms: Millis = Millis(10_000)
    land_retry_ms: Millis = Millis(1_000)


@dataclass(frozen=True, slots=True)
class Piece:
    """One file to land: batches ``first`` to ``last`` of a spool.

    Attributes:
        at_us: Wall clock of its first record, which says into which hour's folder it goes.
        gap: Why there is nothing of these batches; ``None`` when there is.
    """

    key: SpoolKey
    first: int
    last: int
    at_us: int
    lines: tuple[bytes, ...]
    gap: Reason | None = None

    @property
    def bytes(self) -> int:
        """The length of its content."""
        return sum(map(len, self.lines))


@dataclass(slots=True)
class PositionCounters:
    """What happened to one spool; ``app`` says what each is."""

    asked: int = 0
    unanswered: int = 0
    stray: int = 0
    landed_bytes: int = 0
    landed_files: int = 0
    lost: int = 0
    skipped: int = 0


class Position:
    """One spool: its reader, and the pieces that wait to be landed.

    Attributes:
        landed: The last batch whose file is landed; 0 when none is.
        bytes: In memory.
    """

    def __init__(self, key: SpoolKey, landed: int, parameters: ReadingParameters) -> None:
        self.key = key
        self.landed = landed
        self.reader = SpoolReader(key[0], landed, parameters.pace)
        self.bytes = 0
        self._parameters = parameters
        self._counters = PositionCounters()
        self._epoch = 0
        self._open: list[Batch] = []  # the piece that still grows
        self._open_bytes = 0
        self._opened_ms = Millis(0)
        self._closed: deque[Piece] = deque()
        self._landing = False
        self._land_at_ms = Millis(0)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def counters(self) -> PositionCounters:
        """What happened so far."""
        reader, told = self.reader, self._counters
        told.asked, told.unanswered, told.stray = reader.asked, reader.unanswered, reader.stray
        return told

    @property
    def taken(self) -> int:
        """The last batch in memory or landed."""
        return self.reader.taken

    @property
    def lag(self) -> int:
        """Batches that the spool has and we have not landed."""
        return max(0, self.reader.head_last - max(self.landed, self.reader.head_first - 1))

    @property
    def begun(self) -> bool:
        """Whether anything of it was ever taken."""
        return self.taken > 0

    @property
    def settled(self) -> bool:
        """Whether nothing is in memory."""
        return not self._open and not self._closed

    # -- reading ---------------------------------------------------------------------------------

    def question(self, *, now_ms: Millis) -> tuple[int, int] | None:
        """What to ask now: the first and last batch wanted. It counts as asked."""
        return self.reader.question(now_ms=now_ms, room=len(self._closed) < PIECES_MAX)

    def on_answer(self, again: Again, lines: bytes, *, now_ms: Millis, wall_us: int) -> None:
        """Take what continues where we are.

        Raises:
            DecodeError: The lines are not those of the spool; nothing of them counts.
        """
        told = self.reader.on_answer(again, lines, now_ms=now_ms)
        for found in told.found:
            match found:
                case Batch():
                    self._add(found, now_ms)
                case Missing():
                    self._add_gap(found, wall_us)
        if told.fault is not None:
            raise told.fault

    def _add(self, batch: Batch, now_ms: Millis) -> None:
        self.bytes += len(batch.lines)
        self._epoch = batch.epoch
        if not self._open or not _joins(batch, self._open):
            self._close()
            self._opened_ms = now_ms
        self._open.append(batch)
        self._open_bytes += len(batch.lines)
        if self._open_bytes >= self._parameters.rotate_bytes:
            self._close()

    def _add_gap(self, missing: Missing, wall_us: int) -> None:
        """A piece that says that there is nothing of some batches. Its record takes the place of
        the first of them, so no other record has its identity.
        """
        self._close()
        broker, spool = self.key
        first, last, reason = missing.first, missing.last, missing.reason
        record = Events(
            federation=self._parameters.federation,
            broker=broker,
            epoch=self._epoch,
            spool=spool,
            batch=first,
            row=0,
            at_us=wall_us,
            kind="collector_skip" if reason == SKIPPED else "collector_gap",
            detail=f"batches {first} to {last}: {reason}",
            value=last - first + 1,
        )
        piece = Piece(self.key, first, last, wall_us, (encode(record) + b"\n",), gap=reason)
        self.bytes += piece.bytes
        self._closed.append(piece)

    def _close(self) -> None:
        if self._open:
            first, last = self._open[0], self._open[-1]
            lines = tuple(batch.lines for batch in self._open)
            self._closed.append(Piece(self.key, first.number, last.number, first.at_us, lines))
            self._open, self._open_bytes = [], 0

    # -- landing ---------------------------------------------------------------------------------

    def to_land(self, *, now_ms: Millis, all_: bool = False) -> Piece | None:
        """The next piece to land, if one is due; then ``on_landed`` or ``on_land_failed`` follows.

        With ``all_``, everything in memory is due.
        """
        if all_ or now_ms - self._opened_ms >= self._parameters.rotate_ms:
            self._close()
        if not self._closed or self._landing or now_ms < self._land_at_ms:
            return None
        self._landing = True
        return self._closed[0]

    def on_landed(self) -> None:
        """The piece that ``to_land`` gave is in its place."""
        self._landing = False
        piece = self._closed.popleft()
        self.bytes -= piece.bytes
        self.landed = piece.last
        self._counters.landed_bytes += piece.bytes
        self._counters.landed_files += 1
        numbers = piece.last - piece.first + 1
        if piece.gap == SKIPPED:
            self._counters.skipped += numbers
        elif piece.gap is not None:
            self._counters.lost += numbers

    def on_land_failed(self, *, now_ms: Millis) -> None:
        """The piece that ``to_land`` gave is not in its place: it will be given again."""
        self._landing = False
        self._land_at_ms = Millis(now_ms + self._parameters.land_retry_ms)


def _joins(batch: Batch, piece: list[Batch]) -> bool:
    """Whether ``batch`` follows the last one and belongs into the same hour's folder."""
    same_hour = batch.at_us // HOUR_US == piece[0].at_us // HOUR_US
    return same_hour and batch.number == piece[-1].number + 1
