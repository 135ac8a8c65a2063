"""The properties of MQTT 5, checked against one table: who may carry what, how often, which values.

They are kept as pairs in their order, so that whatever is not ours to change leaves as it came.

Source: OASIS MQTT 5.0, 2.2.2.2, and for each packet its section "Properties".
"""

from enum import IntEnum
from typing import Final

from federator.gateway.wire.fields import (
    Cursor,
    write_binary,
    write_text,
    write_u16,
    write_varint,
)
from federator.gateway.wire.kinds import Kind, MalformedError, Reason, malformed, protocol_error

Value = int | str | bytes | tuple[str, str]
Properties = tuple[tuple[int, Value], ...]
"""Identifiers and values, in the order of the packet; only user properties and, in PUBLISH,
subscription identifiers come more than once."""

PROPERTIES_MAX: Final = 1_000
"""In one packet. A property of five bytes takes some two hundred as an object."""

WILL: Final = 0
"""The will's properties in CONNECT, as if it were a packet."""


class Property(IntEnum):
    """The identifiers of properties."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


class _Form(IntEnum):
    FLAG = 0
    U16 = 1
    U32 = 2
    VARINT = 3
    TEXT = 4
    BINARY = 5
    PAIR = 6


_P = Property
_ACKS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)
_ANY = tuple(k for k in Kind if k not in (Kind.PINGREQ, Kind.PINGRESP))
_MESSAGE = (Kind.PUBLISH, WILL)
_HANDSHAKE = (Kind.CONNECT, Kind.CONNACK)
_AUTHENTICATION = (*_HANDSHAKE, Kind.AUTH)
_ANSWERS = (Kind.CONNACK, *_ACKS, Kind.SUBACK, Kind.UNSUBACK, Kind.DISCONNECT, Kind.AUTH)

_TABLE: Final[dict[int, tuple[_Form, tuple[int, ...]]]] = {
    _P.PAYLOAD_FORMAT: (_Form.FLAG, _MESSAGE),
    _P.MESSAGE_EXPIRY: (_Form.U32, _MESSAGE),
    _P.CONTENT_TYPE: (_Form.TEXT, _MESSAGE),
    _P.RESPONSE_TOPIC: (_Form.TEXT, _MESSAGE),
    _P.CORRELATION_DATA: (_Form.BINARY, _MESSAGE),
    _P.SUBSCRIPTION_ID: (_Form.VARINT, (Kind.PUBLISH, Kind.SUBSCRIBE)),
    _P.SESSION_EXPIRY: (_Form.U32, (*_HANDSHAKE, Kind.DISCONNECT)),
    _P.ASSIGNED_CLIENT_ID: (_Form.TEXT, (Kind.CONNACK,)),
    _P.SERVER_KEEP_ALIVE: (_Form.U16, (Kind.CONNACK,)),
    _P.AUTHENTICATION_METHOD: (_Form.TEXT, _AUTHENTICATION),
    _P.AUTHENTICATION_DATA: (_Form.BINARY, _AUTHENTICATION),
    _P.REQUEST_PROBLEM_INFORMATION: (_Form.FLAG, (Kind.CONNECT,)),
    _P.WILL_DELAY: (_Form.U32, (WILL,)),
    _P.REQUEST_RESPONSE_INFORMATION: (_Form.FLAG, (Kind.CONNECT,)),
    _P.RESPONSE_INFORMATION: (_Form.TEXT, (Kind.CONNACK,)),
    _P.SERVER_REFERENCE: (_Form.TEXT, (Kind.CONNACK, Kind.DISCONNECT)),
    _P.REASON_STRING: (_Form.TEXT, _ANSWERS),
    _P.RECEIVE_MAXIMUM: (_Form.U16, _HANDSHAKE),
    _P.TOPIC_ALIAS_MAXIMUM: (_Form.U16, _HANDSHAKE),
    _P.TOPIC_ALIAS: (_Form.U16, (Kind.PUBLISH,)),
    _P.MAXIMUM_QOS: (_Form.FLAG, (Kind.CONNACK,)),
    _P.RETAIN_AVAILABLE: (_Form.FLAG, (Kind.CONNACK,)),
    _P.USER_PROPERTY: (_Form.PAIR, (*_ANY, WILL)),
    _P.MAXIMUM_PACKET_SIZE: (_Form.U32, _HANDSHAKE),
    _P.WILDCARD_SUBSCRIPTION_AVAILABLE: (_Form.FLAG, (Kind.CONNACK,)),
    _P.SUBSCRIPTION_ID_AVAILABLE: (_Form.FLAG, (Kind.CONNACK,)),
    _P.SHARED_SUBSCRIPTION_AVAILABLE: (_Form.FLAG, (Kind.CONNACK,)),
}

_NEVER_ZERO: Final = {
    _P.RECEIVE_MAXIMUM: Reason.PROTOCOL_ERROR,
    _P.MAXIMUM_PACKET_SIZE: Reason.PROTOCOL_ERROR,
    _P.SUBSCRIPTION_ID: Reason.PROTOCOL_ERROR,
    _P.TOPIC_ALIAS: Reason.TOPIC_ALIAS_INVALID,
}


def read_properties(cursor: Cursor, carrier: int) -> Properties:
    """Read the properties at ``cursor`` and leave it behind them.

    Args:
        cursor: At their length.
        carrier: The ``Kind`` of packet, or ``WILL``.

    Raises:
        MalformedError: They are not what MQTT 5 allows in such a packet.
    """
    size = cursor.varint()
    if not size:
        return ()
    end = cursor.at + size
    if end > cursor.end:
        raise malformed("a packet ends inside its properties")
    outer, cursor.end = cursor.end, end
    found: list[tuple[int, Value]] = []
    seen = 0
    while cursor.at < end:
        name = cursor.varint()
        entry = _TABLE.get(name)
        if entry is None:
            raise malformed(f"the unknown property {name:#x}")
        form, carriers = entry
        if carrier not in carriers:
            raise protocol_error(f"the property {Property(name).name} does not belong here")
        if seen & 1 << name and not _repeatable(name, carrier):
            raise protocol_error(f"the property {Property(name).name} comes twice")
        seen |= 1 << name
        found.append((name, _checked(name, _read_value(cursor, form))))
        if len(found) > PROPERTIES_MAX:
            raise MalformedError(Reason.QUOTA_EXCEEDED, f"more than {PROPERTIES_MAX} properties")
    if seen & 1 << Property.AUTHENTICATION_DATA and not seen & 1 << Property.AUTHENTICATION_METHOD:
        raise protocol_error("authentication data without a method")
    cursor.end = outer
    return tuple(found)


def write_properties(properties: Properties) -> bytes:
    """Write properties behind their length."""
    parts = [
        write_varint(name) + _write_value(_TABLE[name][0], value) for name, value in properties
    ]
    body = b"".join(parts)
    return write_varint(len(body)) + body


def number_in(properties: Properties, name: Property, default: int) -> int:
    """The value of a property that is a number."""
    for key, value in properties:
        if key == name:
            assert isinstance(value, int)
            return value
    return default


def text_in(properties: Properties, name: Property) -> str | None:
    """The value of a property that is text."""
    for key, value in properties:
        if key == name:
            assert isinstance(value, str)
            return value
    return None


def without(properties: Properties, *names: Property) -> Properties:
    """All properties but some."""
    return tuple(pair for pair in properties if pair[0] not in names)


def with_value(properties: Properties, name: Property, value: Value) -> Properties:
    """The same properties with one value set."""
    return (*without(properties, name), (name, value))


def _repeatable(name: int, carrier: int) -> bool:
    return name == Property.USER_PROPERTY or (
        name == Property.SUBSCRIPTION_ID and carrier == Kind.PUBLISH
    )


def _read_value(cursor: Cursor, form: _Form) -> Value:
    match form:
        case _Form.FLAG:
            flag = cursor.byte()
            if flag > 1:
                raise protocol_error(f"{flag} where 0 or 1 is allowed")
            return flag
        case _Form.U16:
            return cursor.u16()
        case _Form.U32:
            return cursor.u32()
        case _Form.VARINT:
            return cursor.varint()
        case _Form.TEXT:
            return cursor.text()
        case _Form.BINARY:
            return cursor.binary()
        case _Form.PAIR:
            return cursor.text(), cursor.text()


def _checked(name: int, value: Value) -> Value:
    if value == 0 and name in _NEVER_ZERO:
        raise MalformedError(_NEVER_ZERO[Property(name)], f"{Property(name).name} is 0")
    if name == Property.RESPONSE_TOPIC:
        assert isinstance(value, str)
        if not value or "+" in value or "#" in value:
            raise protocol_error("the response topic is no topic")
    return value


def _write_value(form: _Form, value: Value) -> bytes:
    match form, value:
        case _Form.FLAG, int():
            return bytes((value,))
        case _Form.U16, int():
            return write_u16(value)
        case _Form.U32, int():
            return value.to_bytes(4, "big")
        case _Form.VARINT, int():
            return write_varint(value)
        case _Form.TEXT, str():
            return write_text(value)
        case _Form.BINARY, bytes():
            return write_binary(value)
        case _Form.PAIR, (str(key), str(text)):
            return write_text(key) + write_text(text)
        case _:
            raise AssertionError(f"{value!r} is no value of the form {form.name}")
