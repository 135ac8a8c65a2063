"""The Lagrangian matheuristic: prices on narrow links, a proven bound, answers that always fit.

Like toll roads: each channel charges a toll per unit of rate; topics choose their way by cost and
toll; tolls rise where load exceeds capacity and fall where it does not. What topics pay at any
tolls, less what the channels could earn, is a bound (``relaxation``). Tolls also show which topics
should yield, which guides repair (``local_search``); and every tree found competes in a last
selection (``pool``).

Small instances get fitted shares, many rounds, and the pool. Large ones get equal shares and a
handful of rounds: one round of 1,000 topics on 10,000 nodes is 1,000 runs of Dijkstra, some 2 s.

Source: Manzoni 2022, 3.2; docs/planner.md 4.
"""

import math
from dataclasses import dataclass

import numpy as np

from federator.planner.flow.instance import FloatArray, Instance, IntArray
from federator.planner.flow.outcome import Outcome, outcome, whole_bound
from federator.planner.flow.routing import Routing, account
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import UNWATCHED, Progress, Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian import steps
from federator.planner.lagrangian.local_search import LocalSearch, Negotiation, evict
from federator.planner.lagrangian.pool import TreePool
from federator.planner.lagrangian.relaxation import Relaxation
from federator.planner.lagrangian.shortage import unmet_least

FITTED_CELLS_MAX = 2_000_000
"""Product of requests and arcs up to which shares are fitted and trees are pooled."""

TARGET_ABOVE_BOUND = 0.1
"""Penalties make early answers dear; a step that aimed at them would overshoot."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work is done."""

    rounds: int  # of prices
    repair_every: int  # rounds between two repairs
    pushes: int  # topics that may push after each repair
    combinations: int  # how often the pool is searched
    pricings: int  # how often trees are added for the pool's own prices, before each search
    shuffles: int  # random reinsertions after each search of the pool


SMALL = Effort(rounds=100, repair_every=10, pushes=40, combinations=3, pricings=6, shuffles=40)
LARGE = Effort(rounds=8, repair_every=4, pushes=0, combinations=0, pricings=0, shuffles=0)


def solve(
    instance: Instance,
    *,
    rule: steps.Rule = steps.Rule.POLYAK,
    seed: int = 0,
    effort: Effort | None = None,
    watch: Watch = UNWATCHED,
) -> Outcome:
    """A feasible routing and a bound that no routing undercuts.

    Without ``effort``: ``SMALL`` or ``LARGE`` by the instance's size.
    """
    return _Search(instance, rule, seed, effort, watch).run()


