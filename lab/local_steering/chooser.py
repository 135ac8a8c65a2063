"""Which of its own flows an origin moves, by the prices that it hears: one at a time, in its turn.

Like a driver who hears of a jam on his own road: he looks for another one, leaves only if the whole
city gains by it, says so, and stays on the new road for a while. The turns of two origins differ by
their ids, and who moves is heard within the time that words take: so hardly two leave at once.

All who gain by the same measure, how much links are too full in all, cannot go in circles: each
move makes it less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.planner.steering.decision import GIVE_BACK_BELOW, GIVE_BACK_MS
from federator.planner.steering.estimate import Estimate
from federator.planner.steering.fitting import FILL_MAX
from federator.planner.steering.moves import RELIEVED
from federator.protocol.messages.steering import BROKERS_MAX, FlowLoad, Tree, tree_of
from federator.protocol.types import BrokerId, Millis
from lab.local_steering.board import Network, length_of
from lab.local_steering.prices import THRESHOLD
from lab.local_steering.words import AMOUNT_MAX, TREES_MAX, Ends, PricedLink, Shift

HOLD_MS: Final = Millis(300_000)
LOYALTY: Final = 0.05
"""Share by which another way has to be cheaper."""

FLOW_KEPT_MS: Final = Millis(30_000)
CROWDED: Final = 20.0
"""So many times as long is a link that the flow would make too full,"""

SNUG: Final = 1.1
"""and one that it would make fuller than the threshold."""

Filters = tuple[str, ...]


@dataclass(slots=True)
class _Flow:
    rate: Estimate = field(default_factory=Estimate)
    destinations: tuple[BrokerId, ...] = ()
    heard_ms: Millis = Millis(0)
    tree: Tree | None = None
    moved_ms: Millis | None = None
    good_since_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A flow that got another way; ``tree`` is ``None``: the ordinary one."""

    filters: Filters
    tree: Tree | None
    shift: Shift | None
    why: str


