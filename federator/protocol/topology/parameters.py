"""Parameters by which an agent arranges its links. All agents of a federation should share them."""

from dataclasses import dataclass

from federator.protocol.types import BrokerId, Millis

NEIGHBOURS_MIN = 4
RINGS_MIN = NEIGHBOURS_MIN // 2
"""Two shuffled rings give short paths; one would give a ring."""


@dataclass(frozen=True, slots=True)
class TopologyParameters:
    """How one agent arranges its links."""

    neighbours: int = 6  # links wanted; a broker has one more or less at times
    seeds: tuple[str, ...] = ()  # addresses to join by
    kept: frozenset[str] = frozenset()  # addresses of links that the operator configured
    addresses_before: tuple[
        tuple[BrokerId, str], ...
    ] = ()  # brokers and addresses from before our restart
    look_ms: Millis = Millis(1_000)  # between two reviews of our links
    # Between two links given up; a new one is kept for half of it.
    settle_ms: Millis = Millis(10_000)
    # A broker is missed for so long before others close the gap.
    patience_ms: Millis = Millis(5_000)
    give_up_ms: Millis = Millis(10_000)  # an unneeded link may fail to come up for so long
    reach_ms: Millis = Millis(30_000)  # so may a needed one, before others take its place
    retry_ms: Millis = Millis(120_000)  # how long others take its place
    cool_ms: Millis = Millis(600_000)  # a broker given up is not chosen for being nearer
    measure_ms: Millis = Millis(10_000)  # between two measurements of round trips
    exchange_ms: Millis = Millis(180_000)  # between two neighbours exchanged for nearer ones
    say_ms: Millis = Millis(500)  # least time between two changes of what we announce
    forget_ms: Millis = Millis(86_400_000)  # how long a broker that is gone is still dialled
    members_max: int = 4_096  # brokers remembered
    guests_max: int = 16  # links beyond ``neighbours`` for brokers that join through us
    # No broker can dial us, so we announce no place: we choose, and are guests.
    hidden: bool = False

    @property
    def rings(self) -> int:
        """Rings, of two links each; the rest, about a third, goes to brokers nearby."""
        return max(RINGS_MIN, (self.neighbours - self.neighbours // 3) // 2)
