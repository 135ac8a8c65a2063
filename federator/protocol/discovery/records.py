"""What discovery shows, and what it keeps over a restart of the agent.

Source: docs/protocol.md 9.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec.structs import replace

from federator.errors import DecodeError
from federator.protocol.discovery.continuity import PACKET_IDS
from federator.protocol.discovery.subscription_table import ClientRecord

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class DiscoverySnapshot:
    """The state of discovery for operators.

    Attributes:
        trusted: Whether the table is all there is.
        widened: Whether ``#`` is wanted because it is not.
        reason: Why it is not trusted, with numbers; empty when trusted.
        counted, counted_shared: The broker's counts, -1 while unknown.
        sure, doubtful: Subscriptions known, our own included, and those that may have vanished.
        wanted: Filters wanted from the federation; ``registered`` of them by clients' word.
        kept_local: Match-all filters that stay local, with the number of their subscriptions.
        full_percent: How full the table is.
        lines: Log lines read; ``ambiguous`` have several readings, ``unreadable`` none.
        broker_drops: Times the broker said that it drops messages for one of our clients.
        refused: Entries for which there was no room.
        lines_lost: Lines that the broker dropped before they reached us.
        groups_beyond_quota: Memberships of shared groups that each broker serves for itself,
            because clients have too many.
    """

    trusted: bool
    widened: bool
    reason: str
    counted: int
    counted_shared: int
    sure: int
    doubtful: int
    clients: int
    wanted: int
    registered: int
    kept_local: dict[str, int]
    full_percent: int
    lines: int
    ambiguous: int
    unreadable: int
    broker_drops: int
    refused: int
    lines_lost: int
    groups_beyond_quota: int


class DiscoveryRecord(msgspec.Struct, array_like=True, frozen=True):
    """What discovery keeps over a restart, as written to disk.

    Attributes:
        version: The version of this layout.
        trusted: Whether the table was trusted.
        complete: Whether all connected clients were known.
        uptime_s: The broker's uptime when last heard; tells whether it has restarted since.
        registered: Filters registered by clients, with the milliseconds each had left.
        clients: The table of subscriptions.
        guesses: Subscriptions that are one of several readings of a line, as (client, filter).
        lost: Whether lines were lost since the table was last trusted.
        packet_id: The identifier of the last line heard; 0: none was.
    """

    version: Annotated[int, msgspec.Meta(ge=RECORD_VERSION, le=RECORD_VERSION)]
    trusted: bool
    complete: bool
    uptime_s: int
    registered: list[tuple[str, int]]
    clients: list[ClientRecord]
    guesses: list[tuple[str, str]] = []
    lost: bool = False
    packet_id: Annotated[int, msgspec.Meta(ge=0, le=PACKET_IDS)] = 0


def doubted(client: ClientRecord) -> ClientRecord:
    """The same client, each of its subscriptions doubtful."""
    return replace(client, sure=[], doubtful=client.sure + client.doubtful)


_decoder = msgspec.msgpack.Decoder(DiscoveryRecord)


def encode_record(record: DiscoveryRecord) -> bytes:
    """The encoding of ``record``."""
    return msgspec.msgpack.encode(record)


def decode_record(content: bytes) -> DiscoveryRecord:
    """The record in ``content``.

    Raises:
        DecodeError: The content is malformed or of another version.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error
