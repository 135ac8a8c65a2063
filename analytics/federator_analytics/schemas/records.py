"""The metrics stream, version 1: what a record line may hold, per table (docs/metrics.md).

A line is one JSON object. ``FIELDS`` says of each table which keys it must have, which may be
missing, and in which range their values lie; a line outside of it goes to quarantine. Keys and
kinds are those of the types that agents write; ranges are narrower, for a value far above what can
be is an error. Keys that version 1 does not know are ignored, so a newer agent may add some.
``RECORD_LINE`` is the union of all tables, for Spark's own readers; keys that a table lacks are
NULL.
"""

from dataclasses import dataclass, replace
from types import NoneType
from typing import get_args, get_type_hints

from pyspark.sql.types import StructField, StructType

from federator.protocol.telemetry import records as written
from federator.protocol.types import BROKER_ID_MAX
from federator_analytics.schemas.fields import TYPES

RECORD_VERSION = written.VERSION
_EPOCH_MAX = 2**63 - 1
COUNT_MAX = 2**40
"""Counters, bytes and spans: far above what a window holds, far below where sums overflow."""
INSTANT_US_MAX = 4_102_444_800_000_000
"""The year 2100. Clocks may disagree by hours, not by centuries."""
BUCKET_MAX = 1_400
"""1.02 ** 1400 us are twelve days; agents keep a publication for less."""
ROW_MAX = 2**31


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record: its type, whether it may be missing, and its range.

    Of numbers that is of their value, of texts of their length.
    """

    name: str
    kind: str
    nullable: bool = False
    low: int = 0
    high: int = COUNT_MAX


_LONG = Field("", "long")
_TEXT = Field("", "string")
_OF_TYPE: dict[object, Field] = {
    written.Id: replace(_LONG, high=BROKER_ID_MAX),
    written.Natural: _LONG,
    written.Signed: replace(_LONG, low=-INSTANT_US_MAX, high=INSTANT_US_MAX),
    written.QosLevel: replace(_LONG, high=2),
    written.Flag: replace(_LONG, high=1),
    written.Text: _TEXT,
    written.FlowName: replace(_TEXT, low=1, high=written.FLOW_CHARS_MAX),
    written.StrategyName: _TEXT,
    written.Direction: _TEXT,
    written.Buckets: Field("", "sketch"),
    written.Delays: Field("", "longs"),
}
_SPECIAL = {
    "cost": replace(_LONG, nullable=True),
    "origin_epoch": replace(_LONG, high=_EPOCH_MAX),
    "origin_time_us": replace(_LONG, high=INSTANT_US_MAX),
    **dict.fromkeys(("made_us", "since_us", "until_us"), replace(_LONG, high=INSTANT_US_MAX)),
}
"""Fields whose type says less than what can be believed."""
_PASSED_OVER = {
    "agents": frozenset(("strategy", "broker_round_trip_us")),
    "clients": frozenset(
        ("qos", "strategy", "expected", "base_us", "sum_us", "min_us", "max_us", "delay")
    ),
}
"""Fields that no table of the report wants: a line may lack them."""


def _fields(table: str, record: type[written.Record]) -> tuple[Field, ...]:
    """What is read of a table, from the type that writes it."""
    told = get_type_hints(record, include_extras=True)
    shared = {*written.Record.__struct_fields__, *_PASSED_OVER.get(table, ())}
    return tuple(
        _field(name, told[name]) for name in record.__struct_fields__ if name not in shared
    )


def _field(name: str, told: object) -> Field:
    options = [one for one in get_args(told) if one is not NoneType]
    nullable = NoneType in get_args(told)
    field = _SPECIAL.get(name) or _OF_TYPE[options[0] if nullable else told]
    return replace(field, name=name, nullable=field.nullable or nullable)


HEAD = (
    Field("v", "long", low=RECORD_VERSION, high=RECORD_VERSION),
    replace(_TEXT, name="table"),
    replace(_TEXT, name="federation"),
    Field("broker", "long", high=BROKER_ID_MAX),
    Field("epoch", "long", high=_EPOCH_MAX),
    replace(_TEXT, name="spool"),
    Field("batch", "long", low=1),
    Field("row", "long", high=ROW_MAX),
    Field("at_us", "long", high=INSTANT_US_MAX),
    replace(_LONG, name="window_ms"),
)
"""Fields of every line. (broker, spool, batch, row) identifies a record."""

IDENTITY = ("broker", "spool", "batch", "row")

FIELDS = {table: _fields(table, record) for table, record in written.TABLES.items()}
"""What each table has beside ``HEAD``. ``clients.delays_us``: each publication's, in any order."""

TABLES = tuple(FIELDS)
CHOICES = {"strategy": get_args(written.StrategyName), "direction": get_args(written.Direction)}
"""Texts of few possible values."""


def _union() -> StructType:
    kinds = {field.name: field.kind for field in HEAD}
    for fields in FIELDS.values():
        for field in fields:
            assert kinds.setdefault(field.name, field.kind) == field.kind, field.name
    return StructType([StructField(name, TYPES[kind]) for name, kind in kinds.items()])


RECORD_LINE = _union()
"""Every key of every table, each once, all of which may be NULL."""
