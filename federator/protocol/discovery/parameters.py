"""Parameters of discovery."""

from dataclasses import dataclass
from typing import Literal

from federator.protocol.types import Millis


@dataclass(frozen=True, slots=True)
class DiscoveryParameters:
    """Parameters shared by all parts of discovery."""

    log_topics: bool = True  # learn from the broker's log; without it we never widen
    filters: tuple[str, ...] = ()  # always wanted, by configuration
    match_all: Literal["local", "federate"] = "local"  # where ``#`` and ``+/#`` of clients go
    groups_span_brokers: bool = False  # count members of groups instead of wanting their filters
    groups_max: int = 256  # groups with counted members; others are wanted like any filter
    client_groups_max: int = 32  # memberships of one client counted as such
    widen: bool = True  # want ``widen_to`` while the table is not trusted; else only report it
    widen_to: tuple[str, ...] = ("#",)  # the filters wanted then
    unlogged_subscriptions: int = 0  # plain, of the broker's own bridges: counted, not logged
    filters_max: int = 1_000_000  # subscriptions stored
    bytes_max: int = 128 * 1024 * 1024  # UTF-8 bytes of client ids and filters stored
    clients_max: int = 200_000  # stored, with or without subscriptions
    registrations_max: int = 10_000  # filters registered by clients at a time; more are refused
    registration_ttl_ms: Millis = Millis(3_600_000)  # how long a registration lasts
    hopeful_ms: Millis = Millis(600_000)  # after a gap, for so long the old count means: no change
    tick_ms: Millis = Millis(500)  # how long the broker's numbers of one moment take to arrive
    probe_interval_ms: Millis = Millis(15_000)  # should exceed the broker's ``sys_interval``
    notice_gap_ms: Millis = Millis(10_000)  # least time between two notices of one name
