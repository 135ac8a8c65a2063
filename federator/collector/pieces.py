"""What becomes one landed file: a run of batches of one spool, or the word that there is none.

Files cover all numbers, so that their names tell where to go on. A run that nobody can have (any
more) is landed, too: as one record that says so and why.
"""

from dataclasses import dataclass
from typing import Final, Literal

from federator.collector.words import Batch
from federator.protocol.metric_records import Events, encode
from federator.protocol.types import BrokerId, Millis

HOUR_US: Final = 3_600_000_000

Reason = Literal[
    "dropped by the spool", "unreadable", "not given", "spool replaced", "not in the spool"
]
"""Why there are no such batches to land. ``dropped by the spool``: it is bounded, and they were its
oldest. ``unreadable``: the agent's answers are no records. ``not given``: it says that it has them,
and answers without. ``spool replaced``: the agent begins another, with its disk lost. ``not in the
spool``: the agent says that there are none of these numbers, among others that there are: it skips
some when its machine started anew, so this alone is no loss."""

SKIPPED: Final[Reason] = "not in the spool"

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
        """Of its content."""
        return sum(map(len, self.lines))

    @property
    def batches(self) -> int:
        """Its numbers."""
        return self.last - self.first + 1


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
    """The piece that says that there is nothing of batches ``first`` to ``last``. Its record takes
    the place of the first of them, so no other record has its identity.
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
        kind="collector_skip" if reason == SKIPPED else "collector_gap",
        detail=f"batches {first} to {last}: {reason}",
        value=last - first + 1,
    )
    line = encode(record) + b"\n"
    return Piece(key, first, last, wall_us, (line,), gap=reason)
