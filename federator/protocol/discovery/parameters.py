"""How discovery behaves: told once, to all of its parts."""

from dataclasses import dataclass
from typing import Literal

from federator.protocol.types import Millis


@dataclass(frozen=True, slots=True)
class DiscoveryParameters:
    """How discovery behaves."""

    log_topics: bool = True  # learn from the broker's log; without it nothing is ever widened
    filters: tuple[str, ...] = ()  # always wanted, by configuration
    match_all: Literal["local", "federate"] = "local"  # where ``#`` and ``+/#`` of clients go
    groups_span_brokers: bool = False  # count members apart, instead of wanting their filters
    groups_max: int = 256  # whose members are counted apart; others are wanted like any filter
    client_groups_max: int = 32  # memberships of one client that are counted apart
    widen: bool = True  # want ``#`` while the table cannot be trusted; otherwise only say so
    widen_to: tuple[str, ...] = ("#",)  # what is wanted then
    unlogged_subscriptions: int = 0  # plain ones of the broker's own bridges: it only counts them
    filters_max: int = 1_000_000  # subscriptions stored
    bytes_max: int = 128 * 1024 * 1024  # UTF-8 bytes of client ids and filters stored
    clients_max: int = 200_000  # stored, with or without subscriptions
    registrations_max: int = 10_000  # filters registered by clients at a time; more are refused
    registration_ttl_ms: Millis = Millis(3_600_000)  # how long a registration lasts
    hopeful_ms: Millis = Millis(600_000)  # so long after a gap, the old count means: no change
    tick_ms: Millis = Millis(500)  # how long the broker's numbers of one moment take to arrive
    probe_interval_ms: Millis = Millis(15_000)  # should exceed the broker's ``sys_interval``
    notice_gap_ms: Millis = Millis(10_000)  # least time between two notices of one name
