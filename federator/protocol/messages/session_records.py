"""What a broker announces of itself and of others, written as filters that no client can subscribe.

Core announcements carry filters to all agents, keep them in step after losses, number them, and
notice when the broker that announced them is gone. The session flow table and the controller's
decisions need exactly that, so they are announced the same way (as groups are, see
``protocol.messages.group_records``): every agent holds the whole table, and a new controller has it
already.

- ``$fed/controller/broker/...``: I am here; my state, load, address, and links.
- ``$fed/controller/flow/...``: one row of the session flow table.
- ``$fed/controller/office/...``: I take myself for the controller.
- ``$fed/controller/plan/...``: which brokers would step in for a broker, best first.
- ``$fed/controller/takeover/...``: which broker has stepped in for a broker.

The last three count only if the controller announces them. Each record is valid for its announcer
only, so a broker cannot announce anything for another one.

Source: Chen 2020, 3.3.4 and Table 11; docs/protocol.md 15.
"""

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal

import msgspec

from federator.protocol.filters import unwelcome_in, validate_filter, validate_topic, without_share
from federator.protocol.messages.fields import Id, Natural
from federator.protocol.messages.guide import SUBSTITUTES_MAX

PREFIX: Final = "$fed/controller/"
RECORD_BYTES_MAX: Final = 65_535
LINKS_MAX: Final = 1_024
COLLECTS_MAX: Final = 64
COLLECTS_BYTES_MAX: Final = 8_192
"""Limit for all filters that a broker collects: the rest of its record needs room, too."""

TERM_MAX: Final = 2**53

_Ids = Annotated[tuple[Id, ...], msgspec.Meta(max_length=LINKS_MAX)]
_Term = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=RECORD_BYTES_MAX)]
_Collected = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=COLLECTS_MAX)]

Action = Literal["pub", "sub"]


class BrokerRecord(msgspec.Struct, frozen=True, array_like=True):
    """Says that the announcing broker is here, and its state."""

    draining: bool = False  # whether its operator moves its clients away
    clients: Natural = 0  # connected clients, rounded
    load: Natural = 0  # publications per second, rounded
    # Where clients reach it; empty when it announced none.
    address: Annotated[str, msgspec.Meta(max_length=512)] = ""
    links: _Ids = ()  # neighbours with which it has a live link, ascending
    orphans: _Ids = ()  # neighbours with a silent agent and a broker that still answers
    missed: _Ids = ()  # brokers that it saw alive and that are gone, for agents that come later
    # The greatest term of a controller that it knew and does not follow now.
    other_term: _Term = 0
    # The name that operators gave it, unchecked: show only ``sound_name`` of it.
    name: str = ""
    # Of the filters that its clients want over the shortest path, those that only collectors want:
    # an agent that keeps a topic at the edge need not send it there. Ascending.
    collects: _Collected = ()


class FlowRow(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One row of the session flow table: what a client does on the announcing broker."""

    client: _Text  # the client id
    action: Action  # whether it publishes or subscribes
    topic: _Text  # the topic or the filter, ``$share/`` as given
    on: bool = True  # whether it is connected
    keeps: bool = False  # whether its session outlives its connection
    # The QoS of the subscription; 0 for publishers.
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    gateway: bool = False  # whether a gateway serves the client, and moves its session itself


class ControllerRecord(msgspec.Struct, frozen=True, array_like=True):
    """Says that the announcing broker takes itself for the controller."""

    term: _Term  # grows with every change of controllers that the announcing broker has seen
    number: Natural  # the number of its newest decision in this term


class PlanRecord(msgspec.Struct, frozen=True, array_like=True):
    """Names the brokers that would step in for ``broker``, best first."""

    broker: Id
    substitutes: Annotated[tuple[Id, ...], msgspec.Meta(max_length=SUBSTITUTES_MAX)]


class TakeoverRecord(msgspec.Struct, frozen=True, array_like=True):
    """Says that ``substitute`` has stepped in for ``broker``, decided as ``number`` of ``term``."""

    broker: Id
    substitute: Id
    term: _Term
    number: Natural


Record = BrokerRecord | FlowRow | ControllerRecord | PlanRecord | TakeoverRecord

_KINDS: Final[dict[type, str]] = {
    BrokerRecord: "broker/",
    FlowRow: "flow/",
    ControllerRecord: "office/",
    PlanRecord: "plan/",
    TakeoverRecord: "takeover/",
}
_ROW_PREFIX: Final = PREFIX + _KINDS[FlowRow]
_decoders: Final[dict[str, Any]] = {
    name: msgspec.json.Decoder(kind) for kind, name in _KINDS.items()
}
_encoder: Final = msgspec.json.Encoder()


def encode_record(record: Record) -> str | None:
    """``record`` as a filter; ``None`` when that would be too long."""
    text = f"{PREFIX}{_KINDS[type(record)]}{_encoder.encode(record).decode()}"
    return text if len(text.encode()) <= RECORD_BYTES_MAX else None


def parse_record(filter: str) -> Record | None:
    """The record in ``filter``; ``None`` when it is no well-formed record."""
    if not filter.startswith(PREFIX):
        return None
    kind, slash, rest = filter[len(PREFIX) :].partition("/")
    decoder = _decoders.get(kind + slash)
    if decoder is None:
        return None
    try:
        record: Record = decoder.decode(rest)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return record if not isinstance(record, FlowRow) or is_sound(record) else None


def row_in(text: str) -> FlowRow:
    """The row in ``text``, which was found well-formed before."""
    row: FlowRow = _decoders[_KINDS[FlowRow]].decode(text[len(_ROW_PREFIX) :])
    return row


def may_be_of(text: str, client: str) -> bool:
    """Whether ``row_in(text)`` may be of ``client``, much faster; escaped text always may."""
    return f'"{client}"' in text or "\\" in text


def may_collect(filters: Collection[str]) -> bool:
    """Whether a record has room for so many ``filters``."""
    size = sum(len(filter.encode()) for filter in filters)
    return len(filters) <= COLLECTS_MAX and size <= COLLECTS_BYTES_MAX


def is_sound(row: FlowRow) -> bool:
    """Whether a broker can have such a client with such a topic."""
    if "\0" in row.client or unwelcome_in(row.client):
        return False
    try:
        if row.action == "pub":
            validate_topic(row.topic)
        else:
            validate_filter(row.topic)
    except ValueError:
        return False
    return not without_share(row.topic).startswith("$")
