"""Metrics records: one struct per table, one JSON object per line.

Every record states its reporter, its time, and its position in the reporter's log, as a parcel
carries a tracking number: (broker, spool, batch, row) is assigned once and never again, so a reader
that sees a number twice has received a copy, by whatever path.

``deliveries`` counts each publication once, however many filters it matched; ``offered`` and
``arrived`` count it once for each filter it was routed by, at both of its ends, and both by when
its origin made it, by the origin's clock: so the difference of the two is what is missing between
an origin and a destination, while ``wants`` shows that the destination's clients want the filter.

docs/metrics.md explains the fields, from "Every record" on; a test keeps its tables equal to these
types.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from federator.protocol.messages.fields import decoded
from federator.protocol.telemetry.sketch import BUCKETS_MAX
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
    """The fields that all tables share. Integers, except where a type says otherwise."""

    v: Literal[1] = VERSION  # version of this format
    federation: Text  # the federation of the agents
    broker: Id  # the reporter
    epoch: Natural  # the reporter's incarnation
    spool: SpoolId  # its log on disk, 16 hexadecimal digits; a new disk is a new spool
    batch: Positive  # what one flush wrote, from 1, across restarts
    row: Natural  # position within the batch, from 0
    at_us: Signed  # Unix time in microseconds of the window's start, or of the instant
    window_ms: Natural = 0  # the time that the record covers; 0 for an instant


Row = tuple[type[Record], dict[str, Any]]
"""A record without a position yet: its table, and the fields of that table."""

_encoder: Final = msgspec.json.Encoder()


def encode(record: msgspec.Struct) -> bytes:
    """Encode ``record`` as a line, without its line end."""
    return _encoder.encode(record)


Buckets = Annotated[list[tuple[Natural, Natural]], msgspec.Meta(max_length=BUCKETS_MAX)]


class Deliveries(Record, frozen=True, kw_only=True, tag="deliveries"):
    """Publications sent to the reporter's broker for its clients."""

    origin: Id
    hops: Natural
    qos: QosLevel
    strategy: StrategyName
    redundancy: Natural
    publications: Natural
    bytes: Natural
    frames: Natural
    out_of_order: Natural
    repaired: Natural
    base_us: Signed
    sum_us: Signed
    min_us: Signed
    max_us: Signed
    delay: Buckets


MADE_WINDOW_US: Final = 10_000_000
"""Offers and arrivals are compared by windows of the time made, by the origin's clock."""


class Offered(Record, frozen=True, kw_only=True, tag="offered"):
    """Publications of the reporter's own clients that other brokers wanted."""

    filter: Text
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    bytes: Natural
    made_us: Natural | None = None  # start of the ``MADE_WINDOW_US`` in which they were made


class Arrived(Record, frozen=True, kw_only=True, tag="arrived"):
    """Publications of other brokers' clients sent to the reporter's broker."""

    filter: Text
    origin: Id
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    bytes: Natural
    made_us: Natural | None = None  # as in ``Offered``


class Wants(Record, frozen=True, kw_only=True, tag="wants"):
    """A filter that the reporter's clients want, or wanted until ``until_us``."""

    filter: Text
    since_us: Natural
    until_us: Natural | None = None


DELAYS_MAX = 100_000


class Events(Record, frozen=True, kw_only=True, tag="events"):
    """A change that an agent noticed."""

    kind: Text
    neighbour: Id | None = None
    filter: Text | None = None
    subject: Id | None = None
    detail: Text | None = None
    value: Signed | None = None


class Hops(Record, frozen=True, kw_only=True, tag="hops"):
    """One sampled frame at one agent. (origin, origin_epoch, custody, seq) names the frame."""

    origin: Id
    origin_epoch: Natural
    seq: Natural
    custody: Flag
    hop: Natural
    sender: Id | None = None
    origin_time_us: Natural
    qos: QosLevel


Delays = Annotated[tuple[Signed, ...], msgspec.Meta(max_length=DELAYS_MAX)]


class Clients(Record, frozen=True, kw_only=True, tag="clients"):
    """End-to-end measurements of test clients; written by ``federator-lab grid``, never by agents.

    ``broker`` is the destination here too.
    """

    publisher_broker: Id
    destination: Id
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    expected: Natural
    base_us: Signed
    sum_us: Signed
    min_us: Signed
    max_us: Signed
    delay: Buckets
    delays_us: Delays = ()


_GOLDEN = 2_654_435_769
_MIX = 0x9E3779B97F4A7C15
_MASK = 2**32 - 1


