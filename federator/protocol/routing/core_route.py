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
    parents: tuple[BrokerId, ...] = ()  # next hops towards the core, the nearest first
    ties: int = 0  # of the parents, so many have the least cost; they come first, ascending
    # Parents for the number before whose copy of this one is still on its way: they stay parents
    # for a moment, so that a refresh changes no route.
    unconfirmed: tuple[BrokerId, ...] = ()
    heard: dict[BrokerId, HeardCost] = field(default_factory=dict)  # what each neighbour said last
    newest: CoreAnn | None = None  # the newest announcement heard; adopted or about to be
    # The one with ``number``: what the core signed is passed on together.
    adopted: CoreAnn | None = None
    # Copies of ``number`` sent, by neighbour.
    sent: dict[BrokerId, int] = field(default_factory=dict)
    told: dict[BrokerId, Cost] = field(default_factory=dict)  # the cost that each heard of us last
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

    def teaches(self, neighbour: BrokerId, link_cost: Cost) -> bool:
        """Whether ``neighbour`` can learn from another copy of ``number``, with our cost of now."""
        told, heard = self.told.get(neighbour), self.heard.get(neighbour)
        if told is None or heard is None or heard.number != self.number:
            return True
        if self.cost + link_cost < heard.cost:
            return True  # a cheaper way
        # Or one to fall back on, where what it was told last was none: as a parent, which is closer
        # than it is itself, or as a backup, whose way does not lead back through it.
        return any(self.cost < bar <= told for bar in (heard.cost, heard.cost + link_cost))

    def adopt_newest(self) -> None:
        """Start over with the newest announcement; ``choose`` must follow."""
        assert self.newest is not None
        self.number = self.newest_number
        self.adopted = self.newest
        self.priority = self.newest.priority
        self.forgotten = False
        self.feasible_cost = UNREACHABLE
        self.unconfirmed = ()
        self.sent, self.told = {}, {}

    def choose(self, link_cost: LinkCost, *, redundancy: int, slack_percent: int) -> None:
        """Set cost and parents from the feasible neighbours.

        Parents are the nearest neighbours, and while these are fewer than ``redundancy`` others
        whose way costs at most so much more. Who is a parent already counts half of that: costs
        that follow delays move, and each new parent has to be told all that we want.
        """
        heard, before = self.heard, self.cost
        # The feasibility condition: closer to the core than we ever said we were. No cycles.
        ways = {
            n: self.cost_via(n, link_cost)
            for n, word in heard.items()
            if word.number == self.number and word.cost < self.feasible_cost
        }
        self.cost = min(ways.values(), default=UNREACHABLE)
        self.feasible_cost = min(self.feasible_cost, self.cost)
        known = {*self.parents, *self.unconfirmed}
        self.parents, self.ties = (), 0
        if not self.reachable:
            return
        # What we are about to say counts, too.
        ways = {n: cost for n, cost in ways.items() if heard[n].cost < self.feasible_cost}
        if self.cost == before:
            # Parents for the number before stay until their own copy of this one has come.
            late = (n for n in self.unconfirmed if n in heard and heard[n].number < self.number)
            ways |= {n: self.cost_via(n, link_cost) for n in late}
        beyond = {n: max(0, cost - self.cost) for n, cost in ways.items() if cost < UNREACHABLE}
        weights = {n: more if n in known else 2 * more for n, more in beyond.items()}
        within = (n for n, w in weights.items() if 100 * w <= 2 * slack_percent * self.cost)
        self.parents = tuple(sorted(within, key=lambda n: (weights[n], n))[:redundancy])
        self.ties = sum(not beyond[n] for n in self.parents)


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