class Chooser:
    """Trees for the flows of one origin."""

    def __init__(self, origin: BrokerId) -> None:
        self._origin = origin
        self._flows: dict[Filters, _Flow] = {}

    @property
    def trees(self) -> tuple[Tree, ...]:
        """All that hold."""
        return tuple(flow.tree for _, flow in sorted(self._flows.items()) if flow.tree is not None)

    def take(self, told: Iterable[FlowLoad], now_ms: Millis) -> None:
        """Take what our clients publish, heaviest first."""
        for each in told:
            if each.filters not in self._flows and len(self._flows) >= TREES_MAX:
                continue
            flow = self._flows.setdefault(each.filters, _Flow())
            flow.rate.add(min(each.rate, AMOUNT_MAX), each.error)
            flow.destinations, flow.heard_ms = each.destinations, now_ms
        self._flows = {
            filters: flow
            for filters, flow in self._flows.items()
            if now_ms - flow.heard_ms <= FLOW_KEPT_MS
        }

    def drop_broken(self, network: Network) -> list[Move]:
        """Give up trees that cannot be used any longer, at once."""
        moves = []
        for filters, flow in sorted(self._flows.items()):
            if flow.tree is None:
                continue
            whole = all(ends in network.links for ends in flow.tree.edges)
            wanted = {child for _, child in flow.tree.edges}.issuperset(flow.destinations)
            if not (whole and wanted and flow.destinations):
                flow.tree = flow.moved_ms = None  # free to look for another one at once
                why = "it is wanted elsewhere" if whole else "its tree is broken"
                moves.append(Move(filters, None, None, why))
        return moves

    def choose(self, network: Network, now_ms: Millis) -> Move | None:
        """The best move of all our flows, if there is a good one; to be called in our turn."""
        options = []
        for filters, flow in sorted(self._flows.items()):
            way = self._way(flow, network)
            if not way or not any(network.links[ends].price for ends in way):
                continue
            if self._held(flow, now_ms) and not any(_over(network.links[each]) for each in way):
                continue
            if (found := self._better(flow, way, network)) is not None:
                options.append((*found, filters))
        if options:
            _, new, filters = min(options, key=lambda each: (each[0], each[2]))
            return self._move(filters, new, network, now_ms, "its links are too full")
        return self._give_back(network, now_ms)

    def _better(
        self, flow: _Flow, way: frozenset[Ends], network: Network
    ) -> tuple[float, frozenset[Ends]] | None:
        """Another way for a flow, and what that costs more for what it relieves."""
        rate, links, to = flow.rate.value, network.links, flow.destinations

        def length(ends: Ends) -> float:
            link = links[ends]
            long = max(link.cost, 1e-3) * (1 + link.price)
            if not link.capacity or ends in way:  # what staying costs is what its price says
                return long
            fill = (link.load + rate) / link.capacity
            if fill > FILL_MAX:
                return long * CROWDED * (1 + fill)
            return long * SNUG if fill > THRESHOLD else long

        new = network.tree(self._origin, to, length)
        if new is None or new == way or len(new) >= BROKERS_MAX:
            return None
        cost = length_of(way, self._origin, to, length)
        if length_of(new, self._origin, to, length) >= (1 - LOYALTY) * cost:
            return None
        deltas = dict.fromkeys(way - new, -rate) | dict.fromkeys(new - way, rate)
        relief = _relief(links, deltas)
        if relief <= 0:
            return None

        def true_cost(ends: Ends) -> float:
            return float(links[ends].cost)

        dearer = length_of(new, self._origin, to, true_cost)
        dearer -= length_of(way, self._origin, to, true_cost)
        return dearer / relief, new

    def _give_back(self, network: Network, now_ms: Millis) -> Move | None:
        """Let a flow return whose ordinary way has long been free."""
        for filters, flow in sorted(self._flows.items()):
            if flow.tree is None:
                continue
            way, ordinary = self._way(flow, network), self._ordinary(flow, network)
            if not way or ordinary is None:
                continue
            good = all(
                link.load + flow.rate.value <= (THRESHOLD - GIVE_BACK_BELOW) * link.capacity
                for ends in ordinary - way
                if (link := network.links[ends]).capacity
            )
            flow.good_since_ms = (flow.good_since_ms or now_ms) if good else None
            long = good and now_ms - (flow.good_since_ms or now_ms) >= GIVE_BACK_MS
            if long and not self._held(flow, now_ms):
                return self._move(filters, ordinary, network, now_ms, "its ordinary way is free")
        return None

    def _move(
        self, filters: Filters, new: frozenset[Ends], network: Network, now_ms: Millis, why: str
    ) -> Move:
        flow = self._flows[filters]
        way, ordinary = self._way(flow, network) or frozenset(), self._ordinary(flow, network)
        tree = None
        if new != ordinary:
            tree = tree_of(self._origin, filters, {child: parent for parent, child in new})
        flow.tree, flow.moved_ms, flow.good_since_ms = tree, now_ms, None
        left, joined = tuple(sorted(way - new)), tuple(sorted(new - way))
        return Move(filters, tree, Shift(flow.rate.value, left, joined), why)

    def _way(self, flow: _Flow, network: Network) -> frozenset[Ends] | None:
        if flow.tree is not None:
            return frozenset(flow.tree.edges)
        return self._ordinary(flow, network)

    def _ordinary(self, flow: _Flow, network: Network) -> frozenset[Ends] | None:
        return network.ordinary(self._origin, flow.destinations)

    @staticmethod
    def _held(flow: _Flow, now_ms: Millis) -> bool:
        return flow.moved_ms is not None and now_ms - flow.moved_ms < HOLD_MS


def _over(link: PricedLink) -> bool:
    """Whether a link that has a price is over its capacity."""
    return bool(link.price and link.capacity and link.load > link.capacity)


def _relief(links: Mapping[Ends, PricedLink], deltas: Mapping[Ends, float]) -> float:
    """By how much links are less too full, in links; 0: not by enough to move somebody.

    What is over ``FILL_MAX`` comes first, as it does for the central steerer.
    """
    for limit in (FILL_MAX, THRESHOLD):
        was = is_ = 0.0
        for ends, rate in deltas.items():
            link = links[ends]
            if link.capacity:
                was += max(0.0, link.load / link.capacity - limit)
                is_ += max(0.0, (link.load + rate) / link.capacity - limit)
        if is_ > was + 1e-6:
            return 0.0
        if was > 0 and is_ <= RELIEVED * was:
            return was - is_
    return 0.0


def turn_offset_ms(broker: BrokerId, turn_ms: int) -> int:
    """When within each turn that long ``broker`` chooses: ids are spread by the golden ratio."""
    return int(turn_ms * (broker * 0.618_033_988_75 % 1.0))
