"""The progress of one spool: batches that its reader has taken become landed files.

Files cover all numbers, so that their names show where to resume. Batches that are not, or no
longer, available are landed, too: as one record with the reason.

Source: docs/collector.md, "How it reads".
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from federator.protocol.telemetry.reader import SKIPPED, Batch, Missing, Pace, Reason, SpoolReader
from federator.protocol.telemetry.records import Events, encode
from federator.protocol.telemetry.replay import Again
from federator.protocol.types import BrokerId, Millis

PIECES_MAX: Final = 4
"""Pieces waiting to be landed before requests stop: the disk is slow or full."""

HOUR_US: Final = 3_600_000_000

SpoolKey = tuple[BrokerId, str]
"""A broker and the spool of its agent."""


@dataclass(frozen=True, slots=True)
class ReadingParameters:
    """Parameters of reading and landing one spool.

    Attributes:
        federation: Its name, for the records of gaps.
        pace: How to ask.
        rotate_bytes: A file of this size is landed.
        rotate_ms: A file open for this long is landed.
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
        at_us: Wall clock of its first record, which selects the hour's folder.
        gap: Why these batches are missing; ``None`` if they are not.
    """

    key: SpoolKey
    first: int
    last: int
    at_us: int
    lines: tuple[bytes, ...]
    gap: Reason | None = None

    @property
    def bytes(self) -> int:
        return sum(map(len, self.lines))


@dataclass(eq=False, repr=False)
class Position:
    """One spool: its reader, and the pieces that wait to be landed.

    Attributes:
        bytes: Size of lines in memory.
        counts: What was landed, lost and skipped since the start; ``app`` describes them.
    """

    key: SpoolKey
    landed: int  # the last batch in a landed file; 0 if there is none
    parameters: ReadingParameters

    def __post_init__(self) -> None:
        self.reader = SpoolReader(self.key[0], self.landed, self.parameters.pace)
        self.bytes = 0
        self.counts: Counter[str] = Counter()
        self._epoch = 0
        self._open: list[Batch] = []  # the piece that still grows
        self._open_bytes = 0
        self._opened_ms = Millis(0)
        self._closed: deque[Piece] = deque()
        self._landing = False
        self._land_at_ms = Millis(0)

    # -- state -----------------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """Batches that the spool has and we have not landed."""
        return max(0, self.reader.head_last - max(self.landed, self.reader.head_first - 1))

    @property
    def settled(self) -> bool:
        return not self._open and not self._closed

    # -- reading ---------------------------------------------------------------------------------

    def question(self, *, now_ms: Millis) -> tuple[int, int] | None:
        """The first and last batch to request now; counted as asked."""
        return self.reader.question(now_ms=now_ms, room=len(self._closed) < PIECES_MAX)

    def on_answer(self, again: Again, lines: bytes, *, now_ms: Millis, wall_us: int) -> None:
        """Take the batches of an answer that continue where we are.

        Raises:
            DecodeError: The lines do not belong to the spool; none of them count.
        """
        result = self.reader.on_answer(again, lines, now_ms=now_ms)
        for item in result.found:
            match item:
                case Batch():
                    self._add(item, now_ms)
                case Missing():
                    self._add_gap(item, wall_us)
        if result.fault is not None:
            raise result.fault

    def _add(self, batch: Batch, now_ms: Millis) -> None:
        self.bytes += len(batch.lines)
        self._epoch = batch.epoch
        if not self._open or not _joins(batch, self._open):
            self._close()
            self._opened_ms = now_ms
        self._open.append(batch)
        self._open_bytes += len(batch.lines)
        if self._open_bytes >= self.parameters.rotate_bytes:
            self._close()

    def _add_gap(self, missing: Missing, wall_us: int) -> None:
        """Add a piece that records missing batches. Its record takes the place of the first missing
        batch, so no other record has its identity."""
        self._close()
        broker, spool = self.key
        first, last, reason = missing.first, missing.last, missing.reason
        record = Events(
            federation=self.parameters.federation,
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
        if all_ or now_ms - self._opened_ms >= self.parameters.rotate_ms:
            self._close()
        if not self._closed or self._landing or now_ms < self._land_at_ms:
            return None
        self._landing = True
        return self._closed[0]

    def on_landed(self) -> None:
        self._landing = False
        piece = self._closed.popleft()
        self.bytes -= piece.bytes
        self.landed = piece.last
        self.counts["landed_bytes"] += piece.bytes
        self.counts["landed_files"] += 1
        numbers = piece.last - piece.first + 1
        if piece.gap == SKIPPED:
            self.counts["skipped"] += numbers
        elif piece.gap is not None:
            self.counts["lost"] += numbers

    def on_land_failed(self, *, now_ms: Millis) -> None:
        """Note that the piece from ``to_land`` was not landed: it is returned again later."""
        self._landing = False
        self._land_at_ms = Millis(now_ms + self.parameters.land_retry_ms)


def _joins(batch: Batch, piece: list[Batch]) -> bool:
    """Whether ``batch`` follows the last one and belongs to the same hour's folder."""
    same_hour = batch.at_us // HOUR_US == piece[0].at_us // HOUR_US
    return same_hour and batch.number == piece[-1].number + 1
