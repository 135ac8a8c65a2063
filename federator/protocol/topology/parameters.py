"""How one agent arranges its links. All agents of a federation should use the same."""

from dataclasses import dataclass

from federator.protocol.types import BrokerId, Millis

NEIGHBOURS_MIN = 4
RINGS_MIN = NEIGHBOURS_MIN // 2
"""Two shuffled rings give short ways; one would give a ring."""


@dataclass(frozen=True, slots=True)
class TopologyParameters:
    """How one agent arranges its links."""

    neighbours: int = 6  # links wanted; a broker has one more or less at times
    seeds: tuple[str, ...] = ()  # addresses to join by
    kept: frozenset[str] = frozenset()  # addresses of links that the operator wants in any case
    known: tuple[tuple[BrokerId, str], ...] = ()  # brokers when we ran before, and where
    look_ms: Millis = Millis(1_000)  # between two reviews of our links
    settle_ms: Millis = Millis(10_000)  # between two links given up; a new one is left alone first
    patience_ms: Millis = Millis(5_000)  # a broker is missed before others close the gap
    give_up_ms: Millis = Millis(10_000)  # a link that nobody needs may fail to come up
    reach_ms: Millis = Millis(30_000)  # so may one that is needed, before others take its place
    retry_ms: Millis = Millis(120_000)  # how long others take its place
    cool_ms: Millis = Millis(600_000)  # who was given up is not taken again for being nearer
    measure_ms: Millis = Millis(10_000)  # between two measurements of how far other brokers are
    exchange_ms: Millis = Millis(180_000)  # between two neighbours exchanged for nearer ones
    say_ms: Millis = Millis(500)  # least time between two changes of what we announce
    forget_ms: Millis = Millis(86_400_000)  # how long a broker that is gone is still dialled
    members_max: int = 4_096  # brokers remembered
    guests_max: int = 16  # links beyond ``neighbours`` for brokers that join by us
    hidden: bool = False  # nobody can dial us, so we announce no place: we choose, and are guests

    @property
    def rings(self) -> int:
        """Rings, of two links each; the rest, about a third, goes to brokers nearby."""
        return max(RINGS_MIN, (self.neighbours - self.neighbours // 3) // 2)
