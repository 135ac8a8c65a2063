"""Trees for heavy flows, so that links are not too full, at the least cost of paths.

A problem for the solvers of ``plan solve``: flows are topics, links are arcs with a capacity each,
reduced by what may not move. First we look for a fit at ``FILL_MAX``; then for emptier links, if
that costs hardly more. Flows that do not fit are placed where they overload links least.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from federator.planner.flow.instance import (
    BoolArray,
    Capacity,
    FloatArray,
    Instance,
    IntArray,
    Role,
    dear_penalty,
)
from federator.planner.flow.outcome import Outcome
from federator.planner.flow.watch import Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.network import Network
from federator.protocol.types import BrokerId

FILL_MAX: Final = 0.95
"""How full a link may be."""

BELOW_THRESHOLD: Final = 0.05
"""Links are best so far below the threshold: at it, noise would move something again."""

ROOMY: Final = 0.9
"""The next best, whatever it costs: rates are known to some per cent, and noise would overfill some
of the links that are just full."""

DEARER_MAX: Final = 0.03
"""The extra cost allowed for links below the threshold, as a share."""

EXACT_CELLS_MAX: Final = 3_000
"""The exact method is quick up to this product of requests and arcs."""

TIGHT_SHARE: Final = 0.7
"""The share of time for the first problem."""

RATE_UNIT: Final = 100.0
"""The greatest rate in an instance: solvers' tolerances are absolute."""

GUESSED_PRICE: Final = 0.5
"""The price of overfilling a link of guessed capacity, relative to one of known capacity."""

OVERLOAD_PRICE: Final = 1e3
"""The price of overfilling a link by its whole capacity, in units of the dearest arc."""

_DEARER_THAN_ANY: Final = 1e15


