"""Which broker is preferred as a core, from what agents tell of their meshes; see ``placement``.

A mesh's core is the first, in the order of priorities, of the brokers whose clients want its
filter. Publications travel to it and from it to every member, so it costs messages times the costs
of the links between. One order serves all meshes. It changes only where that saves more than a
margin, and not again for a while; it returns to that of the configurations when that would have
been as good for two minutes.

A rate is a median (``estimate``), of zero until the flow is told. A lasting one counts after 14 s;
a burst of two seconds, which ten seconds' rates show in six samples at most, never. Who wants a
filter counts when it was told as often.

Source: docs/steering.md, "Cores"; docs/placement.md 5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.steering.core_order import Ints, Matrix, cost_of, costs_of, improved
from federator.planner.steering.decision import (
    FRESH_MS,
    GIVE_BACK_MS,
    RETRY_MS,
    WORSE,
)
from federator.planner.steering.estimate import RECENT, Estimate
from federator.planner.steering.moves import Manner
from federator.planner.steering.network import network_of
from federator.protocol.messages.steering import MESHES_MAX, Load, MeshFlow
from federator.protocol.types import BrokerId, Millis

RATE_MAX: Final = 1e9
"""Publications per second; more is nonsense."""

SAVED_MIN: Final = 1.0
"""Messages times costs per second; for less no core moves."""

KEPT_MS: Final = Millis(60_000)
"""While an agent is silent no core moves; after so long it is counted out."""

ASKED_CHARS_MAX: Final = 32_768
"""In the filters asked about: filters may be 65,535 bytes long each."""

ASKED_WEIGHT: Final = 2.0
"""A filter that is asked about already is preferred to others of up to so many times its rate."""

Order = Mapping[BrokerId, int]
"""Priorities of brokers, all below 0; the others have their own."""


@dataclass(frozen=True, slots=True)
class CoreMove:
    """A mesh that gets another core."""

    filter: str
    rate: float  # publications per second
    was: BrokerId
    core: BrokerId


@dataclass(frozen=True, slots=True)
class Placing:
    """What is to be from now on.

    Attributes:
        priorities: Of brokers as cores.
        asked: The filters to ask agents about.
        moves: Meshes whose core changes, heaviest first.
        changed: Whether ``priorities`` are others than before.
        why: In words, why something moves or nothing does.
        cost: Messages times costs of links per second,
        cost_promised: and what it will be.
        meshes: How many are known well enough.
    """

    priorities: Order = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    moves: tuple[CoreMove, ...] = ()
    changed: bool = False
    why: str = ""
    cost: float = 0.0
    cost_promised: float = 0.0
    meshes: int = 0


@dataclass(slots=True)
class _Wish:
    """Whether a broker's clients want a filter: as told ``RECENT`` times in a row."""

    wanted: bool
    against: int = 0

    def add(self, told: bool) -> None:
        self.against = 0 if told == self.wanted else self.against + 1
        if self.against >= RECENT:
            self.wanted, self.against = told, 0


@dataclass(slots=True)
class _Told:
    load: Load
    came_ms: Millis
    newest: dict[str, float] = field(default_factory=dict)  # publications per second, by filter
    rates: dict[str, Estimate] = field(default_factory=dict)  # of those asked about
    wishes: dict[str, _Wish] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """B brokers that tell of meshes, G meshes that somebody publishes to and somebody wants."""

    ids: tuple[BrokerId, ...]
    filters: tuple[str, ...]
    rates: tuple[float, ...]  # publications per second
    costs: Matrix  # shape (G, B)


