"""Control messages on the wire: MessagePack, validated field by field on receipt.

Source: docs/protocol.md 3.
"""

import msgspec

from federator.errors import DecodeError
from federator.protocol.filters import may_travel, validate_filter, validate_topic
from federator.protocol.messages import control as c
from federator.protocol.messages import group_records
from federator.protocol.messages.destinations import destination_filter, is_destination_record
from federator.protocol.messages.fields import decoded
from federator.protocol.messages.places import parse_place
from federator.protocol.messages.serving import parse_served
from federator.protocol.messages.session_records import parse_record

CONTROL_BYTES_MAX = 1_048_576

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(c.Message)

_KIND_OF: dict[type, str] = {
    c.Hello: "hello",
    c.CoreAnn: "core_ann",
    c.MeshMembAnn: "mesh_memb_ann",
    c.Bye: "ctl",
    c.FilterListRequest: "ctl",
    c.FilterListPage: "ctl",
    c.Solicit: "ctl",
    c.DrainOrder: "ctl",
    c.Revoked: "ctl",
    c.TraceEcho: "ctl",
    c.DatagramOffer: "ctl",
    c.DirectOffer: "ctl",
    c.TreeTorn: "ctl",
    c.RepairRequest: "repair",
    c.Wave: "wave",
    c.Echo: "wave",
    c.RetainedRequest: "retained",
    c.RetainedLetter: "retained",
    c.OutboxMark: "window",
    c.OutboxTaken: "window",
}

CONTROL_KINDS = tuple(dict.fromkeys(_KIND_OF.values()))
"""Last topic level of each control topic."""

HELLO = _KIND_OF[c.Hello]
WINDOW = _KIND_OF[c.OutboxMark]


def kind_of(message: c.Message) -> str:
    """The control topic, below ``$fed/<federation>/``, that carries ``message``."""
    return _KIND_OF[type(message)]


def encode(message: c.Message) -> bytes:
    return _encoder.encode(message)


def decode(kind: str, payload: bytes) -> c.Message:
    """The message in ``payload``, received on the control topic ``kind``.

    Raises:
        DecodeError: The payload is too long, malformed, out of range, or not of ``kind``.
    """
    message: c.Message = decoded(_decoder, kind, payload, CONTROL_BYTES_MAX)
    if kind_of(message) != kind:
        raise DecodeError(f"{kind}: carries a {type(message).__name__}")
    filters = _filters_in(message)
    if isinstance(message, c.CoreAnn | c.MeshMembAnn | c.FilterListPage):
        # Each character is a byte or more; checking the filters costs far more.
        size = sum(map(len, filters))
        if size > c.FILTER_LIST_BYTES_MAX:
            text = f"{kind}: {size} characters of filters, at most {c.FILTER_LIST_BYTES_MAX} wanted"
            raise DecodeError(text)
    for filter_ in filters:
        if kind == "retained":  # records between agents match no topic that could be retained
            _check_travels(kind, filter_)
        _check_filter(kind, filter_)
    for topic in _topics_in(message):
        _check_topic(kind, topic)
    return message


def _filters_in(message: c.Message) -> tuple[str, ...]:
    match message:
        case c.CoreAnn() | c.MeshMembAnn():
            return message.added + message.removed
        case c.FilterListPage():
            return message.filters
        case c.Wave():
            return tuple(filter_ for filter_, _ in message.filters)
        case c.RetainedRequest():
            return tuple(want.filter for want in message.wants)
        case c.RetainedLetter():
            return (message.body.filter,)
        case _:
            return ()


def _topics_in(message: c.Message) -> tuple[str, ...]:
    if isinstance(message, c.RetainedLetter):
        body = message.body
        if isinstance(body, c.RetainedPage | c.RetainedNews | c.RetainedValues):
            return tuple(entry.topic for entry in body.entries)
        if isinstance(body, c.RetainedAsk):
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
    if group_records.is_record(filter_) or parse_record(filter_) or parse_place(filter_):
        return
    if parse_served(filter_):
        return
    try:
        if is_destination_record(filter_):
            destination_filter(filter_)
        elif not may_travel(validate_filter(filter_)):
            raise ValueError(f"{filter_[:80]!r} must not travel")
    except ValueError as error:
        raise DecodeError(f"{kind}: {error}") from error
