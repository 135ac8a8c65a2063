"""How discovery behaves: told once, to all of its parts."""

from dataclasses import dataclass
from typing import Literal

from federator.protocol.types import Millis


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
        unlogged_subscriptions: Plain ones of bridges that are configured in the broker itself,
            which counts but never logs them.
        filters_max: Subscriptions stored.
        bytes_max: UTF-8 bytes of client ids and filters stored.
        clients_max: Clients stored, with or without subscriptions.
        registrations_max: Filters registered by clients at a time; more are refused.
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