@lru_cache(maxsize=16_384)
def salt_of(origin: int, epoch: int) -> int:
    """The point on the circle where the numbers of an origin's incarnation begin."""
    mixed = (origin * _MIX + epoch) * _MIX
    return (mixed >> 29) & _MASK


def place_of(salt: int, seq: int) -> int:
    """The point of frame ``seq`` on that circle, of 32 bits: evenly spread, equal on all agents."""
    return (salt + seq * _GOLDEN) & _MASK


def is_sampled(salt: int, seq: int, one_in: int) -> bool:
    """Whether frame ``seq`` is in the sample of one in ``one_in`` frames; 0: none is.

    Args:
        salt: ``salt_of`` its origin and epoch.
        seq: Its number.
        one_in: All agents must use the same.
    """
    return place_of(salt, seq) * one_in >> 32 == 0 and one_in > 0


Direction = Literal["in", "out"]


class Links(Record, frozen=True, kw_only=True, tag="links"):
    """One neighbour, over a window."""

    neighbour: Id
    up: Flag
    cost: Natural
    round_trip_us: Natural | None = None
    queue_bytes: Natural = 0
    frames_out: Natural = 0
    publications_out: Natural = 0
    bytes_out: Natural = 0
    frames_in: Natural = 0
    publications_in: Natural = 0
    bytes_in: Natural = 0
    duplicates: Natural = 0
    duplicate_publications: Natural = 0
    dropped: Natural = 0
    deferred: Natural = 0
    capacity: Natural | None = None


FLOWS_MAX: Final = 16
"""Flows reported in one window: the heaviest."""
FLOW_CHARS_MAX: Final = 256
_HASH_BYTES: Final = 8

FlowName = Annotated[str, msgspec.Meta(min_length=1, max_length=FLOW_CHARS_MAX)]


class Flows(Record, frozen=True, kw_only=True, tag="flows"):
    """One of the heaviest flows of the reporter's clients, at the window's end."""

    flow: FlowName  # ``flow_name`` of its filters
    rate: Natural  # bit/s, the mean of the last ten seconds
    error: Natural  # the standard error of ``rate``, bit/s
    publications_per_min: Natural  # likewise a mean
    destinations: Natural  # brokers that want it over the shortest path
    planned: Flag  # it goes by a tree of a plan


def flow_name(filters: Iterable[str]) -> str:
    """A text for a set of filters; a long one is cut and ends with a hash that makes it unique."""
    text = " ".join(sorted(filters))
    if len(text) <= FLOW_CHARS_MAX:
        return text
    end = "..." + blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()
    return text[: FLOW_CHARS_MAX - len(end)] + end


class Control(Record, frozen=True, kw_only=True, tag="control"):
    """Control messages exchanged with one neighbour."""

    neighbour: Id | None
    kind: Text
    direction: Direction
    messages: Natural
    bytes: Natural


class Announcements(Record, frozen=True, kw_only=True, tag="announcements"):
    """Floods that the reporter started as a core."""

    announcements: Natural
    links_known: Natural | None = None


class Agents(Record, frozen=True, kw_only=True, tag="agents"):
    """The reporter itself. Counters are of the window, the rest is the state at its end."""

    clients: Natural | None = None
    filters: Natural
    local_filters: Natural
    publications_in: Natural
    publications_out: Natural
    delivered: Natural
    no_route: Natural
    dropped: Natural
    deferred: Natural
    custody_bytes: Natural
    custody_gaps: Natural
    send_queue_bytes: Natural
    cpu_us: Natural
    rss_bytes: Natural | None = None
    loop_lag_us: Natural
    broker_clients: Natural | None = None
    broker_messages_in: Natural | None = None
    broker_messages_out: Natural | None = None
    broker_round_trip_us: Natural | None = None
    strategy: Text
    redundancy: Natural
    link_count: Natural
    name: Text | None = None


AnyRecord = (
    Deliveries | Offered | Arrived | Wants | Links | Flows | Control | Announcements | Agents
    | Events | Hops | Clients
)  # fmt: skip

TABLES: Final[dict[str, type[Record]]] = {
    str(table.__struct_config__.tag): table for table in get_args(AnyRecord)
}
"""The tables, by the name in a record's ``table``."""

LINE_BYTES_MAX: Final = 1_048_576

_decoder: Final[msgspec.json.Decoder[AnyRecord]] = msgspec.json.Decoder(AnyRecord)


def decode(line: bytes) -> AnyRecord:
    """Decode ``line``. Fields that this version does not know are ignored.

    Raises:
        DecodeError: It is no record of this version.
    """
    return decoded(_decoder, "record", line, LINE_BYTES_MAX)
