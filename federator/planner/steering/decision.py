"""What to move, and why: trees for the heavy flows of links that are too full, and no others.

Like a bus company that reroutes a line only when a street has been jammed for a while, leaves it on
its new route for some minutes, and returns it when the old street has long been free.

Nothing moves unless it relieves a link over the threshold or saves more than a margin. Rates are
medians (``estimate``), and a jam must last. A flow that moved stays for a while unless a link to be
relieved is over 95 % beyond doubt and other flows cannot relieve it. A failed attempt is not
repeated at once.

A link of unknown capacity is never relieved, for it may not be too full. Where other capacities are
configured, its capacity counts as infinite; where they are learnt, as the least of those, or as its
present load if that is more.

Source: docs/steering.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Final

import numpy as np

from federator.planner.flow.instance import FloatArray
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.steering.backlogs import Backlogs
from federator.planner.steering.estimate import Estimate
from federator.planner.steering.fitting import FILL_MAX, ROOMY, Problem, Wish, fit, within
from federator.planner.steering.jams import FlowKey, Jams, Present
from federator.planner.steering.moves import (
    Decision,
    Manner,
    Move,
    better,
    broken,
    fullest,
    named,
)
from federator.planner.steering.network import (
    Ends,
    Network,
    capacities_of,
    narrowest_learnt,
    network_of,
)
from federator.protocol.messages.steering import (
    BROKERS_MAX,
    FLOWS_MAX,
    FlowLoad,
    Load,
    Tree,
    tree_of,
)
from federator.protocol.types import BrokerId, Millis

FRESH_MS: Final = Millis(10_000)
"""The load of an agent that has reported nothing for so long is ignored."""

FLOW_KEPT_MS: Final = Millis(30_000)
"""A flow that is not reported for so long has ended."""

FLOWS_OF_ONE_MAX: Final = 2 * FLOWS_MAX
"""Flows of one origin: those it reports now, and those it reported lately."""

RATE_MAX: Final = 1e15
"""bit/s; more is invalid."""

SETTLE_MS: Final = Millis(10_000)
"""After a move, measurements still include the time before it."""

RETRY_MS: Final = Millis(30_000)
"""After an attempt that did not help, unless a link gets fuller by ``WORSE``."""

WORSE: Final = 0.05
WAITS_MAX: Final = 3
"""How often in a row changing rates may put off a decision: a client that always changes its rate
gains no more."""

GIVE_BACK_MS: Final = Millis(120_000)
"""How long the ordinary way must be good, with a margin, before a flow returns to it."""

GIVE_BACK_BELOW: Final = 0.1
"""That margin: links must stay so far below the threshold."""

EXPLAINED: Final = 0.95
"""Of the flows on overfull links, the heaviest that make up this share of their load may move."""


_Answer = tuple[list[FlowKey], tuple[tuple[int, ...], ...], dict[Ends, float]]
"""The flows that may move, their new ways, and how full links are then."""


@dataclass(slots=True)
class _Flow:
    rate: Estimate = field(default_factory=Estimate)
    newest: float = 0.0
    destinations: tuple[BrokerId, ...] = ()
    reported_ms: Millis = Millis(0)
    planned: bool = False
    tree: Tree | None = None
    moved_ms: Millis | None = None
    good_since_ms: Millis | None = None  # since when its ordinary way has been good


class Reach(Enum):
    """Which flows may move to relieve a link; each takes in those before."""

    RESTED = auto()  # not moved lately
    HELD = auto()  # moved lately
    ELSEWHERE = auto()  # on links that are not jammed, where they leave no room


class Decider:
    """Receives loads, and decides when asked. One call at a time, from any thread."""

    def __init__(self, manner: Manner | None = None) -> None:
        self.manner = manner or Manner()
        self._loads: dict[BrokerId, tuple[Load, Millis]] = {}
        self._flows: dict[FlowKey, _Flow] = {}
        self._background: dict[Ends, Estimate] = {}
        self._backlogs = Backlogs()
        self._draining = 0.0  # bit/s that leave queues but are not published now
        self._narrowest = inf  # the least learnt capacity
        self._jams = Jams(self.manner.threshold)
        self._tried: tuple[Millis, dict[Ends, float]] | None = None
        self._moved_ms: Millis | None = None
        self._network: Network | None = None
        self._now: Present | None = None  # at the last decision
        self._waits = 0  # decisions put off in a row
        self._new: set[BrokerId] = set()  # their newest load is not yet in the background
        self._decided_ms: Millis | None = None
        self._of_origin: Counter[BrokerId] = Counter()  # how many flows each has

    # -- input -----------------------------------------------------------------------------------

    def on_load(self, load: Load, *, now_ms: Millis) -> None:
        """Take a believed load from the agent of a broker."""
        before = self._loads.get(load.broker)
        if before is not None and before[0].epoch == load.epoch and before[0].at_ms == load.at_ms:
            return  # a copy
        self._loads[load.broker] = load, now_ms
        self._backlogs.take(load)
        self._new.add(load.broker)
        keys: set[FlowKey] = set()
        for flow_load in load.flows:
            key = load.broker, flow_load.filters
            if key not in keys and self._has_room(key):
                keys.add(key)
                self._take(self._flows.setdefault(key, _Flow()), flow_load, load.broker, now_ms)

    def _has_room(self, key: FlowKey) -> bool:
        """Whether to accept a flow; new ones count towards the limit of their origin."""
        if key in self._flows:
            return True
        self._of_origin[key[0]] += 1
        return self._of_origin[key[0]] <= FLOWS_OF_ONE_MAX

    @staticmethod
    def _take(flow: _Flow, load: FlowLoad, origin: BrokerId, now_ms: Millis) -> None:
        flow.newest = min(load.rate, RATE_MAX)
        flow.rate.add(flow.newest, min(load.error, RATE_MAX))
        flow.destinations = tuple(sorted({*load.destinations} - {origin}))
        flow.planned, flow.reported_ms = load.planned, now_ms

    def adopt(self, trees: Iterable[Tree], *, now_ms: Millis) -> None:
        """Take over the trees of the steerer before us."""
        for tree in trees:
            key = tree.origin, tree.filters
            if self._has_room(key):
                flow = self._flows.setdefault(key, _Flow(reported_ms=now_ms))
                flow.tree, flow.moved_ms, flow.planned = tree, now_ms, True

    def follow(self, trees: Iterable[Tree], *, now_ms: Millis) -> None:
        """Assume that flows have the ``trees`` of another steerer, and no others."""
        for flow in self._flows.values():
            flow.tree = None
        self.adopt(trees, now_ms=now_ms)
        for flow in self._flows.values():
            flow.moved_ms = None

    def take_back(self, decision: Decision) -> None:
        """Forget the moves of a decision that is not published."""
        for move in decision.moves:
            flow = self._flows[move.origin, move.filters]
            flow.tree, flow.moved_ms, flow.planned = move.was, None, move.was is not None
        self._moved_ms = None

    @property
    def trees(self) -> tuple[Tree, ...]:
        """The trees in force."""
        return tuple(flow.tree for _, flow in sorted(self._flows.items()) if flow.tree is not None)

    def names(self) -> dict[BrokerId, str]:
        """Operators' names of brokers, where there are any."""
        return {broker: load.name for broker, (load, _) in self._loads.items() if load.name}

    @property
    def flows(self) -> int:
        """How many flows are known."""
        return len(self._flows)

    # -- deciding --------------------------------------------------------------------------------

    def decide(self, *, now_ms: Millis, watch: Watch = UNWATCHED) -> Decision:
        """Decide what holds from now on; solvers end when ``watch`` says so."""
        away = self._decided_ms is not None and now_ms - self._decided_ms > FRESH_MS
        self._decided_ms = now_ms
        if away:  # agents only seem silent because we did not receive
            return Decision(self.trees, why="we were away and listen first")
        self._forget(now_ms)
        loads = [load for load, _ in self._loads.values()]
        self._draining = self._backlogs.draining(loads)
        self._narrowest = narrowest_learnt(loads)
        network = self._network = self._network_of(loads)
        dropped = self._drop_broken(network)
        now = self._now = self._look(network, capacities_of(loads, network), now_ms)
        settling = self._moved_ms is not None and now_ms - self._moved_ms < SETTLE_MS
        before, cost = now.shares(now.load), self._cost(now)
        jam = self._jams.lasting(now)
        returned: list[Move] = []
        if settling:
            why = "the last moves have to show first"
        elif (changing := now.doubtful(jam)) and self._waits < WAITS_MAX:
            self._waits += 1
            why = f"{named(changing, before)}: rates there are changing"
        elif jam:
            self._waits = 0
            return self._relieve(now, jam, dropped, now_ms=now_ms, watch=watch)
        else:
            returned = self._give_back(now, before, now_ms)
            lasts = [link for link, share in before.items() if share > self.manner.threshold]
            why = "no link has been over the threshold for long"
            why = f"{why}: {named(lasts, before)} is watched" if lasts else why
            if returned:
                why = "the ordinary ways are good again"
        moves = (*dropped, *returned)
        if returned:
            self._moved_ms = now_ms
            now = self._look(network, now.capacity, now_ms, sampling=False)
        return Decision(self.trees, moves, before, now.shares(now.load), why, cost, self._cost(now))

    def on_decided(self, *, now_ms: Millis) -> None:
        """The decision took until now: agents were not silent in this time."""
        self._decided_ms = now_ms

    def _forget(self, now_ms: Millis) -> None:
        loads, flows = self._loads.items(), self._flows.items()
        self._loads = {at: entry for at, entry in loads if now_ms - entry[1] <= FRESH_MS}
        self._flows = {at: flow for at, flow in flows if now_ms - flow.reported_ms <= FLOW_KEPT_MS}
        self._of_origin = Counter(origin for origin, _ in self._flows)

    def _network_of(self, loads: list[Load]) -> Network:
        """Return the same object while nothing changed, for it caches ways."""
        network = network_of(loads)
        if self._network is not None and self._network.links_by_ends == network.links_by_ends:
            return self._network
        links = self._background.items()
        self._background = {at: estimate for at, estimate in links if at in network.at}
        return network

    def _drop_broken(self, network: Network) -> list[Move]:
        """Return flows to their ordinary way if their tree can no longer be used."""
        moves = []
        for (origin, filters), flow in sorted(self._flows.items()):
            if flow.tree is None:
                continue
            why = broken(flow.tree, flow.destinations, network)
            if why:
                moves.append(Move(origin, filters, flow.rate.value, None, why, flow.tree))
                flow.tree = None
        return moves

    def _look(
        self, network: Network, capacity: FloatArray, now_ms: Millis, *, sampling: bool = True
    ) -> Present:
        """Where flows go now and what links carry; load without a flow is background."""
        settled = self._moved_ms is None or now_ms - self._moved_ms >= SETTLE_MS
        ways: dict[FlowKey, tuple[int, ...]] = {}
        load, variance, newest, changing = (np.zeros(len(network.links)) for _ in range(4))
        for key, flow in self._flows.items():
            way = list(self._way(key, flow, network, settled=settled))
            ways[key] = tuple(way)
            load[way] += flow.rate.value
            variance[way] += flow.rate.error**2
            newest[way] += flow.newest
            changing[way] += flow.rate.value if flow.rate.changing else 0.0
        if sampling:
            if settled and self._new:
                self._sample_background(network, newest)
                self._jams.sample(network, capacity, self._reported_load(network, newest))
            self._new.clear()
        for ends, estimate in self._background.items():
            if (link := network.at.get(ends)) is not None:
                load[link] += max(0.0, estimate.value)  # a negative rest is noise or loss
                variance[link] += estimate.error**2
        assumed = self._assumed(capacity, load)
        return Present(network, capacity, assumed, ways, load, np.sqrt(variance), changing)

    def _assumed(self, capacity: FloatArray, load: FloatArray) -> FloatArray:
        """``capacity``, with guesses for unknown ones if others were learnt."""
        guess = np.maximum(self._narrowest, load / ROOMY)
        return np.where(np.isfinite(capacity), capacity, guess)

    def _way(
        self, key: FlowKey, flow: _Flow, network: Network, *, settled: bool
    ) -> tuple[int, ...]:
        if flow.tree is not None and (flow.planned or not settled):
            return tuple(sorted(network.at[ends] for ends in flow.tree.edges))
        return network.way(key[0], flow.destinations)

    def _sample_background(self, network: Network, by_flows: FloatArray) -> None:
        for broker in sorted(self._new & self._loads.keys()):
            for link_load in self._loads[broker][0].links:
                ends = broker, link_load.neighbour
                if (link := network.at.get(ends)) is not None:
                    rest = min(link_load.rate, RATE_MAX) - float(by_flows[link])
                    estimate = self._background.setdefault(ends, Estimate())
                    if rest > estimate.value:  # unless a backlog explains it
                        rest = max(estimate.value, rest - self._draining)
                    estimate.add(rest)

    def _reported_load(self, network: Network, by_flows: FloatArray) -> FloatArray:
        """The newest load of links: the sending broker's report, or that of the flows on them."""
        newest = by_flows.copy()
        for load, _ in self._loads.values():
            for link_load in load.links:
                if (link := network.at.get((load.broker, link_load.neighbour))) is not None:
                    newest[link] = max(newest[link], link_load.rate - self._draining)
        return newest

    def measured(self) -> Problem | None:
        """The problem of all flows that reach their destinations now; ``None`` without any."""
        now = self._now
        if now is None:
            return None
        going = [
            (key, way)
            for key, way in now.ways.items()
            if key in self._flows
            and self._flows[key].rate.value > 0
            and way
            and now.network.open[list(way)].all()
        ]
        keys = sorted((key for key, _ in going), key=lambda key: -self._flows[key].rate.value)
        return self._problem(now, keys, now.capacity) if keys else None

    # -- moving ----------------------------------------------------------------------------------

    def _relieve(
        self, now: Present, jam: set[Ends], dropped: list[Move], *, now_ms: Millis, watch: Watch
    ) -> Decision:
        before, cost = now.shares(now.load), self._cost(now)
        full = named(jam, before)

        def nothing(why: str) -> Decision:
            moves = tuple(dropped)
            return Decision(self.trees, moves, before, before, f"{full}: {why}", cost, cost)

        if self._tried is not None:
            tried_ms, then = self._tried
            worse = any(before[at] > then.get(at, 0.0) + WORSE for at in jam)
            if now_ms - tried_ms < RETRY_MS and not worse:
                return nothing("nothing better was found of late")
        self._tried = now_ms, {at: before[at] for at in jam}
        answer = self._answer(now, jam, now_ms, watch)
        if isinstance(answer, str):
            return nothing(answer)
        keys, ways, after = answer
        moves = self._move(now, keys, ways, before, now_ms)
        self._moved_ms, self._tried = now_ms, None
        self._jams.forget(ends for ends, share in after.items() if share != before[ends])
        moved = self._look(now.network, now.capacity, now_ms, sampling=False)
        why = f"{full}: {len(moves)} of {self.flows} flows move"
        moves = [*dropped, *moves]
        return Decision(self.trees, tuple(moves), before, after, why, cost, self._cost(moved))

    def _answer(self, now: Present, jam: set[Ends], now_ms: Millis, watch: Watch) -> _Answer | str:
        """Which flows may move, and where to; or why none does.

        A flow that moved lately, and then one of links that are not jammed, moves only if a jammed
        link is over ``FILL_MAX``, and if that helps beyond what other flows can do.
        """
        pressed = now.surely_over(jam, FILL_MAX)
        answer: _Answer | None = None
        why, shares = "no flow there may move", now.shares(now.load)
        for reach in Reach if pressed else (Reach.RESTED,):
            keys = self._candidates(now, jam, now_ms, reach)
            if not keys or (answer is not None and keys == answer[0]):
                continue
            problem = self._problem(now, keys, now.assumed)
            time = within(watch, 0.5) if pressed and reach is not Reach.ELSEWHERE else watch
            ways = fit(problem, threshold=self.manner.threshold, watch=time)
            load, meanwhile = now.load.copy(), now.load.copy()
            for wish, way in zip(problem.wishes, ways, strict=True):
                load[list(wish.way)] -= wish.rate
                load[list(way)] += wish.rate
                meanwhile[list(set(way) - set(wish.way))] += wish.rate
            after = now.shares(load)
            fuller = load > now.load
            # A link so full would be the next jam; and agents follow a plan at different times, so
            # for a moment a link has what comes before what goes has left it.
            filled = not pressed and bool(
                np.any(load[fuller] > ROOMY * now.assumed[fuller])
                or np.any(meanwhile > np.maximum(now.load, FILL_MAX * now.assumed))
            )
            if filled or not better(shares, after, self.manner.threshold):
                why = "no other way would relieve it"
                continue
            answer, shares = (keys, ways, after), after
            if fullest(after) <= FILL_MAX:
                break
        return answer or why

    def _candidates(
        self, now: Present, jam: set[Ends], now_ms: Millis, reach: Reach
    ) -> list[FlowKey]:
        """The heaviest flows of the jammed links, and those that have trees; heaviest first."""
        jammed = {now.network.at[ends] for ends in jam}
        heads = now.network.head[now.network.open].tolist()
        relied_on = {now.network.brokers[node] for node in heads}
        on_jam, others = [], []
        for key, flow in self._flows.items():
            way = now.ways[key]
            held = flow.moved_ms is not None and now_ms - flow.moved_ms < self.manner.hold_ms
            if held and reach is Reach.RESTED:
                continue
            if not (way and _may_move(key, flow, now.network, way, relied_on)):
                continue
            if jammed.intersection(way):
                on_jam.append((flow.rate.value, key))
            elif flow.tree is not None or reach is Reach.ELSEWHERE:
                others.append((flow.rate.value, key))
        on_jam.sort(reverse=True)
        total, so_far, chosen = sum(rate for rate, _ in on_jam), 0.0, list[FlowKey]()
        for rate, key in on_jam[: self.manner.candidates_max]:
            if so_far >= EXPLAINED * total:
                break
            chosen.append(key)
            so_far += rate
        if chosen:
            chosen += [key for _, key in sorted(others, reverse=True)]
        kept = chosen[: self.manner.candidates_max]
        return sorted(kept, key=lambda key: -self._flows[key].rate.value)

    def _problem(self, now: Present, keys: list[FlowKey], capacity: FloatArray) -> Problem:
        wishes = []
        room = capacity - now.load
        for key in keys:
            flow, way = self._flows[key], now.ways[key]
            wishes.append(Wish(key[0], flow.destinations, flow.rate.value, way, key[1]))
            room[list(way)] += flow.rate.value
        guessed = np.isfinite(capacity) & np.isinf(now.capacity)
        return Problem(now.network, tuple(wishes), room, capacity, guessed)

    def _move(
        self,
        now: Present,
        keys: list[FlowKey],
        ways: tuple[tuple[int, ...], ...],
        before: Mapping[Ends, float],
        now_ms: Millis,
    ) -> list[Move]:
        moves = []
        for key, way in zip(keys, ways, strict=True):
            flow = self._flows[key]
            if way == now.ways[key] or len(way) >= BROKERS_MAX:
                continue
            ordinary = way == now.network.way(key[0], flow.destinations)
            tree = None if ordinary else tree_of(*key, now.network.tree(way))
            left = [now.network.links[link] for link in now.ways[key] if link not in way]
            why = f"leaves {named(left, before)}"
            moves.append(Move(*key, flow.rate.value, tree, why, flow.tree))
            flow.tree, flow.moved_ms, flow.planned = tree, now_ms, True
            flow.good_since_ms = None
        return moves

    # -- giving back -----------------------------------------------------------------------------

    def _give_back(self, now: Present, shares: Mapping[Ends, float], now_ms: Millis) -> list[Move]:
        """Return flows to their ordinary ways, if these have long been good or save much."""
        manner, load = self.manner, now.load.copy()
        cost = max(self._cost(now), 1e-9)
        moves = []
        for key, flow in sorted(self._flows.items(), key=lambda item: item[1].rate.value):
            if flow.tree is None:
                continue
            rate, way = flow.rate.value, list(now.ways[key])
            ordinary = list(now.network.way(key[0], flow.destinations))
            after = load.copy()
            after[way] -= rate
            after[ordinary] += rate
            new = [link for link in ordinary if link not in way]
            share = float((after[new] / now.assumed[new]).max(initial=0.0))
            good = bool(ordinary) and share <= manner.threshold - GIVE_BACK_BELOW
            flow.good_since_ms = (flow.good_since_ms or now_ms) if good else None
            held = flow.moved_ms is not None and now_ms - flow.moved_ms < manner.hold_ms
            costs = now.network.cost
            saved = rate * float(costs[way].sum() - costs[ordinary].sum())
            saves = saved > manner.margin * cost and good
            lasting = good and now_ms - (flow.good_since_ms or now_ms) >= GIVE_BACK_MS
            if held or not (saves or lasting):
                continue
            load, was = after, flow.tree
            flow.tree, flow.moved_ms, flow.good_since_ms = None, now_ms, None
            why = f"saves {saved / cost:.0%} of the cost" if saves else "its ordinary way is free"
            moves.append(Move(*key, rate, None, why, was))
        return moves

    def _cost(self, now: Present) -> float:
        cost = now.network.cost
        return sum(
            flow.rate.value * float(cost[list(now.ways[key])].sum())
            for key, flow in self._flows.items()
        )


def _may_move(
    key: FlowKey, flow: _Flow, network: Network, way: tuple[int, ...], relied_on: set[BrokerId]
) -> bool:
    """Whether a tree could carry the flow, and its present way uses open links only."""
    return (
        flow.rate.value > 0
        and 0 < len(flow.destinations) < BROKERS_MAX
        and key[0] in network.node
        and relied_on.issuperset(flow.destinations)
        and bool(network.open[list(way)].all())
    )
