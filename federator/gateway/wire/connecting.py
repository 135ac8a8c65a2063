"""How a connection begins, is kept and ends: CONNECT, CONNACK, the pings and DISCONNECT.

AUTH is not read: the gateway refuses it, for it cannot be repeated at another broker.

Source: OASIS MQTT 5.0 and 3.1.1, 3.1, 3.2 and 3.12 to 3.14.
"""

from dataclasses import dataclass
from typing import Final

from federator.gateway.wire.fields import Cursor, write_binary, write_packet, write_text, write_u16
from federator.gateway.wire.kinds import (
    V5,
    V31,
    V311,
    Kind,
    MalformedError,
    Packet,
    Reason,
    Version,
)
from federator.gateway.wire.properties import (
    WILL,
    Properties,
    Property,
    number_in,
    read_properties,
    write_properties,
)
from federator.gateway.wire.publishing import checked_topic

SESSION_FOREVER: Final = 0xFFFF_FFFF
"""A session expiry of never: what 3.1.1 means by a session that is not clean."""

PINGREQ: Final = b"\xc0\0"
PINGRESP: Final = b"\xd0\0"

_REASONS: Final = frozenset(Reason)
_FROM_CLIENT: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)
"""The reasons for which a client may disconnect (3.14.2.1)."""

_NAMES: Final = {V31: b"MQIsdp", V311: b"MQTT", V5: b"MQTT"}
"""The protocol name in each version."""

_CLEAN, _WILL, _WILL_RETAIN, _PASSWORD, _USERNAME = 0x02, 0x04, 0x20, 0x40, 0x80

_RETURN_CODES: Final = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.CLIENT_ID_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.SERVER_SHUTTING_DOWN: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.BAD_AUTHENTICATION_METHOD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
_BY_CODE: Final = {code: reason for reason, code in reversed(_RETURN_CODES.items())}


