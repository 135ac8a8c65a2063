"""Which broker is preferred as a core, from agents' reports of their meshes; see ``placement``.

A mesh's core is the first, in the order of priorities, of the brokers with clients that want its
filter. Publications travel to it and from it to every member, so it costs messages times the costs
of the links between. One order serves all meshes. It changes only if that saves more than a margin,
and not again for a while; it returns to the configured one when that would have been as good for
two minutes.

A rate is a median (``estimate``), of zeros before the flow is reported. A lasting one counts after
14 s; a burst of two seconds, which is in six samples of ten seconds' rates at most, never does. A
broker's interest in a filter counts after as many reports.

Source: docs/steering.md, "Cores"; docs/placement.md 5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.steering.core_order import (
    Ints,
    Matrix,
    cores_of,
    cost_of,
    costs_of,
    improved,
)
from federator.planner.steering.decision import FRESH_MS, GIVE_BACK_MS, RETRY_MS, WORSE
from federator.planner.steering.estimate import RECENT, Estimate
from federator.planner.steering.moves import Manner
from federator.planner.steering.network import network_of
from federator.protocol.messages.steering import MESHES_MAX, Load, MeshFlow
from federator.protocol.types import BrokerId, Millis

RATE_MAX: Final = 1e9
"""Publications per second; more is invalid."""

SAVED_MIN: Final = 1.0
"""Messages times costs per second; no core moves to save less."""

KEPT_MS: Final = Millis(60_000)
"""While an agent is silent no core moves; after so long it is left out."""

ASKED_CHARS_MAX: Final = 32_768
"""Total length of the filters asked about: one filter may have 65,535 bytes."""

ASKED_WEIGHT: Final = 2.0
"""A filter already asked about is preferred to others of up to so many times its rate."""

Order = Mapping[BrokerId, int]
"""Priorities of brokers, all below 0; the others keep their own."""


@dataclass(frozen=True, slots=True)
class CoreMove:
    """A mesh that gets another core."""

    filter: str
    rate: float  # publications per second
    was: BrokerId
    core: BrokerId


@dataclass(frozen=True, slots=True)
class Placing:
    """What holds from now on.

    Attributes:
        priorities: Of brokers as cores.
        asked: The filters to ask agents about.
        moves: Meshes with a new core, heaviest first.
        changed: Whether ``priorities`` changed.
        why: A text: why something moves or nothing does.
        cost: Messages times costs of links per second.
        cost_promised: The same after the moves.
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
class _Interest:
    """Whether a broker's clients want a filter; changes after ``RECENT`` reports in a row."""

    wanted: bool
    against: int = 0

    def add(self, wanted: bool) -> None:
        self.against = 0 if wanted == self.wanted else self.against + 1
        if self.against >= RECENT:
            self.wanted, self.against = wanted, 0


