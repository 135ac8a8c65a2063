"""Answers of an agent, read without trust: whole batches of the spool that was asked, or nothing.

The lines stay bytes, and land as they came; of each only what tells whose it is and where it stands
is read. What a record says beside is for those who read the landing folder: a table that we do not
know, or a newer version of one, lands like any other.

Source: docs/metrics.md, "Replay".
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.metric_records import Again, decode_again
from federator.protocol.metric_records.envelope import Id, Natural, Positive, Signed
from federator.protocol.types import BrokerId


class _Line(msgspec.Struct, frozen=True):
    """What is read of a record."""

    broker: Id
    spool: str
    batch: Positive
    row: Natural
    at_us: Signed
    epoch: Natural = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one flush, as bytes.

    Attributes:
        number: Its number in the spool.
        at_us: Of its first record: wall clock, microseconds since 1970.
        epoch: Of its first record.
        lines: Whole lines, each with its newline.
    """

    number: int
    at_us: int
    epoch: int
    lines: bytes


_line: Final = msgspec.json.Decoder(_Line)


def read_again(payload: bytes) -> tuple[Again, bytes]:
    """The first line of an answer, and the rest.

    Raises:
        DecodeError: The first line is none of an answer, or contradicts itself.
    """
    first, _, rest = payload.partition(b"\n")
    again = decode_again(first)
    if again.held_first > again.held_last + 1:
        raise DecodeError(f"again: holds {again.held_first} to {again.held_last}")
    if again.batch_first <= again.batch_last and again.batch_last > again.held_last:
        span = f"{again.batch_first} to {again.batch_last}"
        raise DecodeError(f"again: {span}, of {again.held_first} to {again.held_last} held")
    return again, rest


def read_batches(lines: bytes, again: Again, *, broker: BrokerId) -> list[Batch]:
    """The batches that follow the first line of an answer, ascending.

    Raises:
        DecodeError: A line is no record of ``broker``, of the spool and of a batch that the first
            line names, or stands before one with a smaller number; then nothing counts.
    """
    batches: list[Batch] = []
    kept: list[bytes] = []
    first: _Line | None = None
    last_row = -1
    for line in lines.splitlines(keepends=True):
        record = _decode(line)
        if record.broker != broker or record.spool != again.spool:
            whose = f"{record.broker}-{record.spool[:16]!r}"
            raise DecodeError(f"record: of {whose}, {broker}-{again.spool} wanted")
        if first is None or record.batch != first.batch:
            least = again.batch_first if first is None else first.batch + 1
            if not least <= record.batch <= again.batch_last:
                span = f"{least} to {again.batch_last}"
                raise DecodeError(f"record: of batch {record.batch}, {span} wanted")
            if first is not None:
                batches.append(_batch(first, kept))
            first, kept, last_row = record, [], -1
        if record.row <= last_row:
            raise DecodeError(f"record: row {record.row} after {last_row} in {record.batch}")
        last_row = record.row
        kept.append(line)
    if first is not None:
        batches.append(_batch(first, kept))
    return batches


def _batch(first: _Line, lines: list[bytes]) -> Batch:
    whole = b"".join(lines)
    if not whole.endswith(b"\n"):
        whole += b"\n"
    return Batch(first.batch, first.at_us, first.epoch, whole)


def _decode(line: bytes) -> _Line:
    try:
        return _line.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"record: {error}") from error
