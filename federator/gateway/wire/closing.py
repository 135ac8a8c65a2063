"""DISCONNECT, AUTH and the pings.

Source: OASIS MQTT 5.0, sections 3.12 to 3.15.
"""

from dataclasses import dataclass
from typing import Final

from federator.gateway.wire.fields import Cursor, write_packet
from federator.gateway.wire.kinds import (
    V5,
    Kind,
    Packet,
    Reason,
    Version,
    malformed,
    protocol_error,
)
from federator.gateway.wire.properties import (
    Properties,
    Property,
    read_properties,
    text_in,
    write_properties,
)

PINGREQ: Final = b"\xc0\0"
PINGRESP: Final = b"\xd0\0"

_REASONS: Final = frozenset(Reason)
_AUTH_REASONS: Final = frozenset(
    {Reason.SUCCESS, Reason.CONTINUE_AUTHENTICATION, Reason.RE_AUTHENTICATE}
)
_FROM_CLIENT: Final = frozenset(
    {
        Reason.SUCCESS,
        Reason.DISCONNECT_WITH_WILL,
        Reason.UNSPECIFIED,
        Reason.MALFORMED_PACKET,
        Reason.PROTOCOL_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC,
        Reason.TOPIC_NAME_INVALID,
        Reason.RECEIVE_MAXIMUM_EXCEEDED,
        Reason.TOPIC_ALIAS_INVALID,
        Reason.PACKET_TOO_LARGE,
        Reason.MESSAGE_RATE_TOO_HIGH,
        Reason.QUOTA_EXCEEDED,
        Reason.ADMINISTRATIVE_ACTION,
        Reason.PAYLOAD_FORMAT_INVALID,
    }
)


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The end of a connection; AUTH looks the same."""

    reason: int
    properties: Properties = ()


def read_disconnect(
    block: bytes, packet: Packet, version: Version, *, from_client: bool = True
) -> Disconnect:
    """Read a DISCONNECT.

    Raises:
        MalformedError: It is none; the connection ends anyway, but the will is then sent.
    """
    cursor = Cursor(block, packet)
    if not cursor.left:
        return Disconnect(Reason.SUCCESS)
    if version != V5:
        raise malformed("DISCONNECT of 3.1.1 with a body")
    reason = cursor.byte()
    properties = read_properties(cursor, Kind.DISCONNECT) if cursor.left else ()
    cursor.finish()
    if reason not in (_FROM_CLIENT if from_client else _REASONS):
        raise protocol_error(f"DISCONNECT with the reason {reason:#x}")
    return Disconnect(reason, properties)


def write_disconnect(reason: int, version: Version, properties: Properties = ()) -> bytes:
    """What is said before closing; a broker of 3.1.1 says nothing, its client the bare packet."""
    if version != V5 or not (reason or properties):
        return bytes((Kind.DISCONNECT, 0))
    if not properties:
        return bytes((Kind.DISCONNECT, 1, reason))
    return write_packet(Kind.DISCONNECT, bytes((reason,)), write_properties(properties))


def read_auth(block: bytes, packet: Packet) -> Disconnect:
    """Read an AUTH of version 5.

    Raises:
        MalformedError: It is none.
    """
    cursor = Cursor(block, packet)
    reason = cursor.byte() if cursor.left else int(Reason.SUCCESS)
    properties = read_properties(cursor, Kind.AUTH) if cursor.left else ()
    cursor.finish()
    if reason not in _AUTH_REASONS:
        raise protocol_error(f"AUTH with the reason {reason:#x}")
    if text_in(properties, Property.AUTHENTICATION_METHOD) is None:
        raise protocol_error("AUTH without a method")
    return Disconnect(reason, properties)


def check_ping(packet: Packet) -> None:
    """Check a PINGREQ or PINGRESP.

    Raises:
        MalformedError: It has a body.
    """
    if packet[2] != packet[3]:
        raise malformed("a ping with a body")
