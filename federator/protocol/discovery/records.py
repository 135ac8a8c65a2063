"""The state that discovery reports, and the record it keeps over a restart of the agent.

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
    """The state of discovery for operators."""

    trusted: bool  # the table is complete
    widened: bool  # ``widen_to`` is wanted because it is not
    reason: str  # why it is not trusted, with numbers; empty when trusted
    counted: int  # by the broker; -1 while unknown; so is the next
    counted_shared: int
    sure: int  # subscriptions known, our own included
    doubtful: int  # those that may have vanished
    clients: int
    wanted: int  # filters, from the federation
    registered: int  # those wanted because clients registered them
    kept_local: dict[str, int]  # match-all filters that stay local: number of subscriptions
    full_percent: int  # of the table
    lines: int  # of the log, read
    ambiguous: int  # lines with several readings
    unreadable: int  # lines that could not be read
    broker_drops: int  # times the broker reported that it drops messages for one of our clients
    refused: int  # entries for which there was no room
    lines_lost: int  # dropped by the broker before they reached us
    groups_beyond_quota: int  # memberships of shared groups that each broker serves for itself
    unknown: int  # subscriptions counted that no line reported,
    unknown_clients: int  # and clients; those with unknown subscriptions are among them
    unheard_before_ms: int | None  # they connected before this, by our clock; ``None``: none


class DiscoveryRecord(msgspec.Struct, array_like=True, frozen=True):
    """What discovery keeps over a restart, as written to disk."""

    version: Annotated[int, msgspec.Meta(ge=RECORD_VERSION, le=RECORD_VERSION)]  # of this layout
    trusted: bool
    complete: bool  # all connected clients were known
    uptime_s: int  # the broker's uptime received last; shows whether it has restarted since
    registered: list[tuple[str, int]]  # filters, with the milliseconds each had left
    clients: list[ClientRecord]
    guesses: list[tuple[str, str]] = []  # (client, filter): one of several readings of a line
    lost: bool = False  # lines were lost since the table was last trusted
    packet_id: Annotated[int, msgspec.Meta(ge=0, le=PACKET_IDS)] = 0  # of the last line; 0: none


def doubted(client: ClientRecord) -> ClientRecord:
    """The same client with all its subscriptions doubtful."""
    return replace(client, sure=[], doubtful=client.sure + client.doubtful)


_decoder = msgspec.msgpack.Decoder(DiscoveryRecord)


def encode_record(record: DiscoveryRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def decode_record(content: bytes) -> DiscoveryRecord:
    """Decode a record.

    Raises:
        DecodeError: The content is malformed or of another version.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error
