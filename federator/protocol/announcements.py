"""Core announcements: one flood per core, which leaves a shortest path behind it.

Every core repeats a numbered announcement; every broker passes each number on once, with its own
cost. Where the cheapest copies came from are the parents. All meshes of one core share this state,
so what announcing costs does not depend on how many filters there are.

Loop freedom is Babel's: a neighbour may become a parent only if it is closer to the core than we
ever said we were for the same number (the feasibility condition). A broker whose last feasible
parent goes takes its route back and solicits a newer number, so repair takes a round trip and no
interval.

Source: papers/federator.txt sections 3 to 5; design section 3.2; RFC 8966 section 2.4;
docs/protocol.md section 6.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from federator.protocol.effects import Notice
from federator.protocol.filter_lists import RemoteList, as_delta, pages_of
from federator.protocol.filters import DigestedSet
from federator.protocol.links import Links
from federator.protocol.messages import (
    CoreAnn,
    FilterListPage,
    FilterListRequest,
    ListKind,
    Solicit,
)
from federator.protocol.parameters import Parameters
from federator.protocol.signals import (
    AnnouncedFiltersChanged,
    CoreMoved,
    CoreRefreshed,
    OwnIdHeard,
    Step,
)
from federator.protocol.timers import Timers
from federator.protocol.types import (
    UNREACHABLE,
    BrokerId,
    CoreRank,
    Cost,
    Epoch,
    Millis,
)

Number = tuple[Epoch, int]
"""(epoch, seq): what orders the announcements of one core."""

FORGOTTEN_LIFETIMES = 4
"""Core lifetimes for which the number of a forgotten core is remembered, against stale copies."""

SENDS_OF_ONE_NUMBER_MAX = 2
"""Copies of one announcement over one link by its end with the smaller id; the other end sends one
less. So no announcement costs more than 3 publications per link, whatever the delays."""


@dataclass(frozen=True, slots=True)
class HeardCost:
    """What one neighbour said of one core."""

    number: Number
    cost: Cost
    in_mesh: bool


@dataclass(slots=True)
class CoreRoute:
    """Our way to one core.

    ``feasible_cost`` is the least cost we announced for ``number``. ``unconfirmed`` are parents for
    the number before whose copy of this one is still on its way: they stay parents for a moment, so
    that a refresh changes no route.
    """

    core: BrokerId
    priority: int
    number: Number
    cost: Cost = UNREACHABLE
    feasible_cost: Cost = UNREACHABLE
    parents: tuple[BrokerId, ...] = ()
    unconfirmed: tuple[BrokerId, ...] = ()
    heard: dict[BrokerId, HeardCost] = field(default_factory=dict)
    newest: CoreAnn | None = None  # the newest announcement, as heard
    sent: dict[BrokerId, int] = field(default_factory=dict)
    announced: RemoteList = field(default_factory=RemoteList)
    askers: set[BrokerId] = field(default_factory=set)  # waiting until our copy is right
    in_mesh: bool = False
    forgotten: bool = False
    solicit_passed_on: tuple[Number, Millis] | None = None

    @property
    def reachable(self) -> bool:
        """There is a path."""
        return self.cost < UNREACHABLE

    @property
    def rank(self) -> CoreRank:
        """The smaller wins."""
        return (self.priority, self.core)


@dataclass(slots=True)
class OwnCore:
    """What we announce as a core ourselves."""

    filters: DigestedSet = field(default_factory=DigestedSet)
    seq: int = 0
    announced_at_ms: Millis | None = None
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


class Announcements:
    """Follows all cores, and announces for our own.

    Args:
        links: Our links, read only.
        priority: Ours, as a core.
        parameters: Intervals and bounds.
    """

    def __init__(self, links: Links, *, priority: int, parameters: Parameters) -> None:
        self.routes: dict[BrokerId, CoreRoute] = {}
        self.own = OwnCore()
        self.priority = priority
        self._links = links
        self._parameters = parameters
        self._timers: Timers[tuple[str, int]] = Timers()

    @property
    def lifetime_ms(self) -> Millis:
        """Silence after which a core is forgotten."""
        p = self._parameters
        return Millis(p.core_lifetime_intervals * p.core_ann_interval_ms)

    @property
    def own_number(self) -> Number:
        """What orders our own announcements."""
        return (self._links.epoch, self.own.seq)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    # -- our own core --------------------------------------------------------------------

    def change_own(
        self, added: frozenset[str], removed: frozenset[str], *, now_ms: Millis
    ) -> list[Step]:
        """Announce a change of the filters whose core we are: at once after a quiet time."""
        own = self.own
        own.filters.apply(added, removed)
        own.added = (own.added | added) - removed
        own.removed = (own.removed | removed) - added
        return self.announce_soon(now_ms=now_ms)

    def announce_soon(self, *, now_ms: Millis) -> list[Step]:
        """A new number as soon as ``core_ann_gap_ms`` allows."""
        last_ms = self.own.announced_at_ms
        due_ms = now_ms if last_ms is None else last_ms + self._parameters.core_ann_gap_ms
        if due_ms > now_ms:
            self._timers.set_sooner(("announce", 0), Millis(due_ms))
            return []
        return self._announce(now_ms)

    def own_announcement(self, *, whole_change: bool) -> CoreAnn:
        """Our announcement with the current number."""
        own = self.own
        added, removed = as_delta(own.added, own.removed) if whole_change else ((), ())
        return CoreAnn(
            sender=self._links.self_id,
            core=self._links.self_id,
            priority=self.priority,
            epoch=self._links.epoch,
            seq=own.seq,
            cost=Cost(0),
            in_mesh=True,
            added=added,
            removed=removed,
            digest=own.filters.digest,
            count=len(own.filters),
        )

    def _announce(self, now_ms: Millis) -> list[Step]:
        own = self.own
        own.seq += 1
        own.announced_at_ms = now_ms
        message = self.own_announcement(whole_change=True)
        own.added, own.removed = set(), set()
        if len(own.filters):
            next_ms = Millis(now_ms + self._parameters.core_ann_interval_ms)
            self._timers.set(("announce", 0), next_ms)
        else:
            self._timers.clear(("announce", 0))
        return [step for n in self._links.up for step in self._links.send(n, message)]

    # -- others' cores -------------------------------------------------------------------

    def on_announcement(self, ann: CoreAnn, *, now_ms: Millis) -> list[Step]:
        """Adopt, improve, take back or ignore; pass on what taught us something."""
        link_cost = self._links.cost_to(ann.sender)
        if link_cost is None:
            return []
        if ann.core == self._links.self_id:
            return [OwnIdHeard(ann.epoch)] if ann.epoch > self._links.epoch else []
        route = self.routes.get(ann.core)
        if route is None:
            if ann.cost >= UNREACHABLE:
                return []
            if len(self.routes) >= self._parameters.cores_max:
                return [Notice("core.refused", "error", {"core": ann.core})]
            route = CoreRoute(ann.core, ann.priority, number=(Epoch(-1), 0))
            self.routes[ann.core] = route

        number = (ann.epoch, ann.seq)
        if number < route.number:
            return []
        if ann.cost >= UNREACHABLE:
            route.heard.pop(ann.sender, None)
            return self._reroute(route, now_ms)
        before = route.heard.get(ann.sender)
        route.heard[ann.sender] = HeardCost(number, ann.cost, ann.in_mesh)
        if route.newest is None or number > (route.newest.epoch, route.newest.seq):
            route.newest = ann
        if route.forgotten and number == route.number:
            return self._revive(route, ann, now_ms)
        steps = self._hear_filters(route, ann, now_ms)
        if number > route.number:
            steps += self._hear_newer(route, now_ms)
        else:
            steps += self._reroute(route, now_ms)
        if before is not None and before.in_mesh != ann.in_mesh and ann.sender in route.parents:
            steps.append(CoreMoved(route.core))  # it may be the better one to relay to
        return steps

    def on_link_up(self, neighbour: BrokerId) -> list[Step]:
        """Tell a new neighbour every route, so that it need not wait for the next number."""
        steps: list[Step] = []
        if self.own.seq and len(self.own.filters):
            steps += self._links.send(neighbour, self.own_announcement(whole_change=False))
        for _, route in sorted(self.routes.items()):
            if route.reachable:
                steps += self._links.send(neighbour, self._relayed(route, whole_change=False))
        return steps

    def on_link_down(self, neighbour: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Do without what ``neighbour`` said."""
        steps: list[Step] = []
        for _, route in sorted(self.routes.items()):
            route.askers.discard(neighbour)
            route.sent.pop(neighbour, None)
            if route.heard.pop(neighbour, None) is not None:
                steps += self._reroute(route, now_ms)
        return steps

    def on_solicit(self, solicit: Solicit, *, now_ms: Millis) -> list[Step]:
        """Answer when we know a newer number, else pass the question towards the core."""
        asked: Number = (solicit.epoch, solicit.seq)
        if self._links.cost_to(solicit.sender) is None:
            return []
        if solicit.core == self._links.self_id:
            if asked[0] > self._links.epoch:
                return [OwnIdHeard(asked[0])]
            if asked < self.own_number or not len(self.own.filters):
                return []
            return self.announce_soon(now_ms=now_ms)
        route = self.routes.get(solicit.core)
        if route is None:
            return []
        if route.reachable and route.number > asked:
            answer = self._relayed(route, whole_change=False)
            return self._links.send(solicit.sender, answer)
        return self._pass_on_solicit(route, asked, solicit.sender, now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Refresh, improve, give up or expire, whatever is due."""
        steps: list[Step] = []
        for kind, key in self._timers.pop_due(now_ms):
            if kind == "announce":
                steps += self._announce(now_ms)
                continue
            route = self.routes[BrokerId(key)]
            if kind == "hold":
                steps += self._adopt(route, now_ms)
            elif kind == "settle":
                route.unconfirmed = ()
                steps += self._reroute(route, now_ms)
            elif kind == "list":
                steps += self._ask_for_list(route, now_ms)
            elif kind == "erase":
                del self.routes[route.core]
            else:
                assert kind in ("starved", "expired"), kind
                steps += self._forget(route, now_ms, reason=kind)
        return steps

    # -- routes --------------------------------------------------------------------------

    def _hear_newer(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Adopt a newer number, unless a cheaper copy of it can be expected any moment."""
        newest = route.newest
        assert newest is not None
        offered = min(
            (self._cost_via(n, h) for n, h in route.heard.items() if h.number > route.number),
            default=UNREACHABLE,
        )
        if offered <= route.cost or not route.reachable:
            return self._adopt(route, now_ms)
        hold_ms = Millis(now_ms + self._parameters.improvement_hold_ms)
        self._timers.set_sooner(("hold", route.core), hold_ms)
        return []

    def _adopt(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        newest = route.newest
        assert newest is not None
        number = (newest.epoch, newest.seq)
        if number <= route.number:
            return []
        was = (route.cost, route.parents)
        route.number = number
        route.priority = newest.priority
        route.forgotten = False
        route.feasible_cost = UNREACHABLE
        route.sent = {}
        for kind in ("hold", "starved", "erase"):
            self._timers.clear((kind, route.core))
        self._timers.set(("expired", route.core), Millis(now_ms + self.lifetime_ms))
        route.unconfirmed = ()
        self._choose(route)
        if not route.reachable:  # the neighbour that brought the number is gone already
            return [CoreMoved(route.core), *self._starve(route, now_ms)]
        if route.cost == was[0]:
            route.unconfirmed = tuple(p for p in was[1] if p in route.heard)
            self._choose(route)
            settle_ms = Millis(now_ms + self._parameters.parent_settle_ms)
            self._timers.set(("settle", route.core), settle_ms)
        steps = self._flood(route, tell_teacher=was[0] < route.cost)
        if was[1] != route.parents:
            steps.append(CoreMoved(route.core))
        return [*steps, CoreRefreshed(route.core)]

    def _revive(self, route: CoreRoute, ann: CoreAnn, now_ms: Millis) -> list[Step]:
        """A neighbour still has the number under which we gave the core up.

        When that is feasible it is a route again; when it is not, only a newer number can help.
        """
        self._choose(route)
        if not route.reachable:
            return self._pass_on_solicit(route, route.number, None, now_ms)
        route.forgotten = False
        self._timers.clear(("erase", route.core))
        self._timers.set(("expired", route.core), Millis(now_ms + self.lifetime_ms))
        steps = self._hear_filters(route, ann, now_ms) + self._correct(route)
        return [*steps, CoreMoved(route.core), CoreRefreshed(route.core)]

    def _reroute(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Choose again after a neighbour's word changed, for the number we have."""
        if route.forgotten:
            return []
        was = (route.cost, route.parents)
        self._choose(route)
        if was == (route.cost, route.parents):
            return []
        if not route.reachable:
            return [CoreMoved(route.core), *self._starve(route, now_ms)]
        self._timers.clear(("starved", route.core))
        steps: list[Step] = []
        if was[0] < route.cost or was[0] == UNREACHABLE:
            steps = self._correct(route)
        elif route.cost < was[0]:
            steps = self._flood(route, tell_teacher=False)
        if was[1] != route.parents:
            steps.append(CoreMoved(route.core))
        return steps

    def _choose(self, route: CoreRoute) -> None:
        """Set cost and parents from the feasible neighbours."""
        feasible = {
            n: self._cost_via(n, h)
            for n, h in route.heard.items()
            if h.number == route.number and h.cost < route.feasible_cost
        }
        before = route.cost
        route.cost = min(feasible.values(), default=UNREACHABLE)
        best = {n for n, cost in feasible.items() if cost == route.cost}
        if route.cost == before:
            best |= {
                n
                for n in route.unconfirmed
                if n in route.heard and route.heard[n].number < route.number
            }
        route.parents = (
            tuple(sorted(best)[: self._parameters.redundancy]) if route.reachable else ()
        )
        route.feasible_cost = min(route.feasible_cost, route.cost)

    def _cost_via(self, neighbour: BrokerId, heard: HeardCost) -> Cost:
        link_cost = self._links.cost_to(neighbour)
        return UNREACHABLE if link_cost is None else Cost(heard.cost + link_cost)

    def _starve(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """The last parent is gone: take the route back, and ask for a newer number."""
        self._timers.clear(("hold", route.core))
        newest = route.newest
        if newest is not None and (newest.epoch, newest.seq) > route.number:
            return self._adopt(route, now_ms)
        starved_ms = Millis(now_ms + self._parameters.solicit_timeout_ms)
        self._timers.set_sooner(("starved", route.core), starved_ms)
        return self._correct(route) + self._pass_on_solicit(route, route.number, None, now_ms)

    def _forget(self, route: CoreRoute, now_ms: Millis, *, reason: str) -> list[Step]:
        """The core is dead, as far as we can know."""
        was_reachable = route.reachable
        route.heard, route.askers = {}, set()
        self._choose(route)
        gone = frozenset(route.announced.filters.filters)
        route.announced = RemoteList()
        route.forgotten = True
        for kind in ("hold", "list", "settle", "starved", "expired"):
            self._timers.clear((kind, route.core))
        erase_ms = Millis(now_ms + FORGOTTEN_LIFETIMES * self.lifetime_ms)
        self._timers.set(("erase", route.core), erase_ms)
        steps: list[Step] = []
        if gone:
            steps = [Notice("core.lost", "warning", {"core": route.core, "reason": reason})]
        if was_reachable:
            steps += [*self._correct(route), CoreMoved(route.core)]
        return [*steps, AnnouncedFiltersChanged(route.core, gone)]

    # -- sending -------------------------------------------------------------------------

    def _relayed(self, route: CoreRoute, *, whole_change: bool) -> CoreAnn:
        heard = route.newest
        assert heard is not None
        return CoreAnn(
            sender=self._links.self_id,
            core=route.core,
            priority=route.priority,
            epoch=route.number[0],
            seq=route.number[1],
            cost=route.cost,
            in_mesh=route.in_mesh,
            added=heard.added if whole_change else (),
            removed=heard.removed if whole_change else (),
            digest=heard.digest,
            count=heard.count,
        )

    def _flood(self, route: CoreRoute, *, tell_teacher: bool) -> list[Step]:
        """Pass the number on to everyone who can learn from it.

        Args:
            route: The route as it is now.
            tell_teacher: Our cost grew: the neighbour we have it from may have thought of us as a
                parent, and must not any longer.
        """
        message = self._relayed(route, whole_change=not route.sent)
        teacher = min(
            (n for n, h in route.heard.items() if h.number == route.number),
            key=lambda n: (self._cost_via(n, route.heard[n]), n),
        )
        steps: list[Step] = []
        for neighbour, connection in self._links.up.items():
            heard = route.heard.get(neighbour)
            knows = heard is not None and heard.number == route.number
            first = not route.sent.get(neighbour)
            if neighbour == teacher and not tell_teacher:
                continue
            needless = knows and heard is not None and heard.cost <= route.cost + connection.cost
            if needless and not first:
                continue
            if self._may_send(route, neighbour):
                steps += self._links.send(neighbour, message)
        return steps

    def _may_send(self, route: CoreRoute, neighbour: BrokerId) -> bool:
        smaller = self._links.self_id < neighbour
        allowed = SENDS_OF_ONE_NUMBER_MAX if smaller else SENDS_OF_ONE_NUMBER_MAX - 1
        sent = route.sent.get(neighbour, 0)
        if sent >= allowed:
            return False
        route.sent[neighbour] = sent + 1
        return True

    def _correct(self, route: CoreRoute) -> list[Step]:
        """Our cost grew, or the route is gone: everyone who may rely on us must know."""
        if route.newest is None:
            return []
        message = self._relayed(route, whole_change=False)
        return [step for n in self._links.up for step in self._links.send(n, message)]

    def _pass_on_solicit(
        self, route: CoreRoute, asked: Number, asker: BrokerId | None, now_ms: Millis
    ) -> list[Step]:
        """Towards the core where there is a way, else to everyone; the same question rarely."""
        last = route.solicit_passed_on
        gap_ms = self._parameters.solicit_timeout_ms // 2
        if last is not None and last[0] == asked and now_ms - last[1] < gap_ms:
            return []
        route.solicit_passed_on = (asked, now_ms)
        solicit = Solicit(self._links.self_id, route.core, asked[0], asked[1])
        ways: Iterable[BrokerId] = [p for p in route.parents if p != asker][:1]
        if not route.parents:
            ways = [n for n in self._links.up if n != asker]
        return [step for n in ways for step in self._links.send(n, solicit)]

    # -- filter lists --------------------------------------------------------------------

    def _hear_filters(self, route: CoreRoute, ann: CoreAnn, now_ms: Millis) -> list[Step]:
        newest = route.newest
        if newest is None or (ann.epoch, ann.seq) < (newest.epoch, newest.seq):
            return []
        changed = route.announced.offer(ann.added, ann.removed, digest=ann.digest)
        steps = self._ask_for_list(route, now_ms)
        if changed:
            steps.append(AnnouncedFiltersChanged(route.core, changed))
        return steps + self._answer_askers(route)

    def _ask_for_list(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Ask a neighbour closer to the core for the whole list, until the digests agree."""
        gap_ms = self._parameters.list_request_gap_ms
        if route.announced.synced or route.forgotten:
            return []
        self._timers.set(("list", route.core), Millis(now_ms + gap_ms))
        if not route.announced.may_ask(now_ms=now_ms, gap_ms=gap_ms):
            return []
        closest = min(
            route.heard, key=lambda n: (self._cost_via(n, route.heard[n]), n), default=None
        )
        if closest is None:
            return []
        request = FilterListRequest(self._links.self_id, ListKind.CORE, route.core)
        return self._links.send(closest, request)

    def on_list_request(self, request: FilterListRequest) -> list[Step]:
        """Send the whole list, or remember who asked until our own copy is right."""
        if request.core == self._links.self_id:
            return self._send_list(request.sender, request.core, self.own.filters)
        route = self.routes.get(request.core)
        if route is None or route.forgotten:
            return []
        if not route.announced.synced:
            route.askers.add(request.sender)
            return []
        return self._send_list(request.sender, request.core, route.announced.filters)

    def on_list_page(self, page: FilterListPage) -> list[Step]:
        """Collect the answer."""
        route = self.routes.get(page.core)
        if route is None or route.forgotten:
            return []
        changed = route.announced.on_page(page)
        steps = self._answer_askers(route)
        if changed:
            steps.append(AnnouncedFiltersChanged(route.core, changed))
        return steps

    def _answer_askers(self, route: CoreRoute) -> list[Step]:
        if not route.askers or not route.announced.synced:
            return []
        askers, route.askers = sorted(route.askers), set()
        return [
            step
            for asker in askers
            for step in self._send_list(asker, route.core, route.announced.filters)
        ]

    def _send_list(self, to: BrokerId, core: BrokerId, filters: DigestedSet) -> list[Step]:
        return [
            step
            for page in pages_of(
                filters.filters,
                sender=self._links.self_id,
                kind=ListKind.CORE,
                core=core,
                epoch=self._links.epoch,
                digest=filters.digest,
            )
            for step in self._links.send(to, page)
        ]
