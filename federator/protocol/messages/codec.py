"""Control messages on the wire: MessagePack, validated field by field on receipt.

Source: docs/protocol.md 3.
"""

import msgspec

from federator.errors import DecodeError
from federator.protocol.filters import may_travel, validate_filter, validate_topic
from federator.protocol.messages.control import (
    FILTER_LIST_BYTES_MAX,
    Bye,
    CoreAnn,
    DatagramOffer,
    DrainOrder,
    Echo,
    FilterListPage,
    FilterListRequest,
    Hello,
    MeshMembAnn,
    Message,
    RepairRequest,
    RetainedAsk,
    RetainedLetter,
    RetainedNews,
    RetainedPage,
    RetainedRequest,
    RetainedValues,
    Revoked,
    Solicit,
    TraceEcho,
    Wave,
)
from federator.protocol.messages.destinations import destination_filter, is_destination_record
from federator.protocol.messages.fields import decoded
from federator.protocol.messages.group_records import is_record
from federator.protocol.messages.places import is_place_record
from federator.protocol.messages.session_records import is_record as is_controller_record

CONTROL_BYTES_MAX = 1_048_576

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)

_KIND_OF: dict[type, str] = {
    Hello: "hello",
    CoreAnn: "core_ann",
    MeshMembAnn: "mesh_memb_ann",
    Bye: "ctl",
    FilterListRequest: "ctl",
    FilterListPage: "ctl",
    Solicit: "ctl",
    DrainOrder: "ctl",
    Revoked: "ctl",
    TraceEcho: "ctl",
    DatagramOffer: "ctl",
    RepairRequest: "repair",
    Wave: "wave",
    Echo: "wave",
    RetainedRequest: "retained",
    RetainedLetter: "retained",
}

CONTROL_KINDS = tuple(dict.fromkeys(_KIND_OF.values()))
"""Last topic level of each control topic."""


def kind_of(message: Message) -> str:
    """The control topic, below ``$fed/<federation>/``, that carries ``message``."""
    return _KIND_OF[type(message)]


def encode(message: Message) -> bytes:
    """The wire form of ``message``."""
    return _encoder.encode(message)


def decode(kind: str, payload: bytes) -> Message:
    """The message in ``payload``, received on the control topic ``kind``.

    Raises:
        DecodeError: When the payload is too long, malformed, out of range, or not of ``kind``.
    """
    message: Message = decoded(_decoder, kind, payload, CONTROL_BYTES_MAX)
    if kind_of(message) != kind:
        raise DecodeError(f"{kind}: carries a {type(message).__name__}")
    filters = _filters_in(message)
    if isinstance(message, CoreAnn | MeshMembAnn | FilterListPage):
        size = sum(map(len, filters))  # each a byte or more; to look at them costs far more
        if size > FILTER_LIST_BYTES_MAX:
            text = f"{kind}: {size} characters of filters, at most {FILTER_LIST_BYTES_MAX} wanted"
            raise DecodeError(text)
    for filter_ in filters:
        if kind == "retained":  # records between agents name no topics that could be retained
            _check_travels(kind, filter_)
        _check_filter(kind, filter_)
    for topic in _topics_in(message):
        _check_topic(kind, topic)
    return message


def _filters_in(message: Message) -> tuple[str, ...]:
    match message:
        case CoreAnn() | MeshMembAnn():
            return message.added + message.removed
        case FilterListPage():
            return message.filters
        case Wave():
            return tuple(filter_ for filter_, _ in message.filters)
        case RetainedRequest():
            return tuple(want.filter for want in message.wants)
        case RetainedLetter():
            return (message.body.filter,)
        case _:
            return ()


def _topics_in(message: Message) -> tuple[str, ...]:
    if isinstance(message, RetainedLetter):
        body = message.body
        if isinstance(body, RetainedPage | RetainedNews | RetainedValues):
            return tuple(entry.topic for entry in body.entries)
        if isinstance(body, RetainedAsk):
            return body.topics
    return ()


def _check_topic(kind: str, topic: str) -> None:
    try:
        validate_topic(topic)
    except ValueError as error:
        raise DecodeError(f"{kind}: {error}") from error
    _check_travels(kind, topic)


def _check_travels(kind: str, text: str) -> None:
    if text.startswith("$"):
        raise DecodeError(f"{kind}: {text[:80]!r} must not travel")


def _check_filter(kind: str, filter_: str) -> None:
    if is_record(filter_) or is_controller_record(filter_) or is_place_record(filter_):
        return
    try:
        if is_destination_record(filter_):
            destination_filter(filter_)
            return
        validate_filter(filter_)
    except ValueError as error:
        raise DecodeError(f"{kind}: {error}") from error
    if not may_travel(filter_):
        raise DecodeError(f"{kind}: {filter_[:80]!r} must not travel")
