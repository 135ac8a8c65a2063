"""TBRouting: every broker with subscribers is a destination, with its own shortest paths.

Where a mesh has one core per filter, here every broker that wants a filter announces so itself, in
the flood that all announcements share, as a destination record. There is no election and no
membership: a publication's origin knows every destination, a frame names them, and each broker on
the way splits the frame by next hop. It is the difference between one bus line that stops
everywhere and a taxi for each passenger with another destination.

Whatever strategy a broker itself uses, it serves both kinds of demand. So a federation changes its
strategy broker by broker.

A destination may announce for some filters that it only **collects** what matches them, as an
archive does. A broker that keeps topics at the edge need not send it publications that no other
broker wants. Only this strategy can know: in a mesh, an origin knows the core and no broker behind
it.

Source: Chen 2020, 3.2, read as in docs/protocol.md 14 and 18: the consumer's flood relaxes
distances first in, first out, not last in, first out.
"""

from bisect import insort
from collections.abc import Iterable

import msgspec

from federator.protocol.effects import FilterRoute, Notice, SetDestination
from federator.protocol.links.links import Links
from federator.protocol.messages.destinations import destination_filter, destination_record
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.routing.announcements import Announcements
from federator.protocol.signals import OwnFiltersChanged, RouteChanged, Step
from federator.protocol.types import BrokerId

SHARED_MAX = 65_536
"""Distinct sets of destinations remembered, so that filters with the same set share it."""


class DestinationState(msgspec.Struct, gc=False):
    """The brokers that want one filter over the shortest path. Untracked by Python's collector."""

    local: bool = False  # our own clients want it
    brokers: tuple[BrokerId, ...] = ()  # other brokers, ascending, reachable or not
    # Brokers that became unreachable while others still wanted the filter.
    missing: tuple[BrokerId, ...] = ()


COLLECTORS_MAX = 1_024
"""Brokers for which we store what they collect; the others count as wanting everything."""


