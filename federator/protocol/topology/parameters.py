"""Parameters by which an agent with ``topology.mode = "auto"`` chooses its links.

``config.settings`` makes them from ``[topology]``; those without a setting keep the defaults here.
All agents of a federation should have the same: each expects the others to choose as it does.

Source: docs/topology.md.
"""

from dataclasses import dataclass

from federator.protocol.types import BrokerId, Millis

NEIGHBOURS_MIN = 4
RINGS_MIN = NEIGHBOURS_MIN // 2
"""One ring alone has long paths; two, shuffled independently, have short ones."""


@dataclass(frozen=True, slots=True)
class TopologyParameters:
    """How one agent chooses its links.

    An agent *needs* links to its neighbours on the rings; all other links are optional.
    """

    # How many links, and to which brokers.
    neighbours: int = 6  # links wanted; at times there is one more or less
    seeds: tuple[str, ...] = ()  # addresses of brokers to join by
    kept: frozenset[str] = frozenset()  # addresses of links that the operator configured
    # Brokers that we knew before our restart, with their addresses.
    addresses_before: tuple[tuple[BrokerId, str], ...] = ()
    guests_max: int = 16  # links beyond ``neighbours`` for brokers that join through us
    members_max: int = 4_096  # brokers remembered
    # No broker can dial us: we announce no place, and are a guest of the brokers that we dial.
    hidden: bool = False

    # How fast links change.
    look_ms: Millis = Millis(1_000)  # between two reviews of our links
    say_ms: Millis = Millis(500)  # how long changes of our links wait to be announced together
    # Least time between two surplus links given up; a new link is kept for half of it.
    settle_ms: Millis = Millis(10_000)
    exchange_ms: Millis = Millis(180_000)  # between two neighbours exchanged for nearer ones
    # How long after a link was given up its broker is not chosen for being nearer.
    cool_ms: Millis = Millis(600_000)
    measure_ms: Millis = Millis(10_000)  # between two measurements of round trips

    # Links and brokers that fail.
    give_up_ms: Millis = Millis(10_000)  # how long an optional link may take to come up
    reach_ms: Millis = Millis(30_000)  # the same for a needed link; then its broker is passed over
    retry_ms: Millis = Millis(120_000)  # how long that broker is passed over on the rings
    patience_ms: Millis = Millis(5_000)  # how long a missing broker keeps its place on the rings
    forget_ms: Millis = Millis(86_400_000)  # how long a broker that is gone is still dialled

    @property
    def rings(self) -> int:
        """The number of rings. Each takes two links; about a third is left for brokers nearby."""
        return max(RINGS_MIN, (self.neighbours - self.neighbours // 3) // 2)