@dataclass(slots=True)
class _Report:
    load: Load
    came_ms: Millis
    newest: dict[str, float] = field(default_factory=dict)  # publications per second, by filter
    rates: dict[str, Estimate] = field(default_factory=dict)  # of filters asked about
    wishes: dict[str, _Interest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """B brokers that report meshes, G meshes with a publisher and a member."""

    ids: tuple[BrokerId, ...]
    own: tuple[int, ...]  # configured priorities
    follows: tuple[bool, ...]  # whether a plan's priorities are in force
    filters: tuple[str, ...]
    rates: tuple[float, ...]  # publications per second
    costs: Matrix  # shape (G, B)

    def order(self, placed: Order) -> Ints:
        """Brokers in descending preference under these priorities."""

        def rank(at: int) -> tuple[int, BrokerId]:
            id, own = self.ids[at], self.own[at]
            return (placed.get(id, own) if self.follows[at] else own), id

        return np.array(sorted(range(len(self.ids)), key=rank), dtype=np.intp)

    def cost(self, placed: Order) -> float:
        return cost_of(self.costs, self.order(placed))

    def cores(self, placed: Order) -> list[BrokerId]:
        """The core of each mesh."""
        return [self.ids[at] for at in cores_of(self.costs, self.order(placed)).tolist()]


class CorePlacer:
    """Receives loads, and decides when asked. One call at a time, from any thread."""

    def __init__(self, manner: Manner | None = None) -> None:
        self.manner = manner or Manner()
        self.priorities: Order = {}
        self._reports: dict[BrokerId, _Report] = {}
        self._queried: dict[str, int] = {}  # the first plan with each
        self._moved_ms: Millis | None = None
        self._before: tuple[Order, Millis | None] = {}, None
        self._tried: tuple[Millis, float] | None = None
        self._good_since_ms: Millis | None = None  # since when the configured order has been good

    def adopt(self, priorities: Order, *, now_ms: Millis) -> None:
        """Take over the priorities of the steerer before us."""
        self.priorities = dict(priorities)
        if priorities:
            self._moved_ms = now_ms

    def ask(self, filters: Iterable[str], *, number: int) -> None:
        """Note that plans from ``number`` on ask about exactly these filters."""
        self._queried = {filter_: self._queried.get(filter_, number) for filter_ in filters}
        for state in self._reports.values():
            state.wishes = {f: wish for f, wish in state.wishes.items() if f in self._queried}
            state.rates = {f: rate for f, rate in state.rates.items() if f in self._queried}

    def take_back(self) -> None:
        """Forget the last decision: it is not published."""
        self.priorities, self._moved_ms = self._before

    def on_load(self, load: Load, *, now_ms: Millis, is_ours: bool = True) -> None:
        """Take a believed load. ``is_ours``: it answers our plan."""
        if load.meshes is None or not is_ours:
            return
        state = self._reports.get(load.broker)
        if state is None:
            state = self._reports[load.broker] = _Report(load, now_ms)
        elif (state.load.epoch, state.load.at_ms) == (load.epoch, load.at_ms):
            return  # a copy
        state.load, state.came_ms = load, now_ms
        state.newest = _by_filter(load.meshes.flows)
        for filter_ in self._queried:
            _take_rate(state, filter_)
        filters = frozenset(load.meshes.wanted)
        for filter_, since in self._queried.items():
            if load.number >= since:
                state.wishes.setdefault(filter_, _Interest(filter_ in filters)).add(
                    filter_ in filters
                )

    def decide(self, *, now_ms: Millis, watch: Watch = UNWATCHED) -> Placing:
        """Decide what holds from now on; the search ends when ``watch`` says so."""
        self._before = self.priorities, self._moved_ms
        self._reports = {b: t for b, t in self._reports.items() if now_ms - t.came_ms <= KEPT_MS}
        silent = [b for b, state in self._reports.items() if now_ms - state.came_ms > FRESH_MS]
        asked = self._worth_asking()
        if not any(state.load.placed for state in self._reports.values()):
            why = 'no agent has mesh.core = "placed"'
            return Placing(self.priorities, asked, why=why)
        if silent:
            return Placing(self.priorities, asked, why=f"agent {min(silent)} is silent")
        problem = self._problem()
        if problem is None:
            return Placing(self.priorities, asked, why="the links told do not connect all")
        ours = problem.cost(self.priorities)
        order, why = self._better(problem, ours, now_ms, watch)
        promised = problem.cost(order)
        moves = () if order == self.priorities else self._moves(problem, order)
        changed = order != self.priorities
        if changed:
            self.priorities, self._moved_ms, self._good_since_ms = order, now_ms, None
        return Placing(order, asked, moves, changed, why, ours, promised, len(problem.filters))

    # Internal

    def _worth_asking(self) -> tuple[str, ...]:
        """The filters of the heaviest flows, ascending; those asked about now stay if they can."""
        rates: dict[str, float] = {}
        for state in self._reports.values():
            for filter_, newest in state.newest.items():
                rates[filter_] = rates.get(filter_, 0.0) + newest
            for filter_, rate in state.rates.items():
                more = rate.value - state.newest.get(filter_, 0.0)
                rates[filter_] = rates.get(filter_, 0.0) + max(0.0, more)
        ranked = sorted(
            rates, key=lambda f: (-rates[f] * (ASKED_WEIGHT if f in self._queried else 1.0), f)
        )
        asked: list[str] = []
        room = ASKED_CHARS_MAX
        for filter_ in ranked:
            if len(asked) < MESHES_MAX and len(filter_) <= room:
                asked.append(filter_)
                room -= len(filter_)
        return tuple(sorted(asked))

    def _problem(self) -> _Problem | None:
        """The problem; ``None`` if some distance between brokers is unknown."""
        ids = sorted(self._reports)
        network = network_of(state.load for state in self._reports.values())
        far = network.distances(ids)
        if not np.isfinite(far).all():
            return None
        filters, rates, rows = [], [], []
        for filter_ in sorted(self._queried):
            wishes = [self._reports[b].wishes.get(filter_) for b in ids]
            if None in wishes:
                continue  # not all have answered
            member = np.array([wish is not None and wish.wanted for wish in wishes])
            published = np.array([_published(self._reports[b], filter_) for b in ids])
            if member.any() and published.any():
                filters.append(filter_)
                rates.append(float(published.sum()))
                rows.append(costs_of(far, member, published))
        costs = np.array(rows).reshape(len(rows), len(ids))
        loads = [self._reports[id].load for id in ids]
        own = tuple(load.meshes.priority if load.meshes is not None else 0 for load in loads)
        follows = tuple(load.placed for load in loads)
        return _Problem(tuple(ids), own, follows, tuple(filters), tuple(rates), costs)

    def _better(
        self, problem: _Problem, ours: float, now_ms: Millis, watch: Watch
    ) -> tuple[Order, str]:
        """The priorities from now on, and the reason."""
        stay = self.priorities
        returns = self._returns(problem, ours, now_ms)
        if self._moved_ms is not None and now_ms - self._moved_ms < self.manner.hold_ms:
            return stay, "cores moved of late, and stay for a while"
        order, why = self._searched(problem, ours, now_ms, watch)
        if order is stay and returns:
            return {}, "the priorities of the configurations would have been as good for long"
        return order, why

    def _searched(
        self, problem: _Problem, ours: float, now_ms: Millis, watch: Watch
    ) -> tuple[Order, str]:
        """An order that saves enough; otherwise the present one."""
        stay = self.priorities
        least = max(self.manner.margin * ours, SAVED_MIN)
        bound = float(problem.costs.min(axis=1).sum())
        if ours - bound < least:
            return stay, "no other core would save enough"
        if self._tried is not None:
            tried_ms, cost = self._tried
            if now_ms - tried_ms < RETRY_MS and abs(ours - cost) <= WORSE * cost:
                return stay, "no order of brokers was better a moment ago"
        follows, ordered = np.array(problem.follows), problem.order(stay)
        start = np.concatenate([ordered[follows[ordered]], ordered[~follows[ordered]]])
        count = int(follows.sum())
        best = improved(problem.costs, start, count=count, watch=watch)[:count]
        order = {problem.ids[at]: rank - count for rank, at in enumerate(best.tolist())}
        promised = problem.cost(order)
        if ours - promised < least:
            self._tried = now_ms, ours
            return stay, "no order of brokers saves enough"
        self._tried = None
        saved = (ours - promised) / ours
        return order, f"messages times costs of links fall by {saved:.0%}"

    def _returns(self, problem: _Problem, ours: float, now_ms: Millis) -> bool:
        """Whether the configured order has long been good enough."""
        if not self.priorities:
            return False
        if problem.cost({}) > (1 + self.manner.margin / 2) * ours:
            self._good_since_ms = None
            return False
        if self._good_since_ms is None:
            self._good_since_ms = now_ms
        return now_ms - self._good_since_ms >= GIVE_BACK_MS

    def _moves(self, problem: _Problem, found: Order) -> tuple[CoreMove, ...]:
        was, is_ = problem.cores(self.priorities), problem.cores(found)
        ends = zip(problem.filters, problem.rates, was, is_, strict=True)
        moves = [CoreMove(filter_, rate, a, b) for filter_, rate, a, b in ends if a != b]
        return tuple(sorted(moves, key=lambda move: (-move.rate, move.filter)))


def _by_filter(flows: Iterable[MeshFlow]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for flow in flows:
        for filter_ in flow.filters:
            rates[filter_] = rates.get(filter_, 0.0) + min(flow.publications, RATE_MAX)
    return rates


def _take_rate(report: _Report, filter: str) -> None:
    """Add a sample of the rate on ``filter``: zero if it is no longer reported."""
    newest = report.newest.get(filter, 0.0)
    rate = report.rates.get(filter)
    if rate is None:
        if not newest:
            return
        rate = report.rates[filter] = Estimate()
        for _ in range(RECENT):
            rate.add(0.0)
    rate.add(newest)
    if not newest and not rate.value:
        del report.rates[filter]


def _published(report: _Report, filter: str) -> float:
    rate = report.rates.get(filter)
    return 0.0 if rate is None else rate.value