@dataclass(frozen=True, slots=True)
class Will:
    """The publication that a client leaves behind."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """A CONNECT.

    Attributes:
        clean: Clean Session of 3.1.1, Clean Start of 5.
        keep_alive: Seconds; 0 is none.
        assigned: The client left its id to the server. ``client_id`` is then chosen by the gateway,
            until the first broker assigns one.
    """

    version: Version
    client_id: str
    clean: bool
    keep_alive: int
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = ()
    assigned: bool = False

    @property
    def session_expiry_s(self) -> int:
        """How long, in seconds, the session outlives the connection."""
        if self.version != V5:
            return 0 if self.clean else SESSION_FOREVER
        return number_in(self.properties, Property.SESSION_EXPIRY, 0)


@dataclass(frozen=True, slots=True)
class Connack:
    """A CONNACK; ``reason`` is a code of version 5 in both versions."""

    session_present: bool
    reason: int
    properties: Properties = ()


def read_connect(block: bytes, packet: Packet) -> Connect:
    """Read a CONNECT.

    Raises:
        MalformedError: The packet is no valid CONNECT; with its version if that could be read.
    """
    if packet[0] != Kind.CONNECT:
        raise MalformedError("the first packet is no CONNECT", Reason.PROTOCOL_ERROR)
    cursor = Cursor(block, packet)
    name, level = cursor.binary(), cursor.byte()
    if name not in _NAMES.values():
        raise MalformedError("a protocol that is not MQTT")
    if name != _NAMES.get(level):
        text = f"version {level} of the protocol, 3 to 5 are spoken"
        version = V311 if level < V311 else V5
        raise MalformedError(text, Reason.UNSUPPORTED_VERSION, version=version)
    try:
        return _read_connect(cursor, level)
    except MalformedError as error:
        error.version = level
        raise


def write_connect(connect: Connect) -> bytes:
    v5 = connect.version == V5
    flags = _CLEAN if connect.clean else 0
    parts = [write_text(connect.client_id)]
    if (will := connect.will) is not None:
        flags |= _WILL | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
        if v5:
            parts.append(write_properties(will.properties))
        parts += write_text(will.topic), write_binary(will.payload)
    if connect.username is not None:
        flags |= _USERNAME
        parts.append(write_text(connect.username))
    if connect.password is not None:
        flags |= _PASSWORD
        parts.append(write_binary(connect.password))
    head = write_binary(_NAMES[connect.version]) + bytes((connect.version, flags))
    head += write_u16(connect.keep_alive)
    properties = write_properties(connect.properties) if v5 else b""
    return write_packet(Kind.CONNECT, head, properties, *parts)


def read_connack(block: bytes, packet: Packet, version: Version) -> Connack:
    cursor = Cursor(block, packet)
    flags, reason = cursor.byte(), cursor.byte()
    if flags > 1:
        raise MalformedError("CONNACK with reserved flags")
    properties: Properties = ()
    if version == V5:
        properties = read_properties(cursor, Kind.CONNACK)
    else:
        reason = _BY_CODE.get(reason, Reason.UNSPECIFIED)
    cursor.finish()
    if flags and reason:
        raise MalformedError("a session with a refusal", Reason.PROTOCOL_ERROR)
    return Connack(bool(flags), reason, properties)


def write_connack(connack: Connack, version: Version) -> bytes:
    """Write a CONNACK; refusals unknown to 3.1.1 become "server unavailable"."""
    if version == V5:
        head = bytes((connack.session_present, connack.reason))
        return write_packet(Kind.CONNACK, head, write_properties(connack.properties))
    code = _RETURN_CODES.get(Reason(connack.reason), _RETURN_CODES[Reason.SERVER_UNAVAILABLE])
    return bytes((Kind.CONNACK, 2, connack.session_present, code))


def refusal(error: MalformedError) -> bytes:
    """The packet to send to a client after refusing its CONNECT, before closing.

    Empty if the CONNECT is malformed, as 3.1.1 requires and Mosquitto does in all versions.
    """
    version = error.version
    if version is not None and error.reason in _RETURN_CODES:
        return write_connack(Connack(session_present=False, reason=error.reason), version)
    return b""


def read_disconnect(
    block: bytes, packet: Packet, version: Version, *, from_client: bool = True
) -> tuple[int, Properties]:
    """Read a DISCONNECT: its reason and properties. After a malformed one the will is sent."""
    cursor = Cursor(block, packet)
    if not cursor.left:
        return Reason.SUCCESS, ()
    if version != V5:
        raise MalformedError("DISCONNECT of 3.1.1 with a body")
    reason = cursor.byte()
    properties = read_properties(cursor, Kind.DISCONNECT) if cursor.left else ()
    cursor.finish()
    if reason not in (_FROM_CLIENT if from_client else _REASONS):
        raise MalformedError(f"DISCONNECT with the reason {reason:#x}", Reason.PROTOCOL_ERROR)
    return reason, properties


def write_disconnect(reason: int, version: Version, properties: Properties = ()) -> bytes:
    """Write a DISCONNECT; the bare packet for 3.1.1."""
    if version != V5 or not (reason or properties):
        return bytes((Kind.DISCONNECT, 0))
    if not properties:
        return bytes((Kind.DISCONNECT, 1, reason))
    return write_packet(Kind.DISCONNECT, bytes((reason,)), write_properties(properties))


def check_ping(packet: Packet) -> None:
    """Refuse a PINGREQ or PINGRESP with a body."""
    if packet[2] != packet[3]:
        raise MalformedError("a ping with a body")


def _read_connect(cursor: Cursor, version: Version) -> Connect:
    flags, keep_alive = cursor.byte(), cursor.u16()
    will_qos = flags >> 3 & 3
    if flags & 1:
        raise MalformedError("CONNECT with its reserved flag")
    if will_qos == 3 or (not flags & _WILL and flags & 0x38):
        raise MalformedError("CONNECT with flags of a will that cannot be")
    if version != V5 and flags & _PASSWORD and not flags & _USERNAME:
        raise MalformedError("a password without a user name")
    properties = read_properties(cursor, Kind.CONNECT) if version == V5 else ()
    client_id = cursor.text()
    will = None
    if flags & _WILL:
        of_will = read_properties(cursor, WILL) if version == V5 else ()
        topic, payload = checked_topic(cursor.binary()), cursor.binary()
        will = Will(topic, payload, will_qos, bool(flags & _WILL_RETAIN), of_will)
    connect = Connect(
        version,
        client_id,
        bool(flags & _CLEAN),
        keep_alive,
        will,
        cursor.text() if flags & _USERNAME else None,
        cursor.binary() if flags & _PASSWORD else None,
        properties,
    )
    cursor.finish()
    if not client_id and (version == V31 or (version == V311 and not connect.clean)):
        raise MalformedError("no client id where one must be", Reason.CLIENT_ID_NOT_VALID)
    return connect
