"""CONNECT, CONNACK and DISCONNECT between a client and its brokers.

The gateway repeats the client's own CONNECT at each broker, and forwards the first broker's
CONNACK; it changes only what cannot hold across the gateway.

Source: OASIS MQTT 5.0, 3.1, 3.2 and 3.14.
"""

from dataclasses import replace
from typing import Final

from federator.gateway import wire
from federator.gateway.session.topic_aliases import ALIASES_MAX
from federator.gateway.wire.kinds import V5, Reason, Version

PACKET_BYTES_MAX: Final = 268_435_460
"""Longer packets cannot be written, so a limit from here on need not be sent."""

ELSEWHERE: Final = frozenset(
    {
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.SERVER_SHUTTING_DOWN,
        Reason.USE_ANOTHER_SERVER,
        Reason.SERVER_MOVED,
    }
)
"""Reasons for which a broker refuses a client that another broker may take."""


def connect_for_broker(connect: wire.Connect, *, again: bool) -> bytes:
    """The CONNECT that introduces a client to a broker.

    ``again``: a broker has accepted the client before, so a persistent session is resumed, not
    begun anew: it may have been prepared there. Before that, a client without an id is sent without
    one: the broker names or refuses it.
    """
    if connect.assigned and not again:
        connect = replace(connect, client_id="")
    if again and connect.clean and connect.session_expiry_s > 0:
        connect = replace(connect, clean=False)
    if connect.version == V5:
        # Aliases are agreed on with one broker; the next broker would not know them.
        properties = wire.without(connect.properties, wire.Property.TOPIC_ALIAS_MAXIMUM)
        connect = replace(connect, properties=properties)
    return wire.write_connect(connect)


def named_by_broker(connect: wire.Connect, connack: wire.Connack) -> wire.Connect:
    """The CONNECT with the id that the first broker assigned; 3.1.1 has no such field."""
    name = wire.text_in(connack.properties, wire.Property.ASSIGNED_CLIENT_ID)
    return replace(connect, client_id=name) if connect.assigned and name else connect


def connack_for_client(
    connack: wire.Connack, connect: wire.Connect, *, packet_bytes_max: int
) -> bytes:
    """The first broker's CONNACK, limited to our own; see ``ClientSession`` for the rest."""
    properties = connack.properties
    if connect.version == V5:
        name = wire.Property.TOPIC_ALIAS_MAXIMUM
        if wire.number_in(properties, name, 0) > ALIASES_MAX:
            properties = wire.with_value(properties, name, ALIASES_MAX)
        name = wire.Property.MAXIMUM_PACKET_SIZE
        limit = wire.number_in(properties, name, PACKET_BYTES_MAX)
        if packet_bytes_max < limit:
            properties = wire.with_value(properties, name, packet_bytes_max)
    return wire.write_connack(replace(connack, properties=properties), connect.version)


def packet_max(connect: wire.Connect) -> int:
    """The longest packet that the client accepts, in bytes."""
    name = wire.Property.MAXIMUM_PACKET_SIZE
    return wire.number_in(connect.properties, name, PACKET_BYTES_MAX)


def dismissal(reason: Reason, version: Version, *, accepted: bool) -> bytes:
    """The packet that ends a client's connection; empty where 3.1.1 has none."""
    if not accepted:
        return wire.write_connack(wire.Connack(session_present=False, reason=reason), version)
    return wire.write_disconnect(reason, version) if version == V5 else b""
