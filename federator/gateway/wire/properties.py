"""The properties of MQTT 5, checked against one table: carriers, repetition, values.

They are kept as pairs in their order, so that properties we do not change are forwarded unchanged.

Source: OASIS MQTT 5.0, 2.2.2.2, and for each packet its section "Properties".
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, Self

from federator.gateway.wire.fields import Cursor, write_binary, write_text, write_u16, write_varint
from federator.gateway.wire.kinds import Kind, MalformedError, Reason

Value = int | str | bytes | tuple[str, str]
Properties = tuple[tuple[int, Value], ...]
"""Identifiers and values, in the order of the packet; only user properties and, in PUBLISH,
subscription identifiers may repeat."""

PROPERTIES_MAX: Final = 1_000
"""Per packet. A property of five bytes takes some two hundred as an object."""

WILL: Final = 0
"""The carrier id of the will's properties in CONNECT."""


class _Form(NamedTuple):
    """How a value is read and written."""

    read: Callable[[Cursor], Value]
    write: Callable[[Any], bytes]


def _flag(cursor: Cursor) -> int:
    flag = cursor.byte()
    if flag > 1:
        raise MalformedError(f"{flag} where 0 or 1 is allowed", Reason.PROTOCOL_ERROR)
    return flag


_FLAG = _Form(_flag, lambda flag: bytes((flag,)))
_U16 = _Form(Cursor.u16, write_u16)
_U32 = _Form(Cursor.u32, lambda number: number.to_bytes(4, "big"))
_VARINT = _Form(Cursor.varint, write_varint)
_TEXT = _Form(Cursor.text, write_text)
_BINARY = _Form(Cursor.binary, write_binary)
_PAIR = _Form(
    lambda cursor: (cursor.text(), cursor.text()), lambda pair: b"".join(map(write_text, pair))
)

_ACKS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)
_ANY = tuple(k for k in Kind if k not in (Kind.PINGREQ, Kind.PINGRESP))
_MESSAGE = (Kind.PUBLISH, WILL)
_HANDSHAKE = (Kind.CONNECT, Kind.CONNACK)
_AUTHENTICATION = (*_HANDSHAKE, Kind.AUTH)
_ANSWERS = (Kind.CONNACK, *_ACKS, Kind.SUBACK, Kind.UNSUBACK, Kind.DISCONNECT, Kind.AUTH)


class Property(IntEnum):
    """The identifiers of properties, the form of their values, and the packets they may be in."""

    form: _Form
    carriers: tuple[int, ...]

    def __new__(cls, identifier: int, form: _Form, carriers: tuple[int, ...]) -> Self:
        """Make the member for one row of the table below."""
        member = int.__new__(cls, identifier)
        member._value_ = identifier
        member.form, member.carriers = form, carriers
        return member

    PAYLOAD_FORMAT = 0x01, _FLAG, _MESSAGE
    MESSAGE_EXPIRY = 0x02, _U32, _MESSAGE
    CONTENT_TYPE = 0x03, _TEXT, _MESSAGE
    RESPONSE_TOPIC = 0x08, _TEXT, _MESSAGE
    CORRELATION_DATA = 0x09, _BINARY, _MESSAGE
    SUBSCRIPTION_ID = 0x0B, _VARINT, (Kind.PUBLISH, Kind.SUBSCRIBE)
    SESSION_EXPIRY = 0x11, _U32, (*_HANDSHAKE, Kind.DISCONNECT)
    ASSIGNED_CLIENT_ID = 0x12, _TEXT, (Kind.CONNACK,)
    SERVER_KEEP_ALIVE = 0x13, _U16, (Kind.CONNACK,)
    AUTHENTICATION_METHOD = 0x15, _TEXT, _AUTHENTICATION
    AUTHENTICATION_DATA = 0x16, _BINARY, _AUTHENTICATION
    REQUEST_PROBLEM_INFORMATION = 0x17, _FLAG, (Kind.CONNECT,)
    WILL_DELAY = 0x18, _U32, (WILL,)
    REQUEST_RESPONSE_INFORMATION = 0x19, _FLAG, (Kind.CONNECT,)
    RESPONSE_INFORMATION = 0x1A, _TEXT, (Kind.CONNACK,)
    SERVER_REFERENCE = 0x1C, _TEXT, (Kind.CONNACK, Kind.DISCONNECT)
    REASON_STRING = 0x1F, _TEXT, _ANSWERS
    RECEIVE_MAXIMUM = 0x21, _U16, _HANDSHAKE
    TOPIC_ALIAS_MAXIMUM = 0x22, _U16, _HANDSHAKE
    TOPIC_ALIAS = 0x23, _U16, (Kind.PUBLISH,)
    MAXIMUM_QOS = 0x24, _FLAG, (Kind.CONNACK,)
    RETAIN_AVAILABLE = 0x25, _FLAG, (Kind.CONNACK,)
    USER_PROPERTY = 0x26, _PAIR, (*_ANY, WILL)
    MAXIMUM_PACKET_SIZE = 0x27, _U32, _HANDSHAKE
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28, _FLAG, (Kind.CONNACK,)
    SUBSCRIPTION_ID_AVAILABLE = 0x29, _FLAG, (Kind.CONNACK,)
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A, _FLAG, (Kind.CONNACK,)