class _Search:
    """The state of one search: prices, bound, best routing."""

    def __init__(
        self, instance: Instance, rule: steps.Rule, seed: int, effort: Effort | None, watch: Watch
    ) -> None:
        small = instance.requests * instance.arcs <= FITTED_CELLS_MAX
        self.instance = instance
        self.effort = effort or (SMALL if small else LARGE)
        self.watch = watch
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.paths = ShortestPaths(instance)
        self.relaxation = Relaxation(instance, self.paths, fitted=small)
        self.bench = Workbench(instance, self.paths)
        self.pool = TreePool(instance, self.paths) if small else None
        self.rule = steps.make(rule)
        self.best_cost = self.bench.total()
        self.best: tuple[Routing, FloatArray] = (self.bench.routing(), self.bench.cost.copy())
        self.bound = -math.inf
        self.ideal = np.zeros(instance.topics)

    def run(self) -> Outcome:
        prices = np.zeros(len(self.instance.capacity))
        rounds, done = self.effort.rounds, 0
        for done in range(rounds):
            relaxed = self.relaxation.solve(prices, stop=self.watch.over)
            if relaxed is None:
                break
            if done == 0:
                self.ideal = relaxed.topic_value
            self.bound = max(self.bound, relaxed.bound)
            if done % self.effort.repair_every == 0 or done == rounds - 1:
                self._repair(prices, first=done == 0)
            if done == 0:
                self._count_the_unmet()
            self.watch.report(Progress(done / rounds, self.best_cost, self.bound))
            if self._closed() or self.watch.over():
                break
            prices = self.rule.step(
                prices, relaxed.slope, bound=relaxed.bound, target=self._target()
            )
        self._finish()
        stopped = "proven" if self._closed() else "stopped" if self.watch.over() else "done"
        return outcome(
            self.instance,
            self.best[0],
            method="lagrangian",
            lower_bound=self.bound,
            stopped=stopped,
            iterations=done + 1,
        )

    def _count_the_unmet(self) -> None:
        """If requests are unmet, prove how many must be; later bounds may use that."""
        unmet = int((~account(self.instance, self.best[0]).met).sum())
        if unmet and self.pool is not None:
            least = unmet_least(self.instance, self.paths, most=unmet, watch=self.watch)
            self.relaxation.unmet_least = least

    def _target(self) -> float:
        """What the bound may reach: not far above the best so far, whatever penalties are."""
        return min(self.best_cost, self.bound + TARGET_ABOVE_BOUND * abs(self.bound))

    def _closed(self) -> bool:
        return self.best_cost <= whole_bound(self.instance, self.bound) + 1e-6

    def _search(self) -> LocalSearch:
        return LocalSearch(self.bench, self.pool, self.rng, self.ideal, self.watch)

    def _repair(self, prices: FloatArray, *, first: bool) -> None:
        """A feasible routing guided by ``prices``, improved while it pays."""
        if self.pool is None:
            self._negotiate(prices)
            return
        search = self._search()
        surcharge = None if first else prices[self.instance.channel]
        if surcharge is not None:
            self.pool.find(surcharge, self.rng)
            surcharge = surcharge * float(self.rng.uniform(0.2, 1.2))
        search.rebuild(self._order(), surcharge)
        search.settle()
        if search.push_all(tries=self.effort.pushes):
            search.settle()
        self._keep()
        if (self.bench.cost >= self.instance.unmet_penalty).any():
            self._negotiate(prices)  # requests are unmet: inserting topics one by one is not enough
            search.remember_all()

    def _negotiate(self, prices: FloatArray) -> None:
        """Turn each topic's own choice at these prices into a routing that fits."""
        bench = self.bench
        bench.clear()
        for topic in range(self.instance.topics):
            if self.watch.over():
                break
            toll = prices[self.instance.channel] * self.instance.rate[topic]
            bench.put(topic, *bench.best_tree(topic, bench.usable[topic], toll))
        Negotiation(bench, self.rng, self.watch).run()
        for topic in evict(bench, self.rng):
            bench.insert(topic)
        self._search().settle()
        self._keep()

    def _order(self) -> IntArray:
        """Big topics first, with some randomness."""
        size = self.instance.rate * np.sqrt(self.instance.fan_out)
        return np.argsort(-size * self.rng.uniform(0.5, 1.5, len(size)), kind="stable")

    def _keep(self) -> None:
        total = self.bench.total()
        if total < self.best_cost - 1e-6:
            self.best_cost = total
            self.best = (self.bench.routing(), self.bench.cost.copy())

    def _finish(self) -> None:
        """Search the pool, and around its result, until that gains nothing."""
        for _ in range(self.effort.combinations):
            if self._closed() or self.watch.over() or not self.pool:
                return
            before = self.best_cost
            self._combine(self.pool)
            self._shake()
            if self.best_cost >= before - 1e-6:
                return

    def _combine(self, pool: TreePool) -> None:
        """Add the trees that the pool's own prices favour, then choose among all."""
        priced = pool.price(seed=self.seed, watch=self.watch)
        for _ in range(self.effort.pricings):
            if priced is None:
                return
            before = len(pool)
            pool.find(priced.prices[self.instance.channel], self.rng)
            if len(pool) == before:
                break
            priced = pool.price(seed=self.seed, watch=self.watch)
        if priced is None:
            return
        chosen = pool.combine(priced, best_cost=self.best_cost, seed=self.seed, watch=self.watch)
        if chosen is None or sum(cost for _, cost in chosen) >= self.best_cost - 1e-6:
            return
        costs = np.array([cost for _, cost in chosen])
        self.bench.load(Routing(tuple(arcs for arcs, _ in chosen)), costs)
        self._search().settle()
        self._keep()

    def _shake(self) -> None:
        self.bench.load(*self.best)
        search = self._search()
        most = min(8, self.instance.topics)
        for _ in range(self.effort.shuffles):
            if self.watch.over():
                break
            some = int(self.rng.integers(2, most + 1)) if most > 2 else most
            if search.shuffle(self.rng.permutation(self.instance.topics)[:some]):
                search.settle()
        search.push_all(tries=self.effort.pushes)
        self._keep()
