"""What every record carries: who says it, of which moment, and its place in the reporter's log.

A record is a parcel with a tracking number: (broker, spool, batch, row) is given out once and never
again, so a reader that sees a number twice has seen a copy, whatever way it came.

Source: docs/metrics.md, "Every record".
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from federator.protocol.types import BROKER_ID_MAX

VERSION: Final = 1
TEXT_MAX: Final = 65_535

Id = Annotated[int, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Signed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
SpoolId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
QosLevel = Annotated[int, msgspec.Meta(ge=0, le=2)]
Flag = Annotated[int, msgspec.Meta(ge=0, le=1)]
StrategyName = Literal["mesh", "shortest-path"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="table"):
    """The part that all tables share. Whole numbers, except where a type says otherwise.

    Attributes:
        v: Version of this format.
        federation: Whose agents these are.
        broker: Who reports.
        epoch: The reporter's incarnation.
        spool: Its log on disk, 16 hexadecimal digits; a new disk is a new spool.
        batch: What one flush wrote, from 1, across restarts.
        row: Position within the batch, from 0.
        at_us: Unix time in microseconds of the window's start, or of the instant.
        window_ms: What the record sums up; 0 for an instant.
    """

    v: Literal[1] = VERSION
    federation: Text
    broker: Id
    epoch: Natural
    spool: SpoolId
    batch: Positive
    row: Natural
    at_us: Signed
    window_ms: Natural = 0


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What the records of one batch share."""

    federation: str
    broker: int
    epoch: int
    spool: str
    batch: int


_encoder: Final = msgspec.json.Encoder()


def stamp(values: Sequence[tuple[type[Record], dict[str, Any]]], of: Stamp) -> list[Record]:
    """The records of one batch, in order, each with its place in it.

    Args:
        values: Table and its own fields, ``at_us`` and ``window_ms`` among them.
        of: What they share.
    """
    shared = msgspec.structs.asdict(of)
    return [table(row=row, **shared, **fields) for row, (table, fields) in enumerate(values)]


def encode(record: msgspec.Struct) -> bytes:
    """The line that says ``record``, without its line end."""
    return _encoder.encode(record)
