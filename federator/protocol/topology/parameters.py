"""How one agent arranges its links. All agents of a federation should use the same."""

from dataclasses import dataclass

from federator.protocol.types import BrokerId, Millis

NEIGHBOURS_MIN = 4
RINGS_MIN = NEIGHBOURS_MIN // 2
"""Two shuffled rings give short ways; one would give a ring."""


@dataclass(frozen=True, slots=True)
class TopologyParameters:
    """How one agent arranges its links.

    Attributes:
        neighbours: Links wanted; a broker has one more or less at times.
        seeds: Addresses to join by.
        kept: Addresses of links that the operator wants whatever we think.
        known: Brokers of the federation when we ran before, and where they were.
        look_ms: Between two reviews of our links.
        settle_ms: Between two links given up, and for how long a link is left alone first.
        patience_ms: How long a broker may be missed before others close the gap.
        give_up_ms: How long a link that nobody needs may fail to come up.
        reach_ms: How long a link that is needed may fail to come up before others take its place.
        retry_ms: How long others take its place.
        cool_ms: How long a broker that was given up is not taken again for being nearer.
        measure_ms: Between two measurements of how far other brokers are.
        exchange_ms: Between two neighbours exchanged for nearer ones.
        say_ms: Least time between two changes of what we announce.
        forget_ms: How long a broker that is gone is still dialled.
        members_max: Brokers remembered.
        guests_max: Links beyond ``neighbours`` for brokers that join by us.
    """

    neighbours: int = 6
    seeds: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    known: tuple[tuple[BrokerId, str], ...] = ()
    look_ms: Millis = Millis(1_000)
    settle_ms: Millis = Millis(10_000)
    patience_ms: Millis = Millis(5_000)
    give_up_ms: Millis = Millis(10_000)
    reach_ms: Millis = Millis(30_000)
    retry_ms: Millis = Millis(120_000)
    cool_ms: Millis = Millis(600_000)
    measure_ms: Millis = Millis(10_000)
    exchange_ms: Millis = Millis(180_000)
    say_ms: Millis = Millis(500)
    forget_ms: Millis = Millis(86_400_000)
    members_max: int = 4_096
    guests_max: int = 16

    @property
    def rings(self) -> int:
        """Rings, of two links each; the rest, about a third, goes to brokers nearby."""
        return max(RINGS_MIN, (self.neighbours - self.neighbours // 3) // 2)
