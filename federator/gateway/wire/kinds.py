"""Kinds of packets, reason codes, and the error that carries one.

Source: OASIS MQTT 5.0, 2.1.2 (packet types) and 2.4 (reason codes); MQTT 3.1.1, 3.2.2.3.
"""

from enum import IntEnum
from typing import Final

from federator.errors import DecodeError

Version = int
"""The protocol level in CONNECT: ``V31``, ``V311`` or ``V5``. After CONNECT and CONNACK brokers do
not distinguish the first two, so neither do we."""

V31: Final = 3
V311: Final = 4
V5: Final = 5

Packet = tuple[int, int, int, int]
"""Where a packet lies in its block: its first byte, and the indices of its start, of its body
(after the fixed header) and of its end."""


class Kind(IntEnum):
    """The first byte of a packet without its four flags: ``packet[0] & 0xF0``."""

    CONNECT = 0x10
    CONNACK = 0x20
    PUBLISH = 0x30
    PUBACK = 0x40
    PUBREC = 0x50
    PUBREL = 0x60
    PUBCOMP = 0x70
    SUBSCRIBE = 0x80
    SUBACK = 0x90
    UNSUBSCRIBE = 0xA0
    UNSUBACK = 0xB0
    PINGREQ = 0xC0
    PINGRESP = 0xD0
    DISCONNECT = 0xE0
    AUTH = 0xF0


class Reason(IntEnum):
    """Reason codes of MQTT 5 that the gateway sends or has to understand."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


TOLD: Final = frozenset({0, Kind.PUBLISH, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE})
"""Kinds of packets, including the reserved one, whose sender gets the reason if malformed."""


class MalformedError(DecodeError):
    """A packet that must end its connection.

    Args:
        text: For the log, one line.
        reason: The MQTT 5 reason code; 3.1.1 has none for most.
        version: The version of a client that is refused; ``None`` if unknown.

    Attributes:
        told: Whether the sender gets the reason. Like Mosquitto we send it for a malformed request,
            and just close the connection after an unexpected answer or a second CONNECT.
    """

    def __init__(
        self, text: str, reason: Reason = Reason.MALFORMED_PACKET, version: Version | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.version = version
        self.told = True
