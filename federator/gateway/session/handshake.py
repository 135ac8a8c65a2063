"""What a client and its brokers say to each other at the beginning and the end of a connection.

The gateway repeats the client's own CONNECT at each broker, and passes on the first broker's
CONNACK; both are changed only where the gateway itself stands in between.

Source: OASIS MQTT 5.0, 3.1, 3.2 and 3.14.
"""

from dataclasses import replace
from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import V5, Reason, Version

ELSEWHERE: Final = frozenset(
    {
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.SERVER_SHUTTING_DOWN,
        Reason.USE_ANOTHER_SERVER,
        Reason.SERVER_MOVED,
    }
)
"""What a broker says that cannot have the client, when another one may."""


def connect_for_broker(connect: wire.Connect, *, again: bool) -> bytes:
    """The CONNECT that introduces a client to a broker.

    When a broker has accepted the client before (``again``), a session that lasts must not be begun
    anew, for it may be the one that was prepared there.
    """
    if again and connect.clean and connect.session_expiry_s > 0:
        connect = replace(connect, clean=False)
    if connect.version == V5:
        # Aliases are agreed on with one broker; the next one would not know them.
        properties = wire.without(connect.properties, wire.Property.TOPIC_ALIAS_MAXIMUM)
        connect = replace(connect, properties=properties)
    return wire.write_connect(connect)


def connack_for_client(
    connack: wire.Connack, connect: wire.Connect, *, packet_bytes_max: int
) -> bytes:
    """The first broker's CONNACK, as far as it holds here; see ``ClientSession`` for the rest."""
    properties = wire.without(connack.properties, wire.Property.TOPIC_ALIAS_MAXIMUM)
    if connect.version == V5:
        name = wire.Property.MAXIMUM_PACKET_SIZE
        limit = min(packet_bytes_max, wire.number_in(properties, name, packet_bytes_max))
        properties = wire.with_value(properties, name, limit)
        if connect.assigned:
            name = wire.Property.ASSIGNED_CLIENT_ID
            properties = wire.with_value(properties, name, connect.client_id)
    return wire.write_connack(replace(connack, properties=properties), connect.version)


def dismissal(reason: Reason, version: Version, *, accepted: bool) -> bytes:
    """What a client hears whose connection is ended; nothing where 3.1.1 has no words for it."""
    if not accepted:
        return wire.write_connack(wire.Connack(session_present=False, reason=reason), version)
    return wire.write_disconnect(reason, version) if version == V5 else b""
