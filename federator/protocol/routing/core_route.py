"""What one broker knows of its way to one core, and how it chooses parents from that.

A little outlives the route: the core's last word. A core that lost its disk and had its clock set
back may return when every way to it was erased, and whoever holds frames, waves or routes of its
former epoch would take the new ones for old. Shown its word the core renews its epoch.

Source: RFC 8966, 2.4 (feasibility); docs/protocol.md 6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.control import PATH_MAX, CoreAnn
from federator.protocol.routing.filter_lists import RemoteList
from federator.protocol.types import (
    EPOCH_LEAP_MAX,
    UNREACHABLE,
    BrokerId,
    CoreRank,
    Cost,
    Epoch,
    Millis,
)

Number = tuple[Epoch, int]
"""(epoch, seq): what orders the announcements of one core."""

NEVER: Number = (Epoch(-1), 0)
"""Before every number."""

LinkCost = Callable[[BrokerId], Cost | None]
"""The cost of the live link to a neighbour, ``None`` without one."""


@dataclass(frozen=True, slots=True)
class HeardCost:
    """What one neighbour said of the core."""

    number: Number
    cost: Cost
    in_mesh: bool
    path: tuple[BrokerId, ...] = ()


@dataclass(slots=True)
class CoreRoute:
    """Our way to one core."""

    core: BrokerId
    priority: int
    number: Number = NEVER  # the newest announcement we adopted
    cost: Cost = UNREACHABLE  # our cost, for ``number``
    feasible_cost: Cost = UNREACHABLE  # the least cost that we announced for ``number``
    parents: tuple[BrokerId, ...] = ()  # next hops towards the core, ascending
    # Parents for the number before whose copy of this one is still on its way: they stay parents
    # for a moment, so that a refresh changes no route.
    unconfirmed: tuple[BrokerId, ...] = ()
    heard: dict[BrokerId, HeardCost] = field(default_factory=dict)  # what each neighbour said last
    newest: CoreAnn | None = None  # the newest announcement heard; adopted or about to be
    # The one with ``number``: what the core signed is passed on together.
    adopted: CoreAnn | None = None
    # Copies of ``number`` sent, by neighbour.
    sent: dict[BrokerId, int] = field(default_factory=dict)
    announced: RemoteList = field(default_factory=RemoteList)  # the filters that the core announces
    # Neighbours that wait until ``announced`` is right.
    askers: set[BrokerId] = field(default_factory=set)
    in_mesh: bool = False  # whether we belong to a mesh of this core
    # Whether the core was given up; the route is kept so that old announcements do not bring it
    # back.
    forgotten: bool = False
    # The last solicit that we sent on, whether it shows the core's word, and when.
    solicit_passed_on: tuple[tuple[bool, Number], Millis] | None = None

    @property
    def reachable(self) -> bool:
        """Whether there is a path to the core."""
        return self.cost < UNREACHABLE

    @property
    def rank(self) -> CoreRank:
        """The rank of the core; the smaller one wins an election."""
        return (self.priority, self.core)

    @property
    def newest_number(self) -> Number:
        """The number of the newest announcement heard."""
        return NEVER if self.newest is None else (self.newest.epoch, self.newest.seq)

    def cost_via(self, neighbour: BrokerId, link_cost: LinkCost) -> Cost:
        """The cost of the path that ``neighbour`` announced to us."""
        cost = link_cost(neighbour)
        if cost is None:
            return UNREACHABLE
        return Cost(min(UNREACHABLE, self.heard[neighbour].cost + cost))

    def nearest(self, link_cost: LinkCost, *, number: Number) -> BrokerId | None:
        """The neighbour with the cheapest path, among those that announced ``number``."""
        return min(
            (n for n, heard in self.heard.items() if heard.number == number),
            key=lambda n: (self.cost_via(n, link_cost), n),
            default=None,
        )

    @property
    def word(self) -> CoreAnn | None:
        """What the core signed under ``number``: its announcement without filters and path."""
        said = self.adopted
        if said is None:
            return None
        return msgspec.structs.replace(said, added=(), removed=(), path=())

    def path(self, self_id: BrokerId) -> tuple[BrokerId, ...]:
        """The brokers from us to the core by our first parent; empty when they are not known."""
        heard = self.heard.get(self.parents[0]) if self.parents else None
        known = heard is not None and 0 < len(heard.path) < PATH_MAX
        return (self_id, *heard.path) if heard is not None and known else ()

    def backup(self, self_id: BrokerId, link_cost: LinkCost) -> BrokerId | None:
        """The neighbour with the best way that is not our own: the second best next hop.

        It takes over at once when it is feasible; otherwise a solicit makes it so.
        """
        first = self.parents[:1]
        others = (n for n, h in self.heard.items() if n not in first and self_id not in h.path)
        ranked = ((self.cost_via(n, link_cost), n) for n in others)
        cost, best = min(ranked, default=(UNREACHABLE, None))
        return best if cost < UNREACHABLE else None

    def adopt_newest(self) -> None:
        """Start over with the newest announcement; ``choose`` must follow."""
        assert self.newest is not None
        self.number = self.newest_number
        self.adopted = self.newest
        self.priority = self.newest.priority
        self.forgotten = False
        self.feasible_cost = UNREACHABLE
        self.unconfirmed = ()
        self.sent = {}

    def choose(self, link_cost: LinkCost, *, redundancy: int) -> None:
        """Set cost and parents from the feasible neighbours."""
        feasible = {
            n: self.cost_via(n, link_cost)
            for n, heard in self.heard.items()
            # The feasibility condition: closer to the core than we ever said we were. No cycles.
            if heard.number == self.number and heard.cost < self.feasible_cost
        }
        before = self.cost
        self.cost = min(feasible.values(), default=UNREACHABLE)
        best = {n for n, cost in feasible.items() if cost == self.cost}
        if self.cost == before:
            # Parents for the number before stay until their own copy of this one has come.
            heard = self.heard
            best |= {n for n in self.unconfirmed if n in heard and heard[n].number < self.number}
        self.parents = tuple(sorted(best)[:redundancy]) if self.reachable else ()
        self.feasible_cost = min(self.feasible_cost, self.cost)


class FormerWords:
    """The last announcement of each erased core, without what it announced.

    Of ``cores_max`` at most; the one erased longest ago is forgotten first.
    """

    def __init__(self, *, cores_max: int) -> None:
        self._words: Recent[BrokerId, CoreAnn] = Recent(cores_max)

    def __len__(self) -> int:
        return len(self._words)

    def keep(self, word: CoreAnn) -> None:
        """Remember that the core of ``word`` is erased, and said that last."""
        self._words.put(word.core, word)

    def take(self, core: BrokerId, epoch: Epoch) -> CoreAnn | None:
        """What ``core`` said last, now that somebody announces it under ``epoch``.

        A number further ahead than anybody's word moves an epoch is dropped: the core would not
        believe it, and could never return.
        """
        word = self._words.pop(core, None)
        believable = word is not None and word.epoch - epoch <= EPOCH_LEAP_MAX
        return word if believable else None