class TopicRouting:
    """Knows the destinations of all filters, and the next hop to each."""

    def __init__(
        self, links: Links, announcements: Announcements, *, parameters: Parameters
    ) -> None:
        self.states: dict[str, DestinationState] = {}
        self.next_hops: dict[BrokerId, BrokerId] = {}
        self._collects: dict[BrokerId, frozenset[str]] = {}
        self._paused: set[BrokerId] = set()
        self._links = links
        self._announcements = announcements
        self._parameters = parameters
        self._shared: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}  # equal ones are one
        self._refused = 0  # not reported yet
        self.refused = 0  # filters beyond the bound, counted each time they are wanted

    def asks_for(self, filter_: str) -> bool:
        """Whether our own clients' interest in ``filter_`` is announced as a destination."""
        if self._parameters.strategy_of(filter_) is not Strategy.SHORTEST_PATH:
            return False
        return destination_record(filter_) is not None

    def change_local(self, added: Iterable[str], removed: Iterable[str]) -> list[Step]:
        """Follow our own clients' interest; all these filters use this strategy."""
        came: set[str] = set()
        went: set[str] = set()
        steps: list[Step] = []
        for filter_ in sorted(removed):
            state = self.states.get(filter_)
            if state is not None and state.local:
                state.local = False
                went.add(_record(filter_))
                steps.append(self._changed(filter_, state, lost=False))
        for filter_ in sorted(added):
            state = self._state(filter_)
            if state is not None and not state.local:
                state.local = True
                came.add(_record(filter_))
                steps.append(self._changed(filter_, state, lost=False))
        if came or went:
            steps.append(OwnFiltersChanged(frozenset(came - went), frozenset(went - came)))
        return steps + self._complaint()

    def on_announced(self, core: BrokerId, records: Iterable[str], *, lost: bool) -> list[Step]:
        """Follow ``records``, which ``core`` announces or no longer does.

        ``lost``: the missing ones were not given up.
        """
        route = self._announcements.routes.get(core)
        announced = route.announced.filters if route is not None else ()
        steps: list[Step] = []
        for record in sorted(records):
            filter_ = destination_filter(record)
            if record in announced:
                state = self._state(filter_)
                if state is not None and core not in state.brokers:
                    brokers = list(state.brokers)
                    insort(brokers, core)
                    state.brokers = self._same(tuple(brokers))
                    state.missing = tuple(broker for broker in state.missing if broker != core)
                    steps.append(self._changed(filter_, state, lost=False))
            elif filter_ in self.states and core in self.states[filter_].brokers:
                state = self.states[filter_]
                state.brokers = self._same(tuple(b for b in state.brokers if b != core))
                if lost and state.brokers and filter_ not in self.collected_by(core):
                    state.missing = (*state.missing, core)
                steps.append(self._changed(filter_, state, lost=lost and not state.brokers))
        return steps + self._complaint()

    def on_collects(self, core: BrokerId, filters: frozenset[str]) -> list[Step]:
        """``core`` announces that it only collects what matches exactly ``filters``.

        For an unreachable broker this stays stored, because it wants nothing now.
        """
        before = self.collected_by(core)
        if core not in self._collects and len(self._collects) >= COLLECTORS_MAX:
            self._forget_gone()
            if len(self._collects) >= COLLECTORS_MAX:
                return []
        self._collects[core] = filters
        if not filters:
            del self._collects[core]
        changed = [(filter_, self.states.get(filter_)) for filter_ in sorted(before ^ filters)]
        return [self._changed(f, state, lost=False) for f, state in changed if state is not None]

    def wants(self, filter_: str) -> bool:
        """Whether our own clients want ``filter_``, and we announce that as its destination."""
        state = self.states.get(filter_)
        return state is not None and state.local

    def on_core_moved(self, core: BrokerId) -> list[Step]:
        """Send frames for ``core`` to its first parent: our parents towards it changed."""
        route = self._announcements.routes.get(core)
        parents = () if route is None or core in self._paused else route.parents
        next_hop = parents[0] if parents else None
        if next_hop == self.next_hops.get(core):
            return []
        if next_hop is None:
            del self.next_hops[core]
        else:
            self.next_hops[core] = next_hop
        return [SetDestination(core, next_hop)]

    def pause(self, broker: BrokerId) -> list[Step]:
        """Send nothing to ``broker``, though it wants it: another hub delivers it."""
        self._paused.add(broker)
        return self.on_core_moved(broker)

    def proceed(self, broker: BrokerId) -> list[Step]:
        """Send to ``broker`` again."""
        self._paused.discard(broker)
        return self.on_core_moved(broker)

    def route_of(self, filter_: str, mesh: FilterRoute | None) -> FilterRoute | None:
        """The route of ``filter_`` for the data plane; ``mesh``: the route of its mesh, if any."""
        state = self.states.get(filter_)
        if state is None:
            return mesh
        return FilterRoute(
            local=state.local or (mesh is not None and mesh.local),
            wanted=bool(state.brokers) or (mesh is not None and mesh.wanted),
            next_hops=() if mesh is None else mesh.next_hops,
            destinations=state.brokers,
            collected=self._only_collects(filter_, state)
            and (mesh is None or not (mesh.wanted or mesh.next_hops)),
        )

    def _only_collects(self, filter_: str, state: DestinationState) -> bool:
        if not self._collects or not state.brokers:
            return False
        return all(filter_ in self.collected_by(broker) for broker in state.brokers)

    def collected_by(self, broker: BrokerId) -> frozenset[str]:
        """The filters for which ``broker`` announces that it only collects."""
        return self._collects.get(broker, frozenset())

    def _forget_gone(self) -> None:
        routes = self._announcements.routes
        for core in list(self._collects):
            if core not in routes or routes[core].forgotten:
                del self._collects[core]

    def _state(self, filter_: str) -> DestinationState | None:
        state = self.states.get(filter_)
        if state is None:
            if len(self.states) >= self._parameters.filters_max:
                self._refused += 1
                self.refused += 1
                return None
            state = self.states[filter_] = DestinationState()
        return state

    def _changed(self, filter_: str, state: DestinationState, *, lost: bool) -> Step:
        if not state.local and not state.brokers:
            self.states.pop(filter_, None)
        elif state.missing and self._only_collects(filter_, state):
            state.missing, lost = (), True  # the brokers left in reach only collect
        return RouteChanged(filter_, lost)

    def _same(self, brokers: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        if len(self._shared) >= SHARED_MAX:
            self._shared.clear()
        return self._shared.setdefault(brokers, brokers)

    def _complaint(self) -> list[Step]:
        if not self._refused:
            return []
        details: dict[str, int | str] = {"filters": self._refused}
        details["filters_max"] = self._parameters.filters_max
        self._refused = 0
        return [Notice("filters.refused", "error", details)]


def _record(filter_: str) -> str:
    record = destination_record(filter_)
    assert record is not None, "asks_for was asked"
    return record