@dataclass(frozen=True, slots=True)
class Wish:
    """A flow that may move. Links are positions in a network."""

    origin: BrokerId
    destinations: tuple[BrokerId, ...]
    rate: float  # bit/s
    way: tuple[int, ...]  # its present way, over open links
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What to fit.

    Attributes:
        room: The room of each link for the wishes at a fill of 1, bit/s; infinite: unbounded.
        capacity: The capacity of each link, in the same unit.
        guessed: Links with a guessed capacity; ``None``: none.
    """

    network: Network
    wishes: tuple[Wish, ...]  # heaviest first
    room: FloatArray
    capacity: FloatArray
    guessed: BoolArray | None = None

    def arcs_of(self, way: Iterable[int]) -> IntArray:
        """The arcs of our instances on ``way``, ascending."""
        return np.searchsorted(np.flatnonzero(self.network.open), sorted(way))

    def instance(self, fill: float, *, unit: float | None = None) -> Instance:
        """The instance for the solvers, with links ``fill`` full at most; bit/s times ``unit``."""
        network, wishes = self.network, self.wishes
        arcs = np.flatnonzero(network.open)
        unit = RATE_UNIT / max(wish.rate for wish in wishes) if unit is None else unit
        rate = np.array([wish.rate for wish in wishes]) * unit
        left = self.room[arcs] - (1 - fill) * np.where(
            np.isfinite(self.capacity[arcs]), self.capacity[arcs], 0.0
        )
        requests = [(k, d) for k, wish in enumerate(wishes) for d in wish.destinations]
        nodes = len(network.brokers)
        return Instance(
            name="measured",
            names=tuple(map(str, network.brokers)),
            roles=(Role.BROKER,) * nodes,
            relays=np.ones(nodes, dtype=bool),
            positions=None,
            capacity_kind=Capacity.ARC,
            tail=network.tail[arcs],
            head=network.head[arcs],
            cost=network.cost[arcs],
            channel=np.arange(len(arcs)),
            capacity=np.clip(left * unit, 0.0, 2 * rate.sum() + 1),
            rate=rate,
            publisher=np.array([network.node[wish.origin] for wish in wishes], dtype=np.intp),
            request_topic=np.array([k for k, _ in requests], dtype=np.intp),
            request_node=np.array([network.node[d] for _, d in requests], dtype=np.intp),
            first_request=np.concatenate(
                [[0], np.cumsum([len(wish.destinations) for wish in wishes])]
            ).astype(np.intp),
            unmet_penalty=dear_penalty(network.cost[arcs], nodes, len(requests)),
            topic_names=tuple(f"{k}@{wish.origin}" for k, wish in enumerate(wishes)),
        )


def fit(problem: Problem, *, threshold: float, watch: Watch) -> tuple[tuple[int, ...], ...]:
    """Ways for all wishes, in their order; below ``threshold`` if that costs hardly more."""
    empty = threshold - BELOW_THRESHOLD
    tight = _solved(problem.instance(FILL_MAX), within(watch, TIGHT_SHARE))
    chosen, fill = tight, FILL_MAX
    emptier = [] if tight.unmet else [share for share in (empty, ROOMY) if share < FILL_MAX]
    for filled in emptier:
        if watch.over():
            break
        roomy = _solved(problem.instance(filled), within(watch, TIGHT_SHARE))
        if not roomy.unmet and (filled == ROOMY or roomy.cost <= (1 + DEARER_MAX) * tight.cost):
            chosen, fill = roomy, filled
            break
    # Flows that do not fit are placed all the same, so no way may cost more than the penalty.
    instance = replace(problem.instance(fill), unmet_penalty=_DEARER_THAN_ANY)
    bench = Workbench(instance)
    bench.load(chosen.routing, np.zeros(instance.topics))
    _place_the_rest(problem, instance, bench, chosen)
    _leave_what_can_stay(problem, instance, bench)
    arcs = np.flatnonzero(problem.network.open)
    return tuple(tuple(sorted(arcs[way].tolist())) for way in bench.arcs)


def _solved(instance: Instance, watch: Watch) -> Outcome:
    """The best result of a quick method, and of a better one in the time left."""
    quick = SOLVERS[Method.GREEDY](instance, seed=0, watch=watch)
    if watch.over():
        return quick
    small = instance.requests * instance.arcs <= EXACT_CELLS_MAX
    method = Method.EXACT if small else Method.LAGRANGIAN
    return min(
        SOLVERS[method](instance, seed=0, watch=watch),
        quick,
        key=lambda outcome: (outcome.unmet, outcome.cost),
    )


def within(watch: Watch, share: float) -> Watch:
    """``watch``, limited to that share of the remaining time."""
    if watch.time_limit_s == inf:
        return watch
    return replace(watch, started_s=watch.seconds(), time_limit_s=watch.left_s() * share)


def _place_the_rest(
    problem: Problem, instance: Instance, bench: Workbench, outcome: Outcome
) -> None:
    """Place flows with unmet destinations, as a whole, where they overload links least."""
    met = outcome.account.met
    lacking = [k for k in range(instance.topics) if not met[instance.requests_of(k)].all()]
    dearest = OVERLOAD_PRICE * max(float(instance.cost.max(initial=0.0)), 1.0)
    price = np.full(len(instance.cost), dearest)
    if problem.guessed is not None:
        price[problem.guessed[problem.network.open]] *= GUESSED_PRICE
    for topic in lacking:
        bench.remove(topic)
        over = np.maximum(0.0, instance.rate[topic] - bench.room)
        over /= np.maximum(instance.capacity, instance.rate[topic])
        allowed = instance.head != instance.publisher[topic]
        bench.put(topic, *bench.best_tree(topic, allowed, over * price))


def _leave_what_can_stay(problem: Problem, instance: Instance, bench: Workbench) -> None:
    """Let flows, the lightest first, keep their present way if it fits."""
    for topic in reversed(range(instance.topics)):
        way = problem.arcs_of(problem.wishes[topic].way)
        if np.array_equal(way, np.sort(bench.arcs[topic])):
            continue
        before = bench.remove(topic)
        fits = (bench.room[way] >= instance.rate[topic]).all()
        bench.put(topic, *((way, 0.0) if fits else before))
