"""The metrics stream, version 1: what a record line may hold, per table (docs/metrics.md).

A line is one JSON object. ``RECORD_LINE`` is the union of all tables, for Spark's own readers; keys
that a table lacks are NULL. ``FIELDS`` says of each table which keys it must
have, which may be missing, and in which range their values lie; a line outside of it goes to
quarantine. Keys that version 1 does not know are ignored, so a newer agent may add some.
"""

from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from analytics.schemas.fields import TYPES, struct

RECORD_VERSION = 1
BROKER_ID_MAX = 2**32 - 1
COUNT_MAX = 2**40
"""Counters, bytes and spans: far above what a window holds, far below where sums overflow."""
INSTANT_US_MAX = 4_102_444_800_000_000
"""The year 2100. Clocks may disagree by hours, not by centuries."""
BUCKET_MAX = 1_400
"""1.02 ** 1400 us are twelve days; agents keep a publication for less."""
ROW_MAX = 2**31
TEXT_MAX = 65_535
"""An MQTT topic filter has no more bytes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record: its type, whether it may be missing, and the range of its numbers."""

    name: str
    kind: str
    nullable: bool = False
    low: int = 0
    high: int = COUNT_MAX

    @property
    def told(self) -> str:
        """As ``fields.struct`` reads it."""
        return f"{self.name} {self.kind}{'?' if self.nullable else ''}"


def _counts(*names: str, nullable: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, "long", nullable) for name in names)


def _brokers(*names: str, nullable: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, "long", nullable, high=BROKER_ID_MAX) for name in names)


def _signed(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "long", low=-INSTANT_US_MAX, high=INSTANT_US_MAX) for name in names)


def _texts(*names: str, nullable: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, "string", nullable) for name in names)


def _instants(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "long", high=INSTANT_US_MAX) for name in names)


_EPOCH_MAX = 2**63 - 1
_QOS = Field("qos", "long", high=2)

HEAD = (
    Field("v", "long", low=RECORD_VERSION, high=RECORD_VERSION),
    *_texts("table", "federation"),
    *_brokers("broker"),
    Field("epoch", "long", high=_EPOCH_MAX),
    *_texts("spool"),
    Field("batch", "long", low=1),
    Field("row", "long", high=ROW_MAX),
    *_instants("at_us"),
    *_counts("window_ms"),
)
"""On every line. (broker, spool, batch, row) identifies a record."""

IDENTITY = ("broker", "spool", "batch", "row")

FIELDS: dict[str, tuple[Field, ...]] = {
    "deliveries": (
        *_brokers("origin"),
        *_counts("hops"),
        _QOS,
        *_texts("strategy"),
        *_counts("redundancy", "publications", "bytes", "frames", "out_of_order", "repaired"),
        *_signed("base_us", "sum_us", "min_us", "max_us"),
        Field("delay", "sketch"),
    ),
    "offered": (*_texts("filter"), _QOS, *_texts("strategy"), *_counts("publications", "bytes")),
    "arrived": (
        *_texts("filter"),
        *_brokers("origin"),
        _QOS,
        *_texts("strategy"),
        *_counts("publications", "bytes"),
    ),
    "links": (
        *_brokers("neighbour"),
        Field("up", "long", high=1),
        *_counts("cost", "round_trip_us", nullable=True),
        *_counts("queue_bytes", "frames_out", "publications_out", "bytes_out"),
        *_counts("frames_in", "publications_in", "bytes_in"),
        *_counts("duplicates", "duplicate_publications", "dropped", "deferred"),
    ),
    "control": (
        *_brokers("neighbour", nullable=True),
        *_texts("kind", "direction"),
        *_counts("messages", "bytes"),
    ),
    "announcements": (*_counts("announcements"), *_counts("links_known", nullable=True)),
    "agents": (
        *_counts("clients", nullable=True),
        *_counts("filters", "local_filters", "publications_in", "publications_out"),
        *_counts("delivered", "no_route", "dropped", "deferred", "custody_bytes", "custody_gaps"),
        *_counts("send_queue_bytes", "cpu_us", "loop_lag_us"),
        *_counts("rss_bytes", nullable=True),
        *_counts("broker_clients", "broker_messages_in", "broker_messages_out", nullable=True),
        *_counts("redundancy", "link_count"),
    ),
    "events": (
        *_texts("kind"),
        *_brokers("neighbour", nullable=True),
        *_texts("filter", nullable=True),
        *_brokers("subject", nullable=True),
        *_texts("detail", nullable=True),
        Field("value", "long", nullable=True, low=-INSTANT_US_MAX, high=INSTANT_US_MAX),
    ),
    "hops": (
        *_brokers("origin"),
        Field("origin_epoch", "long", high=_EPOCH_MAX),
        *_counts("seq"),
        Field("custody", "long", high=1),
        *_counts("hop"),
        *_brokers("sender", nullable=True),
        *_instants("origin_time_us"),
        _QOS,
    ),
    "clients": (
        *_brokers("publisher_broker", "destination"),
        *_counts("publications"),
        Field("delays_us", "longs"),
    ),
}
"""What each table has beside ``HEAD``. ``clients.delays_us``: each publication's, in any order."""

TABLES = tuple(FIELDS)
CHOICES = {"strategy": ("mesh", "shortest-path"), "direction": ("in", "out")}
"""Texts of few possible values."""


def record_table(table: str) -> StructType:
    """The typed view of one table: ``HEAD``, then its own keys."""
    return struct(*(field.told for field in (*HEAD, *FIELDS[table])))


def _union() -> StructType:
    kinds = {field.name: field.kind for field in HEAD}
    for fields in FIELDS.values():
        for field in fields:
            assert kinds.setdefault(field.name, field.kind) == field.kind, field.name
    return StructType([StructField(name, TYPES[kind]) for name, kind in kinds.items()])


RECORD_LINE = _union()
"""Every key of every table, each once, all of which may be NULL."""
