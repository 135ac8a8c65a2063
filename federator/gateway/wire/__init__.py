"""MQTT 3.1.1 and 5 as a proxy needs it: packet boundaries, requests, and validity.

A proxy reads little and forwards the rest unchanged, so the stream is cut into packets without
copying, and only the header of a publication is read. But it has to be as strict as the brokers
behind it: a packet for which a broker would close the connection must end the client that sent it,
not one broker's connection after the other.

Why not the codec that the agents use: it supports version 5 only, gives no reason when it refuses a
packet, and panics, with a trace on stderr, on text that is not UTF-8. The tests compare with it.

The names imported here are the package's interface. All readers raise ``MalformedError`` where a
broker would close the connection.

Source: OASIS MQTT 5.0 and MQTT 3.1.1.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from federator.gateway.wire.connecting import (
    PINGREQ,
    PINGRESP,
    Connack,
    Connect,
    Will,
    check_ping,
    read_connack,
    read_connect,
    read_disconnect,
    refusal,
    write_connack,
    write_connect,
    write_disconnect,
)
from federator.gateway.wire.kinds import V5, V31, V311, Kind, MalformedError, Packet, Reason
from federator.gateway.wire.properties import (
    Properties,
    Property,
    number_in,
    text_in,
    with_value,
    without,
)
from federator.gateway.wire.publishing import (
    DUP,
    QOS,
    QOS_2,
    RETAIN,
    PublishHeader,
    again,
    publish_id,
    read_ack,
    read_payload,
    read_publish,
    topic_of,
    with_topic,
    write_ack,
    write_publish,
)
from federator.gateway.wire.splitter import FROM_CLIENT, FROM_SERVER, Splitter, only
from federator.gateway.wire.subscribing import (
    NO_LOCAL,
    RETAIN_AS_PUBLISHED,
    RETAIN_HANDLING,
    Answer,
    Request,
    Subscribe,
    Unsubscribe,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
