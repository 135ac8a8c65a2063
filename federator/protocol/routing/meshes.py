"""Meshes: for each filter, its core and the brokers that carry it.

A broker with clients that want a filter, which no better core announces, becomes its core. Every
other broker with subscribers, or with a child that wants the filter, reports to its parents towards
the core; so it and the brokers in between become mesh members.

Election is a comparison of ranks and nothing more; all the rest tracks which broker wants what from
which. When a better core takes over, the old mesh carries data until the new one stands
(hand-over), and the old core joins the new mesh for children that are slow to leave it. If the old
core is gone, flooding takes its place. The duplicate window drops duplicates on the way.

Source: Spohn 2021, 3 and 4; docs/protocol.md 7.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field

from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.links.links import Links
from federator.protocol.messages.control import (
    FilterListPage,
    FilterListRequest,
    ListKind,
    MeshMembAnn,
)
from federator.protocol.parameters import Parameters
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.filter_lists import RemoteList
from federator.protocol.routing.filter_states import NO_ROUTE, FilterState, SharedStates
from federator.protocol.routing.flooding import Flooding
from federator.protocol.routing.memberships import Memberships
from federator.protocol.routing.mesh_event_log import MeshEntry, MeshEventLog
from federator.protocol.signals import (
    ChildFiltersChanged,
    OwnFiltersChanged,
    ParentsChanged,
    RouteChanged,
    Step,
)
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis

SHARED_ROUTES_MAX = 65_536

HANDOVER_PERIODS_MAX = 4
"""Times ``handover_ms`` until a new core is done with the previous mesh, if all goes well."""

_Kind = tuple[bool, BrokerId | None, BrokerId | None, bool, bool, bool]
"""local, core, previous, stays; flooded because of the core; flooded because of a previous core."""


@dataclass(slots=True)
class _Changes:
    """The results of one pass over touched filters."""

    routes: list[Step] = field(default_factory=list)
    # The next hops in the meshes, and the route, of all filters without children that have the same
    # inputs.
    alike: dict[_Kind, tuple[tuple[BrokerId, ...], FilterRoute]] = field(default_factory=dict)
    lost: bool = False  # brokers that no longer want a filter became unreachable
    moved: bool = False  # a filter of ours has another core now: it was not given up
    own_added: set[str] = field(default_factory=set)
    own_removed: set[str] = field(default_factory=set)


class Meshes:
    """Election, children and routes of all filters."""

    def __init__(
        self, links: Links, announcements: Announcements, *, parameters: Parameters
    ) -> None:
        self.states: dict[str, FilterState] = {}  # untracked by Python's collector
        self._shared_states = SharedStates()
        self.event_log = MeshEventLog()  # what changed, for metrics
        self.children: dict[BrokerId, dict[BrokerId, RemoteList]] = {}
        self.memberships = Memberships(links, announcements, parameters=parameters)
        self._links = links
        self._announcements = announcements
        self._parameters = parameters
        self._timers: Timers[tuple[BrokerId, BrokerId]] = Timers()  # (core, child) to expire
        self._handovers: Timers[str] = Timers()
        self._flooding = Flooding(parameters)
        self._shared_routes = {NO_ROUTE: NO_ROUTE}  # equal routes are one object
        self._refused = 0  # not reported yet
        self.refused = 0  # filters beyond the bound, counted each time they are wanted

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(
            self._timers.next_deadline_ms(),
            self._handovers.next_deadline_ms(),
            self._flooding.next_deadline_ms(),
            self.memberships.next_deadline_ms(),
        )

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Expire silent children, hand-overs and flooding; send delayed memberships."""
        steps = [self._drop_child(*child) for child in self._timers.pop_due(now_ms)]
        due = [f for f in self._handovers.pop_due(now_ms) if f in self.states]
        for filter_ in due:
            self._end_period(filter_, self._to_alter(filter_, self.states[filter_]), now_ms)
        cores, flooded = self._flooding.pop_due(now_ms)
        steps += [ParentsChanged(core, self._concerned(core)) for core in cores]
        steps += self._reevaluate_all({*due, *flooded}, now_ms)
        return steps + self.memberships.on_deadline(now_ms=now_ms)

    # -- demand ---------------------------------------------------------------------------

    def change_local(
        self, added: Iterable[str], removed: Iterable[str], *, now_ms: Millis
    ) -> list[Step]:
        """Follow the filters that our own clients want."""
        touched: set[str] = set()
        for filter_ in removed:
            if filter_ in self.states:
                self._to_alter(filter_, self.states[filter_]).local = False
                touched.add(filter_)
        for filter_ in added:
            state = self._state(filter_)
            if state is not None:
                state.local = True
                touched.add(filter_)
        return self._reevaluate_all(touched, now_ms)

    def wants(self, filter_: str) -> bool:
        """Whether our own clients want ``filter_`` in its mesh."""
        state = self.states.get(filter_)
        return state is not None and state.local

    def on_own_priority(self, *, now_ms: Millis) -> list[Step]:
        """Elect again wherever we may be the core: our own rank changed."""
        self_id = self._links.self_id
        touched = [f for f, s in self.states.items() if s.local or self_id in s.child_cores]
        return self._reevaluate_all(touched, now_ms)

    def on_announced(
        self, core: BrokerId, filters: AbstractSet[str], *, lost: bool, now_ms: Millis
    ) -> list[Step]:
        """Elect again for ``filters``, which ``core`` announces or no longer does.

        ``lost``: the missing ones were not given up.
        """
        route = self._announcements.routes.get(core)
        announced = route.announced.filters if route is not None else ()
        for filter_ in filters:
            if filter_ in announced:
                state = self._state(filter_)
                if state is not None and core not in state.announcers:
                    state.announcers = tuple(sorted((*state.announcers, core)))
                    state.missing = tuple(broker for broker in state.missing if broker != core)
            elif filter_ in self.states:
                state = self._to_alter(filter_, self.states[filter_])
                state.announcers = tuple(c for c in state.announcers if c != core)
        return self._reevaluate_all(filters, now_ms, lost=lost)

    def on_core_moved(self, core: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Our parents towards ``core`` changed: follow them."""
        parents = self.parents_of(core)
        self.event_log.note(MeshEntry("parent_changed", None, core, parents=parents))
        follow = self._flooding.on_core_found if parents else self._flooding.on_core_lost
        follow(core, now_ms=now_ms)
        return [
            ParentsChanged(core, self._concerned(core)),
            *self.memberships.on_core_moved(core, now_ms=now_ms),
        ]

    def _concerned(self, core: BrokerId) -> AbstractSet[str]:
        """The filters that our parents towards ``core`` carry."""
        touched = set(self.memberships.filters_of(core))
        route = self._announcements.routes.get(core)
        if route is not None:
            touched |= route.announced.filters.filters
        for list_ in self.children.get(core, {}).values():
            touched |= list_.filters.filters
        return touched

    def on_parents(self, filters: Iterable[str]) -> list[Step]:
        """Recompute the routes of ``filters`` after a change of parents, not of cores."""
        changes = _Changes()
        for filter_ in sorted(filters):
            state = self.states.get(filter_)
            if state is not None:
                state = self._to_alter(filter_, state)
                self._update_route(filter_, state, changes, lost=False)
                self.states[filter_] = self._shared_states.like(state)
        return changes.routes

    def on_link_down(self, neighbour: BrokerId) -> list[Step]:
        """Drop ``neighbour`` as a child everywhere: it is unreachable."""
        self.memberships.on_link_down(neighbour)
        cores = sorted(c for c, children in self.children.items() if neighbour in children)
        return [self._drop_child(core, neighbour) for core in cores]

    # -- children ------------------------------------------------------------------------

    def on_membership(self, message: MeshMembAnn, *, now_ms: Millis) -> list[Step]:
        """Handle a neighbour's report: it chose us as a parent, still does, or leaves."""
        core, child = message.core, message.sender
        if self._links.cost_to(child) is None or not self._is_current(core, message):
            return []
        children = self.children.setdefault(core, {})
        list_ = children.setdefault(child, RemoteList())
        if message.count == 0:
            return [self._drop_child(core, child, gave_up=message.gave_up)]
        busy = self._is_busy(core, child)
        changed = list_.offer(message.added, message.removed, digest=message.digest, busy=busy)
        expires_ms = Millis(now_ms + self._announcements.lifetime_ms)
        self._timers.set((core, child), expires_ms)
        steps: list[Step] = [ChildFiltersChanged(core, child, changed, message.gave_up)]
        gap_ms = self._parameters.list_request_gap_ms
        if list_.may_ask(busy=busy, now_ms=now_ms, gap_ms=gap_ms):
            request = FilterListRequest(self._links.self_id, ListKind.MEMBERSHIP, core)
            steps += self._links.send(child, request)
        return steps

    def on_list_page(self, page: FilterListPage) -> list[Step]:
        """Collect a page of the whole list that a child wants."""
        list_ = self.children.get(page.core, {}).get(page.sender)
        if list_ is None:
            return []
        changed = list_.on_page(page, busy=self._is_busy(page.core, page.sender))
        # The message that said whether these were given up was lost: none counts as given up.
        return [ChildFiltersChanged(page.core, page.sender, changed)]

    def on_child_filters(
        self, core: BrokerId, filters: AbstractSet[str], *, lost: bool, now_ms: Millis
    ) -> list[Step]:
        """Decide again for ``filters``, which children around ``core`` want or no longer want.

        ``lost``: those that they no longer want were not given up.
        """
        for filter_ in filters:
            state = self.states.get(filter_)
            before = () if state is None else state.child_cores
            cores = sorted(c for c in {core, *before} if self.children_of(c, filter_))
            if cores or state is not None:
                state = self._state(filter_)
            if state is not None:
                state.child_cores = tuple(cores)
        return self._reevaluate_all(filters, now_ms, lost=lost)

    def _is_current(self, core: BrokerId, message: MeshMembAnn) -> bool:
        if core == self._links.self_id:
            return message.epoch == self._links.epoch
        route = self._announcements.routes.get(core)
        return route is not None and not route.forgotten

    def _drop_child(self, core: BrokerId, child: BrokerId, *, gave_up: bool = False) -> Step:
        self._timers.clear((core, child))
        children = self.children.get(core, {})
        list_ = children.pop(child, None)
        if not children:
            self.children.pop(core, None)
        gone = frozenset() if list_ is None else list_.filters.filters
        return ChildFiltersChanged(core, child, gone, gave_up)

    def _is_busy(self, core: BrokerId, child: BrokerId) -> bool:
        return self._announcements.backlog.is_busy(ChildFiltersChanged(core, child))

    # -- deciding ------------------------------------------------------------------------

    def _state(self, filter_: str) -> FilterState | None:
        """A private copy of the state of ``filter_``, to be changed; ``None``: no room."""
        state = self.states.get(filter_)
        if state is not None:
            return self._to_alter(filter_, state)
        if len(self.states) >= self._parameters.filters_max:
            self._refused += 1
            self.refused += 1
            return None
        state = self.states[filter_] = FilterState()
        return state

    def _to_alter(self, filter_: str, state: FilterState) -> FilterState:
        """Replace the state of ``filter_`` by a private copy of ``state``."""
        own = self.states[filter_] = copy(state)
        return own

    def _reevaluate_all(
        self, touched: Iterable[str], now_ms: Millis, *, lost: bool = False
    ) -> list[Step]:
        """Decide again for ``touched`` filters, and inform all neighbours concerned."""
        changes = _Changes(lost=lost)
        for filter_ in sorted(touched):
            state = self.states.get(filter_)
            if state is not None:
                self._reevaluate(filter_, self._to_alter(filter_, state), changes, now_ms)
        steps: list[Step] = [*changes.routes]
        if changes.own_added or changes.own_removed:
            own = (frozenset(changes.own_added), frozenset(changes.own_removed))
            steps.append(OwnFiltersChanged(*own, lost=lost or changes.moved))
        if self._refused:
            details: dict[str, int | str] = {"filters": self._refused}
            details["filters_max"] = self._parameters.filters_max
            steps.append(Notice("filters.refused", "error", details))
            self._refused = 0
        return steps + self.memberships.flush(now_ms=now_ms)

    def _reevaluate(
        self, filter_: str, state: FilterState, changes: _Changes, now_ms: Millis
    ) -> None:
        before, was_in = state.core, self._takes_part(state)
        core = self._elect(state)
        lost = changes.lost
        if core != before:
            lost = lost or self._is_cut_off(before, state)
            self._change_core(filter_, state, core, changes, now_ms)
            self.event_log.note(MeshEntry("core_changed", filter_, core, before))
        self._update_membership(filter_, state, lost=changes.lost)
        if self._takes_part(state) != was_in:
            self.event_log.note(MeshEntry("mesh_left" if was_in else "mesh_joined", filter_, core))
        self._update_route(filter_, state, changes, lost=lost)
        if state.route is NO_ROUTE and core is None and not state.announcers:
            del self.states[filter_]
        else:
            self.states[filter_] = self._shared_states.like(state)

    def _update_route(
        self, filter_: str, state: FilterState, changes: _Changes, *, lost: bool
    ) -> None:
        """Recompute the filter's route, and report it if it changed."""
        if state.child_cores:
            meshed, route = self._route(filter_, state)
        else:
            flooded = self._flooding.is_for(filter_, state.core), filter_ in self._flooding
            kind = (state.local, state.core, state.previous, state.stays, *flooded)
            cached = changes.alike.get(kind)
            meshed, route = changes.alike[kind] = cached or self._route(filter_, state)
        if route is not state.route or meshed != state.meshed:
            before, state.route = state.route, route
            gone = set(state.meshed).difference(meshed) if lost else set()
            missing = gone.union(state.missing).difference(meshed)
            state.meshed = meshed
            unwanted = before.wanted and not route.wanted
            changes.routes.append(RouteChanged(filter_, unwanted and (lost or bool(missing))))
            state.missing = () if unwanted else tuple(sorted(missing))

    def _update_membership(self, filter_: str, state: FilterState, *, lost: bool) -> None:
        """Join and leave meshes, as clients and children require."""
        candidates = {state.core, state.previous, *state.child_cores} - {None, self._links.self_id}
        member_of = tuple(
            sorted(c for c in candidates if c is not None and self._is_member(state, c))
        )
        before, state.member_of = state.member_of, member_of
        moved = self._takes_part(state)  # a broker that moves to another mesh gives up nothing
        for core in {*member_of, *before}:
            self.memberships.set(core, filter_, member=core in member_of, lost=lost or moved)

    def _elect(self, state: FilterState) -> BrokerId | None:
        """The smallest rank wins, ours included if a client here wants the filter."""
        self_id = self._links.self_id
        routes = self._announcements.routes
        ranks = [routes[c].rank for c in state.announcers if c in routes]
        # Children keep a core elected, but do not elect one: the child that learns last that the
        # core resigned would call it back, and brokers would join and leave in waves for ever.
        held = state.core == self_id and self_id in state.child_cores
        if state.local or held:
            ranks.append((self._announcements.own.priority, self_id))
        return min(ranks)[1] if ranks else None

    def _change_core(
        self,
        filter_: str,
        state: FilterState,
        core: BrokerId | None,
        changes: _Changes,
        now_ms: Millis,
    ) -> None:
        self_id = self._links.self_id
        before, state.core = state.core, core
        if before == self_id:
            changes.own_removed.add(filter_)
            changes.moved = changes.moved or core is not None
        if core == self_id:
            changes.own_added.add(filter_)
        state.previous = None
        if before is None:
            pass
        elif not self._reaches(before):
            if self._flooding.on_core_changed(filter_, before, now_ms=now_ms):
                state.missing = (*state.missing, before)
        elif core is not None:
            state.previous = before
            self._hand_over(filter_, now_ms)
        state.stays = state.previous is not None

    def _hand_over(self, filter_: str, now_ms: Millis, *, periods: int = 1) -> None:
        ends_ms = Millis(now_ms + periods * self._parameters.handover_ms)
        self._handovers.set(filter_, ends_ms)

    def _end_period(self, filter_: str, state: FilterState, now_ms: Millis) -> None:
        """End a period of the hand-over: leave the old mesh, or as the new core still send to it.

        The old core needs a period, too, before it joins for the sake of children that stayed.
        """
        is_core = state.core == self._links.self_id
        if is_core and state.previous in state.announcers:  # our announcement is on its way
            self._hand_over(filter_, now_ms)
        elif is_core and state.stays:
            state.stays = False
            self._hand_over(filter_, now_ms, periods=2)
        else:
            state.previous, state.stays = None, False

    def _reaches(self, core: BrokerId) -> bool:
        if core == self._links.self_id:
            return True
        route = self._announcements.routes.get(core)
        return route is not None and route.reachable

    def _is_cut_off(self, core: BrokerId | None, state: FilterState) -> bool:
        """Whether ``core`` still announces the filter, but is unreachable now."""
        return core in state.announcers and not self._reaches(core)

    def _takes_part(self, state: FilterState) -> bool:
        """Whether we are a member of a mesh of the filter, or its core."""
        return bool(state.member_of) or state.core == self._links.self_id

    def _is_member(self, state: FilterState, core: BrokerId) -> bool:
        """Whether we belong to the filter's mesh around ``core``."""
        if core in state.child_cores:
            return True
        if state.local and (core == state.core or (core == state.previous and state.stays)):
            return True
        # We were the core: children that do not follow the new one yet get publications from us.
        deposed = state.previous is None and self._links.self_id in state.child_cores
        return deposed and core == state.core

    def _route(self, filter_: str, state: FilterState) -> tuple[tuple[BrokerId, ...], FilterRoute]:
        """The next hops in the filter's meshes, and the route, which also has those of flooding."""
        self_id = self._links.self_id
        hops: set[BrokerId] = set()
        for core in {state.core, state.previous, *state.child_cores}:
            if core is None:
                continue
            if core == self_id or self._is_member(state, core):
                hops.update(self.parents_of(core))
                hops.update(self.children_of(core, filter_))
            else:
                hops.update(self._relay_to(core))
        meshed = tuple(sorted(hops))
        succeeded = filter_ in self._flooding
        if succeeded or self._flooding.is_for(filter_, state.core):
            hops.update(self._links.up)
        # A core that has just taken over has no children yet: the subscribers are in the old mesh.
        elsewhere = {state.core, state.previous} - {None, self_id}
        others_want = bool(elsewhere) or bool(state.child_cores) or succeeded
        if len(self._shared_routes) >= SHARED_ROUTES_MAX:
            self._shared_routes = {NO_ROUTE: NO_ROUTE}
        route = FilterRoute(local=state.local, wanted=others_want, next_hops=tuple(sorted(hops)))
        route = self._shared_routes.setdefault(route, route)
        return (route.next_hops if meshed == route.next_hops else meshed), route

    def route_of(self, filter_: str) -> FilterRoute | None:
        """The route that the data plane uses for ``filter_`` because of its mesh."""
        state = self.states.get(filter_)
        return None if state is None or state.route is NO_ROUTE else state.route

    def parents_of(self, core: BrokerId) -> tuple[BrokerId, ...]:
        """Our parents towards ``core``; none if we are the core or it is unreachable."""
        route = self._announcements.routes.get(core)
        return route.parents if route is not None else ()

    def children_of(self, core: BrokerId, filter_: str) -> list[BrokerId]:
        """Neighbours that want ``filter_`` from us in the mesh of ``core``, ascending."""
        lists = self.children.get(core, {})
        return sorted(child for child, list_ in lists.items() if filter_ in list_.filters)

    def _relay_to(self, core: BrokerId) -> tuple[BrokerId, ...]:
        """The one parent to which a non-member sends publications: preferably one in the mesh.

        Only one of the nearest: a copy by a longer path is not a second copy, but the only one.
        """
        route = self._announcements.routes.get(core)
        if route is None or not route.parents:
            return ()
        offers = route.offers
        nearest = route.parents[: route.ties]
        best = min(nearest, key=lambda p: (not (p in offers and offers[p].in_mesh), p))
        return (best,)
