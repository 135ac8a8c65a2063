"""What discovery is told, what it shows, and what it keeps over a restart of the agent.

Source: docs/protocol.md 9.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from federator.errors import DecodeError
from federator.protocol.discovery.continuity import PACKET_IDS
from federator.protocol.discovery.subscription_table import ClientRecord
from federator.protocol.types import Millis

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class DiscoveryParameters:
    """How discovery behaves.

    Attributes:
        log_topics: Learn from the broker's log. Without it only the other sources count, and
            nothing is ever widened.
        filters: Always wanted, by configuration.
        match_all: Whether ``#`` and ``+/#`` of clients stay local or travel.
        groups_span_brokers: Count members of shared groups apart, instead of wanting their filters.
        groups_max: Groups whose members are counted apart; others are wanted like any filter.
        client_groups_max: Memberships of one client that are counted apart.
        widen: Want ``#`` while the table cannot be trusted; otherwise only say so.
        unlogged_subscriptions: Held by bridges that are configured in the broker itself, which
            counts but never logs them.
        filters_max: Subscriptions stored.
        bytes_max: UTF-8 bytes of client ids and filters stored.
        clients_max: Clients stored.
        registrations_max: Filters registered by clients.
        registration_ttl_ms: How long a registration lasts.
        hopeful_ms: After a gap, how long a count of everything we knew is taken to mean that
            nothing has changed.
        tick_ms: How long the broker's numbers of one moment take to arrive, at most.
        probe_interval_ms: Between two requests for counts. Should exceed the broker's
            ``sys_interval``.
        notice_gap_ms: Least time between two notices of one name.
    """

    log_topics: bool = True
    filters: tuple[str, ...] = ()
    match_all: Literal["local", "federate"] = "local"
    groups_span_brokers: bool = False
    groups_max: int = 256
    client_groups_max: int = 32
    widen: bool = True
    unlogged_subscriptions: int = 0
    filters_max: int = 1_000_000
    bytes_max: int = 128 * 1024 * 1024
    clients_max: int = 200_000
    registrations_max: int = 10_000
    registration_ttl_ms: Millis = Millis(3_600_000)
    hopeful_ms: Millis = Millis(600_000)
    tick_ms: Millis = Millis(500)
    probe_interval_ms: Millis = Millis(15_000)
    notice_gap_ms: Millis = Millis(10_000)


@dataclass(frozen=True, slots=True)
class DiscoverySnapshot:
    """The state of discovery for operators.

    Attributes:
        trusted: Whether the table is all there is.
        widened: Whether ``#`` is wanted because it is not.
        reason: Why it is not trusted, with numbers; empty when trusted.
        counted, counted_shared: The broker's counts, -1 while unknown.
        sure, doubtful: Subscriptions known, our own included, and those that may have vanished.
        clients: Clients known.
        wanted: Filters wanted from the federation.
        registered: Filters wanted because clients registered them.
        kept_local: Match-all filters that stay local, with the number of their subscriptions.
        full_percent: How full the table is.
        lines: Log lines read.
        ambiguous: Lines with several readings.
        unreadable: Lines that could not be read.
        broker_drops: Times the broker said that it drops messages for one of our clients.
        refused: Entries for which there was no room.
        groups_beyond_quota: Memberships of shared groups that each broker serves for itself,
            because clients have too many.
        lines_lost: Lines that the broker dropped before they reached us.
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


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DiscoveryRecord)


def encode_record(record: DiscoveryRecord) -> bytes:
    """The encoding of ``record``."""
    return _encoder.encode(record)


def decode_record(content: bytes) -> DiscoveryRecord:
    """The record in ``content``.

    Raises:
        DecodeError: The content is malformed or of another version.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error
