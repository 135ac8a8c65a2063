"""One broker's path to one core: what neighbours announced, and how parents are chosen.

The core's last announcement is kept longer than the route. A core that lost its disk and had its
clock set back may return after every path to it was erased; brokers that hold frames, waves or
routes of its former epoch would then take the new ones for old. When the core is shown its former
announcement, it renews its epoch.

Source: RFC 8966, 2.4 (feasibility); docs/protocol.md 6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from federator.protocol.messages.control import PATH_MAX, CoreAnn
from federator.protocol.routing.filter_lists import RemoteList
from federator.protocol.types import (
    UNREACHABLE,
    BrokerId,
    CoreRank,
    Cost,
    Epoch,
    Millis,
)

Number = tuple[Epoch, int]
"""(epoch, seq): orders the announcements of one core."""

NEVER: Number = (Epoch(-1), 0)
"""Smaller than every number."""

LinkCost = Callable[[BrokerId], Cost | None]
"""Returns the cost of the live link to a neighbour, ``None`` without one."""


@dataclass(frozen=True, slots=True)
class HeardCost:
    """What one neighbour announced about the core."""

    number: Number
    cost: Cost
    in_mesh: bool
    path: tuple[BrokerId, ...] = ()


@dataclass(slots=True)
class CoreRoute:
    """Our route to one core."""

    core: BrokerId
    priority: int
    number: Number = NEVER  # the newest announcement we adopted
    cost: Cost = UNREACHABLE  # our cost, for ``number``
    feasible_cost: Cost = UNREACHABLE  # the least cost that we announced for ``number``
    parents: tuple[BrokerId, ...] = ()  # next hops towards the core, the nearest first
    ties: int = 0  # so many parents have the least cost; they come first, ascending
    # Parents for the previous number that have not sent this one yet: they stay parents for a
    # moment, so that a refresh changes no route.
    unconfirmed: tuple[BrokerId, ...] = ()
    # The last announcement of each neighbour.
    offers: dict[BrokerId, HeardCost] = field(default_factory=dict)
    newest: CoreAnn | None = None  # the newest announcement received; adopted or about to be
    # The announcement with ``number``: we forward together what the core signed together.
    adopted: CoreAnn | None = None
    # Copies of ``number`` sent, by neighbour.
    sent: dict[BrokerId, int] = field(default_factory=dict)
    # The cost last sent to each neighbour.
    sent_costs: dict[BrokerId, Cost] = field(default_factory=dict)
    announced: RemoteList = field(default_factory=RemoteList)  # the filters that the core announces
    # Neighbours that wait until ``announced`` is right.
    askers: set[BrokerId] = field(default_factory=set)
    in_mesh: bool = False  # whether we belong to a mesh of this core
    # Whether we gave up the core; the route is kept so that old announcements do not revive it.
    forgotten: bool = False
    # The last solicit that we sent, whether it shows the core's announcement, and when.
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
        """The number of the newest announcement received."""
        return NEVER if self.newest is None else (self.newest.epoch, self.newest.seq)

    def cost_via(self, neighbour: BrokerId, link_cost: LinkCost) -> Cost:
        """The cost of the path that ``neighbour`` announced to us."""
        cost = link_cost(neighbour)
        if cost is None:
            return UNREACHABLE
        return Cost(min(UNREACHABLE, self.offers[neighbour].cost + cost))

    def nearest(self, link_cost: LinkCost, *, number: Number) -> BrokerId | None:
        """The neighbour with the cheapest path, among those that announced ``number``."""
        return min(
            (n for n, offer in self.offers.items() if offer.number == number),
            key=lambda n: (self.cost_via(n, link_cost), n),
            default=None,
        )

    @property
    def word(self) -> CoreAnn | None:
        """What the core signed under ``number``: its announcement without filters and path."""
        adopted = self.adopted
        if adopted is None:
            return None
        return msgspec.structs.replace(adopted, added=(), removed=(), path=())

    def path(self, self_id: BrokerId) -> tuple[BrokerId, ...]:
        """The brokers from us to the core by our first parent; empty when unknown."""
        offer = self.offers.get(self.parents[0]) if self.parents else None
        usable = offer is not None and 0 < len(offer.path) < PATH_MAX
        return (self_id, *offer.path) if offer is not None and usable else ()

    def backup(self, self_id: BrokerId, link_cost: LinkCost) -> BrokerId | None:
        """The neighbour with the best path that does not lead through us: the second best next hop.

        It takes over at once if it is feasible; otherwise a solicit makes it so.
        """
        first = self.parents[:1]
        others = (n for n, h in self.offers.items() if n not in first and self_id not in h.path)
        ranked = ((self.cost_via(n, link_cost), n) for n in others)
        cost, best = min(ranked, default=(UNREACHABLE, None))
        return best if cost < UNREACHABLE else None

    def teaches(self, neighbour: BrokerId, link_cost: Cost) -> bool:
        """Whether another copy of ``number``, with our present cost, is news to ``neighbour``."""
        sent, offer = self.sent_costs.get(neighbour), self.offers.get(neighbour)
        if sent is None or offer is None or offer.number != self.number:
            return True
        if self.cost + link_cost < offer.cost:
            return True  # a cheaper path
        # Or a fallback path, if the cost we last sent offered none: as a parent, which is closer to
        # the core than the neighbour, or as a backup, with a path that does not lead through the
        # neighbour.
        return any(self.cost < bar <= sent for bar in (offer.cost, offer.cost + link_cost))

    def adopt_newest(self) -> None:
        """Start over with the newest announcement; ``choose`` must follow."""
        assert self.newest is not None
        self.number = self.newest_number
        self.adopted = self.newest
        self.priority = self.newest.priority
        self.forgotten = False
        self.feasible_cost = UNREACHABLE
        self.unconfirmed = ()
        self.sent, self.sent_costs = {}, {}

    def choose(self, link_cost: LinkCost, *, redundancy: int, slack_percent: int) -> None:
        """Set cost and parents from the feasible neighbours.

        Parents are the nearest neighbours and, while these are fewer than ``redundancy``, others
        whose path costs at most ``slack_percent`` more. For a present parent only half of the
        excess counts: costs that follow delays fluctuate, and each new parent needs our whole list.
        """
        offers, before = self.offers, self.cost
        # The feasibility condition: closer to the core than any cost we announced. No cycles.
        ways = {
            n: self.cost_via(n, link_cost)
            for n, offer in offers.items()
            if offer.number == self.number and offer.cost < self.feasible_cost
        }
        self.cost = min(ways.values(), default=UNREACHABLE)
        self.feasible_cost = min(self.feasible_cost, self.cost)
        current = {*self.parents, *self.unconfirmed}
        self.parents, self.ties = (), 0
        if not self.reachable:
            return
        # The cost that we are about to announce counts, too.
        ways = {n: cost for n, cost in ways.items() if offers[n].cost < self.feasible_cost}
        if self.cost == before:
            # Parents for the previous number stay until they send this one.
            late = (n for n in self.unconfirmed if n in offers and offers[n].number < self.number)
            ways |= {n: self.cost_via(n, link_cost) for n in late}
        beyond = {n: max(0, cost - self.cost) for n, cost in ways.items() if cost < UNREACHABLE}
        weights = {n: more if n in current else 2 * more for n, more in beyond.items()}
        within = (n for n, w in weights.items() if 100 * w <= 2 * slack_percent * self.cost)
        self.parents = tuple(sorted(within, key=lambda n: (weights[n], n))[:redundancy])
        self.ties = sum(not beyond[n] for n in self.parents)