_KNOWN: Final = {int(identifier): identifier for identifier in Property}

_NEVER_ZERO: Final = {
    Property.RECEIVE_MAXIMUM: Reason.PROTOCOL_ERROR,
    Property.MAXIMUM_PACKET_SIZE: Reason.PROTOCOL_ERROR,
    Property.SUBSCRIPTION_ID: Reason.MALFORMED_PACKET,  # Mosquitto's reason
    Property.TOPIC_ALIAS: Reason.TOPIC_ALIAS_INVALID,
}


def read_properties(cursor: Cursor, carrier: int) -> Properties:
    """Read and step over the properties at ``cursor``; ``carrier`` is a ``Kind`` or ``WILL``."""
    size = cursor.varint()
    if not size:
        return ()
    end = cursor.at + size
    if end > cursor.end:
        raise MalformedError("a packet ends inside its properties")
    outer, cursor.end = cursor.end, end
    pairs: list[tuple[int, Value]] = []
    seen = 0
    while cursor.at < end:
        identifier = cursor.varint()
        name = _KNOWN.get(identifier)
        if name is None:
            raise MalformedError(f"the unknown property {identifier:#x}")
        if carrier not in name.carriers:
            raise MalformedError(f"the property {name.name} does not belong here")
        if seen & 1 << name and not _repeatable(name, carrier):
            raise MalformedError(f"the property {name.name} comes twice", Reason.PROTOCOL_ERROR)
        seen |= 1 << name
        pairs.append((identifier, _checked(name, name.form.read(cursor))))
        if len(pairs) > PROPERTIES_MAX:
            raise MalformedError(f"more than {PROPERTIES_MAX} properties", Reason.QUOTA_EXCEEDED)
    if seen & 1 << Property.AUTHENTICATION_DATA and not seen & 1 << Property.AUTHENTICATION_METHOD:
        raise MalformedError("authentication data without a method", Reason.PROTOCOL_ERROR)
    cursor.end = outer
    return tuple(pairs)


def write_properties(properties: Properties) -> bytes:
    """Write properties after their length."""
    body = b"".join(
        write_varint(name) + _KNOWN[name].form.write(value) for name, value in properties
    )
    return write_varint(len(body)) + body


def number_in(properties: Properties, name: Property, default: int) -> int:
    """The value of a numeric property."""
    for key, value in properties:
        if key == name:
            assert isinstance(value, int)
            return value
    return default


def text_in(properties: Properties, name: Property) -> str:
    """The value of a text property; empty without."""
    return next((str(value) for key, value in properties if key == name), "")


def without(properties: Properties, *names: Property) -> Properties:
    """All properties but ``names``."""
    return tuple(pair for pair in properties if pair[0] not in names)


def with_value(properties: Properties, name: Property, value: Value) -> Properties:
    """The same properties with one value replaced, or appended."""
    if any(key == name for key, _ in properties):
        return tuple((key, value if key == name else former) for key, former in properties)
    return (*properties, (name, value))


def _repeatable(name: Property, carrier: int) -> bool:
    return name == Property.USER_PROPERTY or (
        name == Property.SUBSCRIPTION_ID and carrier == Kind.PUBLISH
    )


def _checked(name: Property, value: Value) -> Value:
    if value == 0 and name in _NEVER_ZERO:
        raise MalformedError(f"{name.name} is 0", _NEVER_ZERO[name])
    if name == Property.RESPONSE_TOPIC:
        assert isinstance(value, str)
        if not value or "+" in value or "#" in value:
            raise MalformedError("the response topic is no topic", Reason.PROTOCOL_ERROR)
    return value