class CorePlacer:
    """Hears loads, and decides when asked. One call at a time, from any thread."""

    def __init__(self, manner: Manner | None = None) -> None:
        self.manner = manner or Manner()
        self.priorities: Order = {}
        self._told: dict[BrokerId, _Told] = {}
        self._asked: dict[str, int] = {}  # in which plan first
        self._moved_ms: Millis | None = None
        self._before: tuple[Order, Millis | None] = {}, None
        self._tried: tuple[Millis, float] | None = None
        self._good_since_ms: Millis | None = None  # since when all could be as configured

    def adopt(self, priorities: Order, *, now_ms: Millis) -> None:
        """Go on with the priorities of whoever steered before."""
        self.priorities = dict(priorities)
        if priorities:
            self._moved_ms = now_ms

    def ask(self, filters: Iterable[str], *, number: int) -> None:
        """Plans ask about exactly these from that ``number`` on."""
        self._asked = {each: self._asked.get(each, number) for each in filters}
        for told in self._told.values():
            told.wishes = {f: wish for f, wish in told.wishes.items() if f in self._asked}
            told.rates = {f: rate for f, rate in told.rates.items() if f in self._asked}

    def take_back(self) -> None:
        """Forget what was decided last: nobody obeys."""
        self.priorities, self._moved_ms = self._before

    def on_load(self, load: Load, *, now_ms: Millis, is_ours: bool = True) -> None:
        """Take what an agent told, of which it is believed. ``is_ours``: it answers our plan."""
        if load.meshes is None or not is_ours:
            return
        told = self._told.get(load.broker)
        if told is None:
            told = self._told[load.broker] = _Told(load, now_ms)
        elif (told.load.epoch, told.load.at_ms) == (load.epoch, load.at_ms):
            return  # told already
        told.load, told.came_ms = load, now_ms
        told.newest = _by_filter(load.meshes.flows)
        for each in self._asked:
            _take_rate(told, each)
        wanted = frozenset(load.meshes.wanted)
        for each, since in self._asked.items():
            if load.number >= since:
                told.wishes.setdefault(each, _Wish(each in wanted)).add(each in wanted)

    def decide(self, *, now_ms: Millis, watch: Watch = UNWATCHED) -> Placing:
        """What shall be from now on; the search ends when ``watch`` says so."""
        self._before = self.priorities, self._moved_ms
        self._told = {b: t for b, t in self._told.items() if now_ms - t.came_ms <= KEPT_MS}
        silent = [b for b, told in self._told.items() if now_ms - told.came_ms > FRESH_MS]
        asked = self._worth_asking()
        followers = {b for b, told in self._told.items() if told.load.placed}
        if not followers:
            why = 'no agent has mesh.core = "placed"'
            return Placing(self.priorities, asked, why=why)
        if silent:
            return Placing(self.priorities, asked, why=f"agent {min(silent)} is silent")
        problem = self._problem()
        if problem is None:
            return Placing(self.priorities, asked, why="the links told do not connect all")
        ours = self._cost(problem, self.priorities)
        found, why = self._better(problem, ours, followers, now_ms, watch)
        promised = self._cost(problem, found)
        moves = () if found == self.priorities else self._moves(problem, found)
        changed = found != self.priorities
        if changed:
            self.priorities, self._moved_ms, self._good_since_ms = found, now_ms, None
        return Placing(found, asked, moves, changed, why, ours, promised, len(problem.filters))

    # Within

    def _worth_asking(self) -> tuple[str, ...]:
        """The filters of the heaviest flows, ascending; those asked about now stay if they can."""
        rates: dict[str, float] = {}
        for told in self._told.values():
            for each, newest in told.newest.items():
                rates[each] = rates.get(each, 0.0) + newest
            for each, rate in told.rates.items():
                more = rate.value - told.newest.get(each, 0.0)
                rates[each] = rates.get(each, 0.0) + max(0.0, more)
        ranked = sorted(
            rates, key=lambda f: (-rates[f] * (ASKED_WEIGHT if f in self._asked else 1.0), f)
        )
        asked: list[str] = []
        room = ASKED_CHARS_MAX
        for each in ranked:
            if len(asked) < MESHES_MAX and len(each) <= room:
                asked.append(each)
                room -= len(each)
        return tuple(sorted(asked))

    def _problem(self) -> _Problem | None:
        """``None``: it cannot be said how far it is from one broker to another."""
        ids = sorted(self._told)
        network = network_of(told.load for told in self._told.values())
        if len(ids) > 1 and not set(ids) <= network.node.keys():
            return None
        far = np.zeros((len(ids), len(ids)))
        if len(ids) > 1:
            costs = np.maximum(network.cost, 1e-9)  # 0 would be no link
            size = len(network.brokers)
            links = csr_matrix((costs, (network.tail, network.head)), shape=(size, size))
            nodes = [network.node[each] for each in ids]
            far = dijkstra(links, indices=nodes)[:, nodes]
        if not np.isfinite(far).all():
            return None
        filters, rates, rows = [], [], []
        for each in sorted(self._asked):
            wishes = [self._told[b].wishes.get(each) for b in ids]
            if None in wishes:
                continue  # not all have answered
            member = np.array([wish is not None and wish.wanted for wish in wishes])
            published = np.array([_published(self._told[b], each) for b in ids])
            if member.any() and published.any():
                filters.append(each)
                rates.append(float(published.sum()))
                rows.append(costs_of(far, member, published))
        matrix = np.stack(rows) if rows else np.zeros((0, len(ids)))
        return _Problem(tuple(ids), tuple(filters), tuple(rates), matrix)

    def _order(self, problem: _Problem, placed: Order) -> Ints:
        """Brokers by falling preference under these priorities."""

        def rank(at: int) -> tuple[int, BrokerId]:
            id = problem.ids[at]
            meshes = self._told[id].load.meshes
            own = meshes.priority if meshes is not None else 0
            follows = self._told[id].load.placed
            return (placed.get(id, own) if follows else own), id

        return np.array(sorted(range(len(problem.ids)), key=rank), dtype=np.intp)

    def _cost(self, problem: _Problem, placed: Order) -> float:
        return cost_of(problem.costs, self._order(problem, placed))

    def _better(
        self,
        problem: _Problem,
        ours: float,
        followers: set[BrokerId],
        now_ms: Millis,
        watch: Watch,
    ) -> tuple[Order, str]:
        """The priorities to be from now on, and why."""
        stay = self.priorities
        returns = self._returns(problem, ours, now_ms)
        if self._moved_ms is not None and now_ms - self._moved_ms < self.manner.hold_ms:
            return stay, "cores moved of late, and stay for a while"
        found, why = self._searched(problem, ours, followers, now_ms, watch)
        if found is stay and returns:
            return {}, "the priorities of the configurations would have been as good for long"
        return found, why

    def _searched(
        self,
        problem: _Problem,
        ours: float,
        followers: set[BrokerId],
        now_ms: Millis,
        watch: Watch,
    ) -> tuple[Order, str]:
        """An order that saves enough; otherwise that of now."""
        stay = self.priorities
        wanted = max(self.manner.margin * ours, SAVED_MIN)
        bound = float(problem.costs.min(axis=1).sum()) if problem.costs.size else 0.0
        if ours - bound < wanted:
            return stay, "no other core would save enough"
        if self._tried is not None:
            tried_ms, cost = self._tried
            if now_ms - tried_ms < RETRY_MS and abs(ours - cost) <= WORSE * cost:
                return stay, "no order of brokers was better a moment ago"
        ordered = self._order(problem, stay).tolist()
        movable = {at for at in ordered if problem.ids[at] in followers}
        places = [at for at in ordered if at in movable]
        others = [at for at in ordered if at not in movable]
        start = np.array(places + others, dtype=np.intp)
        best = improved(problem.costs, start, count=len(places), watch=watch)
        found = {
            problem.ids[at]: rank - len(places)
            for rank, at in enumerate(best[: len(places)].tolist())
        }
        promised = self._cost(problem, found)
        if ours - promised < wanted:
            self._tried = now_ms, ours
            return stay, "no order of brokers saves enough"
        self._tried = None
        saved = (ours - promised) / ours
        return found, f"messages times costs of links fall by {saved:.0%}"

    def _returns(self, problem: _Problem, ours: float, now_ms: Millis) -> bool:
        """Whether all could have been as configured for long."""
        if not self.priorities:
            return False
        if self._cost(problem, {}) > (1 + self.manner.margin / 2) * ours:
            self._good_since_ms = None
            return False
        if self._good_since_ms is None:
            self._good_since_ms = now_ms
        return now_ms - self._good_since_ms >= GIVE_BACK_MS

    def _moves(self, problem: _Problem, found: Order) -> tuple[CoreMove, ...]:
        was, is_ = self._cores(problem, self.priorities), self._cores(problem, found)
        ends = zip(problem.filters, problem.rates, was, is_, strict=True)
        moves = [CoreMove(each, rate, a, b) for each, rate, a, b in ends if a != b]
        return tuple(sorted(moves, key=lambda move: (-move.rate, move.filter)))

    def _cores(self, problem: _Problem, placed: Order) -> list[BrokerId]:
        order = self._order(problem, placed)
        first = np.isfinite(problem.costs[:, order]).argmax(axis=1)
        return [problem.ids[at] for at in order[first].tolist()]


def _by_filter(flows: Iterable[MeshFlow]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for flow in flows:
        for each in flow.filters:
            rates[each] = rates.get(each, 0.0) + min(flow.publications, RATE_MAX)
    return rates


def _take_rate(told: _Told, filter: str) -> None:
    """A sample of what is published that ``filter`` matches: zero when it is told no more."""
    newest = told.newest.get(filter, 0.0)
    rate = told.rates.get(filter)
    if rate is None:
        if not newest:
            return
        rate = told.rates[filter] = Estimate()
        for _ in range(RECENT):
            rate.add(0.0)
    rate.add(newest)
    if not newest and not rate.value:
        del told.rates[filter]


def _published(told: _Told, filter: str) -> float:
    rate = told.rates.get(filter)
    return 0.0 if rate is None else rate.value
