"""The newest word of each agent, as one agent heard them, and the network that they tell of."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from federator.protocol.messages.steering import TREES_MAX, Tree, passes
from federator.protocol.types import BrokerId, Millis
from lab.local_steering.words import Ends, LinkPrices, PricedLink

LIFETIME_MS: Final = Millis(60_000)
AGENTS_MAX: Final = 1_024


class _Heard(NamedTuple):
    word: LinkPrices
    at_ms: Millis


class Board:
    """Words, by who said them."""

    def __init__(self) -> None:
        self._heard: dict[BrokerId, _Heard] = {}
        self._network: Network | None = None  # as the words tell, which remembers ways

    def take(self, word: LinkPrices, now_ms: Millis) -> bool:
        """Keep ``word`` if it is news, which is to be passed on."""
        before = self._heard.get(word.broker)
        if before is None and len(self._heard) >= AGENTS_MAX:
            return False
        if before is not None:
            known = before.word.epoch, before.word.number
            if (word.epoch, word.number) <= known:
                return False
        self._heard[word.broker] = _Heard(word, now_ms)
        self._network = None
        return True

    def forget(self, now_ms: Millis) -> bool:
        """Drop words that have expired; whether there were any."""
        old = [id for id, heard in self._heard.items() if now_ms - heard.at_ms > LIFETIME_MS]
        for id in old:
            del self._heard[id]
            self._network = None
        return bool(old)

    def trees_through(self, broker: BrokerId) -> list[Tree]:
        """The trees that pass ``broker``, as many as a plan may have."""
        words = (heard.word for _, heard in sorted(self._heard.items()))
        through = (tree for word in words for tree in word.trees if passes(tree, broker))
        return list(islice(through, TREES_MAX))

    def network(self) -> "Network":
        """The links whose both ends are heard of."""
        if self._network is None:
            self._network = Network(
                {
                    (id, link.neighbour): link
                    for id, heard in sorted(self._heard.items())
                    for link in heard.word.links
                    if link.neighbour in self._heard and link.neighbour != id
                }
            )
        return self._network


class Network:
    """Links with loads and prices, and the ways over them."""

    def __init__(self, links: Mapping[Ends, PricedLink]) -> None:
        self.links = links
        self._into: dict[BrokerId, list[BrokerId]] = {}
        self._from: dict[BrokerId, list[BrokerId]] = {}
        for a, b in sorted(links):
            self._into.setdefault(b, []).append(a)
            self._from.setdefault(a, []).append(b)
        self._far: dict[BrokerId, dict[BrokerId, float]] = {}

    def ordinary(
        self, origin: BrokerId, destinations: Iterable[BrokerId]
    ) -> frozenset[Ends] | None:
        """The links that a flow takes by itself; ``None``: a destination cannot be reached."""
        used: set[Ends] = set()
        for destination in destinations:
            far = self._far_from(destination)
            at = origin
            if at not in far:
                return None
            while at != destination:
                onward = min(
                    (b for b in self._from[at] if b in far),
                    key=lambda b: (self.links[at, b].cost + far[b], b),
                )
                used.add((at, onward))
                at = onward
                if len(used) > len(self.links):
                    return None
        return frozenset(used)

    def tree(
        self,
        origin: BrokerId,
        destinations: Iterable[BrokerId],
        length: Callable[[Ends], float],
    ) -> frozenset[Ends] | None:
        """The shortest paths to all destinations by ``length``; ``None``: one cannot be reached."""
        _, parents = _shortest(origin, self._from, lambda a, b: length((a, b)))
        used: set[Ends] = set()
        for destination in destinations:
            at = destination
            if at not in parents:
                return None
            while at != origin and (parents[at], at) not in used:
                used.add((parents[at], at))
                at = parents[at]
        return frozenset(used)

    def _far_from(self, destination: BrokerId) -> dict[BrokerId, float]:
        if destination not in self._far:
            far, _ = _shortest(destination, self._into, lambda b, a: self.links[a, b].cost)
            self._far[destination] = far
        return self._far[destination]


def length_of(
    way: frozenset[Ends],
    origin: BrokerId,
    destinations: Iterable[BrokerId],
    length: Callable[[Ends], float],
) -> float:
    """What all paths of a way cost, one for each destination, as ``plan solve`` counts."""
    onward: dict[BrokerId, list[BrokerId]] = {}
    for a, b in way:
        onward.setdefault(a, []).append(b)
    far, _ = _shortest(origin, onward, lambda a, b: length((a, b)))
    return sum(far.get(each, inf) for each in destinations)


def _shortest(
    start: BrokerId,
    onward: Mapping[BrokerId, Iterable[BrokerId]],
    length: Callable[[BrokerId, BrokerId], float],
) -> tuple[dict[BrokerId, float], dict[BrokerId, BrokerId]]:
    """How far all are that can be reached from ``start``, and from where each is reached."""
    far, before = {start: 0.0}, {start: start}
    waiting = [(0.0, start)]
    while waiting:
        way, at = heapq.heappop(waiting)
        if way > far[at]:
            continue
        for each in onward.get(at, ()):
            if (through := way + length(at, each)) < far.get(each, inf):
                far[each], before[each] = through, at
                heapq.heappush(waiting, (through, each))
    return far, before
