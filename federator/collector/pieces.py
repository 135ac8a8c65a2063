"""What becomes one landed file: a run of batches of one spool, or the word that a run is lost.

A file covers its whole run, so that the names of the landed files tell where to go on. A run that
nobody can have any more is landed, too: as one record that says so.
"""

from dataclasses import dataclass
from typing import Final, Literal

from federator.collector.words import Batch
from federator.protocol.metric_records import Events, encode
from federator.protocol.types import BrokerId, Millis

HOUR_US: Final = 3_600_000_000

Reason = Literal["dropped by the spool", "missing in the spool", "unreadable", "spool replaced"]
"""Why batches can never be had. ``dropped by the spool``: it is bounded, and they were its oldest.
``missing in the spool``: the agent answers without them. ``unreadable``: its answers are no
records. ``spool replaced``: the agent begins another, with its disk lost."""

SpoolKey = tuple[BrokerId, str]
"""A broker and the spool of its agent."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One file to land.

    Attributes:
        key: Whose batches.
        first: Its first batch,
        last: and its last.
        at_us: Wall clock of its first record, which says into which hour's folder it goes.
        lines: Its content.
        lost: Why it is a gap; ``None`` when it is none.
    """

    key: SpoolKey
    first: int
    last: int
    at_us: int
    lines: tuple[bytes, ...]
    lost: Reason | None = None

    @property
    def bytes(self) -> int:
        """Of its content."""
        return sum(map(len, self.lines))


class OpenPiece:
    """A piece that still grows.

    Args:
        first: Its first batch.
        now_ms: When it was begun.

    Attributes:
        last: Its last batch so far.
        bytes: Of its lines.
        opened_ms: When it was begun.
    """

    def __init__(self, first: Batch, *, now_ms: Millis) -> None:
        self.last = first.number
        self.bytes = len(first.lines)
        self.opened_ms = now_ms
        self._first = first
        self._lines = [first.lines]

    def takes(self, batch: Batch) -> bool:
        """Whether ``batch`` follows the last one and belongs into the same hour's folder."""
        same_hour = batch.at_us // HOUR_US == self._first.at_us // HOUR_US
        return same_hour and batch.number == self.last + 1

    def add(self, batch: Batch) -> None:
        """Let ``batch`` follow."""
        self.last = batch.number
        self.bytes += len(batch.lines)
        self._lines.append(batch.lines)

    def close(self, key: SpoolKey) -> Piece:
        """The piece as it is landed."""
        first = self._first
        return Piece(key, first.number, self.last, first.at_us, tuple(self._lines))


def gap(
    key: SpoolKey,
    *,
    first: int,
    last: int,
    reason: Reason,
    federation: str,
    epoch: int,
    wall_us: int,
) -> Piece:
    """The piece that says that batches ``first`` to ``last`` are lost. Its record takes the place
    of the first of them, so no other record has its identity.
    """
    broker, spool = key
    record = Events(
        federation=federation,
        broker=broker,
        epoch=epoch,
        spool=spool,
        batch=first,
        row=0,
        at_us=wall_us,
        kind="collector_gap",
        detail=f"batches {first} to {last}: {reason}",
        value=last - first + 1,
    )
    line = encode(record) + b"\n"
    return Piece(key, first, last, wall_us, (line,), lost=reason)
