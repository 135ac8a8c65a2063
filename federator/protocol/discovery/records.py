"""What discovery keeps over a restart of the agent.

Source: docs/protocol.md section 9.
"""

from typing import Annotated

import msgspec

from federator.errors import DecodeError
from federator.protocol.discovery.subscription_table import ClientRecord

RECORD_VERSION = 1


class DiscoveryRecord(msgspec.Struct, array_like=True, frozen=True):
    """Everything, as written to disk.

    Attributes:
        version: Of this layout.
        trusted: The table was trusted.
        complete: All connected clients were known.
        uptime_s: The broker's uptime when last heard; tells whether it has restarted since.
        registered: Filters registered by clients, with the milliseconds each had left.
        clients: The table of subscriptions.
        guesses: Of these, as (client, filter), readings of lines that have several.
    """

    version: Annotated[int, msgspec.Meta(ge=RECORD_VERSION, le=RECORD_VERSION)]
    trusted: bool
    complete: bool
    uptime_s: int
    registered: list[tuple[str, int]]
    clients: list[ClientRecord]
    guesses: list[tuple[str, str]] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DiscoveryRecord)


def encode_record(record: DiscoveryRecord) -> bytes:
    """The bytes of ``record``."""
    return _encoder.encode(record)


def decode_record(content: bytes) -> DiscoveryRecord:
    """The record in ``content``.

    Raises:
        DecodeError: It is malformed or of another version.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error
