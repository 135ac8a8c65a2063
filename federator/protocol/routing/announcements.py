"""Core announcements: one flood per core, which leaves a shortest path behind it.

Every core repeats a numbered announcement; every broker forwards each number once, with its own
cost. The neighbours that sent the cheapest copies are the parents. All meshes of one core share
this state, so the cost of announcing does not depend on the number of filters.

Loops are avoided as in Babel: a neighbour may become a parent only if its cost to the core is less
than any that we announced for the same number (the feasibility condition). A broker that loses its
last feasible parent retracts its route and solicits a newer number, so repair takes a round trip
and waits for no interval.

Source: Spohn 2021, 3 to 5; RFC 8966, 2.4; docs/protocol.md 6.
"""

from federator.protocol.bounded_cache import Recent
from federator.protocol.effects import Notice
from federator.protocol.links.links import Links
from federator.protocol.messages.control import SOLICIT_HOPS_MAX, CoreAnn, Solicit
from federator.protocol.parameters import Parameters
from federator.protocol.routing.backlog import Backlog
from federator.protocol.routing.core_lists import CoreLists
from federator.protocol.routing.core_route import CoreRoute, HeardCost, Number
from federator.protocol.routing.filter_lists import RemoteList, as_greeting
from federator.protocol.routing.own_core import OwnCore
from federator.protocol.signals import (
    AnnouncedFiltersChanged,
    CoreMoved,
    CoreRefreshed,
    OwnIdHeard,
    Step,
)
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import EPOCH_LEAP_MAX, UNREACHABLE, BrokerId, Millis

FORGOTTEN_LIFETIMES = 4
"""Core lifetimes for which the route of a forgotten core is kept; its number is kept for longer."""

SENDS_OF_ONE_NUMBER_MAX = 2
"""Copies of one announcement that the end of a link with the smaller id may send; the other end may
send one less. So no announcement costs more than 3 publications per link, whatever the delays."""


class Announcements:
    """Keeps the routes to all cores, and announces our own filters."""

    def __init__(self, links: Links, *, priority: int, parameters: Parameters) -> None:
        self.own = OwnCore(links, priority=priority, parameters=parameters)
        self.routes: dict[BrokerId, CoreRoute] = {}  # our routes to the other cores, by core
        self.backlog = Backlog()  # large changes of the filters of all lists
        self.lists = CoreLists(
            links, self.own, self.routes, self.backlog, gap_ms=parameters.list_request_gap_ms
        )
        self._links = links
        self._parameters = parameters
        # The last announcement of each erased core, without its filters.
        self._former: Recent[BrokerId, CoreAnn] = Recent(parameters.cores_max)
        self._timers: Timers[tuple[BrokerId, str]] = Timers()
        # The time of silence after which a core is forgotten.
        lifetime_ms = parameters.core_lifetime_intervals * parameters.core_ann_interval_ms
        self.lifetime_ms = Millis(lifetime_ms)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(
            self.own.due_ms,
            self.backlog.due_ms,
            self.lists.next_deadline_ms(),
            self._timers.next_deadline_ms(),
        )

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Refresh, improve, give up or expire, whichever is due."""
        steps = self.own.on_deadline(now_ms=now_ms) + self.lists.on_deadline(now_ms=now_ms)
        for core, kind in self._timers.pop_due(now_ms):
            route = self.routes[core]
            match kind:
                case "hold":  # the cheaper copy has not come in time
                    steps += self._adopt(route, now_ms)
                case "settle":  # old parents had time to forward the newer number
                    route.unconfirmed = ()
                    steps += self._reroute(route, now_ms)
                case "erase":
                    word = self.routes.pop(core).word
                    if word is not None:
                        self._former.put(core, word)
                case _:
                    steps += self._forget(route, now_ms, reason=kind)
        return steps

    # -- messages from neighbours ---------------------------------------------------------

    def on_announcement(self, ann: CoreAnn, *, now_ms: Millis) -> list[Step]:
        """Adopt, improve, retract or ignore; forward what is new to us."""
        if self._links.cost_to(ann.sender) is None:
            return []
        if ann.core == self._links.self_id:
            return [OwnIdHeard(ann.epoch, ann.sender)] if ann.epoch > self._links.epoch else []
        route = self.routes.get(ann.core)
        if ann.cost >= UNREACHABLE:
            return self._on_retraction(route, ann, now_ms)
        if route is None:
            if len(self.routes) >= self._parameters.cores_max:
                return [Notice("core.refused", "error", {"core": ann.core})]
            route = self._open(ann, now_ms)

        number = (ann.epoch, ann.seq)
        if number < route.number:  # an old copy
            if route.forgotten and ann.epoch < route.number[0]:
                # The core came back with its clock set back and without its state: the solicit
                # shows its former announcement, and the core renews its epoch.
                return self._solicit(route, self._question(route, route.word), now_ms)
            return []
        before = route.offers.get(ann.sender)
        route.offers[ann.sender] = HeardCost(number, ann.cost, ann.in_mesh, ann.path)
        if number > route.newest_number:
            route.newest = ann
        if route.forgotten and number == route.number:
            return self._revive(route, ann, now_ms)
        steps = self.lists.hear(route, ann, now_ms=now_ms)
        if number > route.number:
            steps += self._consider_newer(route, now_ms)
        else:
            steps += self._reroute(route, now_ms)
        if before is not None and before.in_mesh != ann.in_mesh and ann.sender in route.parents:
            # We prefer to relay to a parent in the mesh, so the best parent may be another one now.
            steps.append(CoreMoved(route.core))
        return steps

    def _open(self, ann: CoreAnn, now_ms: Millis) -> CoreRoute:
        """Create a route for a core without one; it continues where an erased route ended."""
        route = self.routes[ann.core] = CoreRoute(ann.core, ann.priority)
        former = self._former.pop(ann.core, None)
        # A core does not believe an announcement that is further ahead than a solicit can move an
        # epoch, and could never return.
        if former is not None and former.epoch - ann.epoch <= EPOCH_LEAP_MAX:
            route.number = (former.epoch, former.seq)
            route.adopted = former
            route.forgotten = True
            self._erase_later(route, now_ms)
        return route

    def _on_retraction(self, route: CoreRoute | None, ann: CoreAnn, now_ms: Millis) -> list[Step]:
        offer = route.offers.get(ann.sender) if route is not None else None
        if route is None or offer is None or (ann.epoch, ann.seq) < offer.number:
            return []
        del route.offers[ann.sender]
        return self._reroute(route, now_ms)

    def on_link_up(self, neighbour: BrokerId) -> list[Step]:
        """Send a new neighbour every route, so that it need not wait for the next number."""
        steps: list[Step] = []
        if self.own.announces:
            steps += self._links.send(neighbour, self.own.greeting())
        for _, route in sorted(self.routes.items()) if self._parameters.transit else ():
            if route.reachable:
                whole = as_greeting(route.announced.filters)
                steps += self._links.send(neighbour, self._relayed(route, added=whole))
        return steps

    def on_link_down(self, neighbour: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Choose parents again for every route on which ``neighbour`` offered a path."""
        steps: list[Step] = []
        for _, route in sorted(self.routes.items()):
            route.askers.discard(neighbour)
            route.sent.pop(neighbour, None)
            route.sent_costs.pop(neighbour, None)
            if route.offers.pop(neighbour, None) is not None:
                steps += self._reroute(route, now_ms)
        return steps

    def on_link_cost(self, neighbour: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Choose parents again wherever ``neighbour`` offers a path: its link's cost changed."""
        routes = [route for _, route in sorted(self.routes.items()) if neighbour in route.offers]
        return [step for route in routes for step in self._reroute(route, now_ms)]

    def on_solicit(self, solicit: Solicit, *, now_ms: Millis) -> list[Step]:
        """Answer if we know a newer number, else forward the solicit towards the core."""
        asked: Number = (solicit.epoch, solicit.seq)
        if self._links.cost_to(solicit.sender) is None:
            return []
        if solicit.core == self._links.self_id:
            if asked[0] > self._links.epoch:
                shown = solicit.shown
                ours = shown is not None and shown.core == solicit.core
                proven = shown is not None and ours and shown.epoch >= asked[0]
                return [OwnIdHeard(asked[0], solicit.sender, proven=proven)]
            answered = asked < self.own.number or not self.own.announces
            return [] if answered else self.own.announce_soon(now_ms=now_ms)
        route = self.routes.get(solicit.core)
        if route is None:
            return []
        steps: list[Step] = []
        if route.reachable and route.number <= asked < route.newest_number:
            steps = self._adopt(route, now_ms)  # others need it sooner than we do
        if route.reachable and route.number > asked:
            answer = self._relayed(route)
            return steps + self._links.send(solicit.sender, answer)
        if solicit.hops_left == 0:
            return steps
        return steps + self._solicit(route, solicit, now_ms)

    # -- routes --------------------------------------------------------------------------

    def _consider_newer(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Adopt a newer number, unless a cheaper copy of it is likely to follow.

        The copy of a nearest parent that is up is only late, perhaps because the queue of its link
        is long: we wait for it as long as for a parent's own copy, and for others only a moment.
        """
        newer = [n for n, offer in route.offers.items() if offer.number > route.number]
        costs = (route.cost_via(n, self._links.cost_to) for n in newer)
        if min(costs, default=UNREACHABLE) <= route.cost or not route.reachable:
            return self._adopt(route, now_ms)
        parents = [p for p in route.parents[: route.ties] if p in route.offers]
        late = any(route.offers[p].number <= route.number for p in parents)
        p = self._parameters
        hold_ms = p.parent_settle_ms if late else p.improvement_hold_ms
        self._timers.set_sooner((route.core, "hold"), Millis(now_ms + hold_ms))
        return []

    def _adopt(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Adopt the newest number, and forward it."""
        if route.newest_number <= route.number:
            return []
        was = (route.cost, route.parents, route.ties)
        rank = route.rank
        route.adopt_newest()
        for kind in ("hold", "starved", "erase"):
            self._timers.clear((route.core, kind))
        self._timers.set((route.core, "expired"), Millis(now_ms + self.lifetime_ms))
        self._choose(route)
        if not route.reachable:  # the neighbour that sent the number is already gone
            return [CoreMoved(route.core), *self._starve(route, now_ms)]
        if route.cost == was[0]:
            # A refresh changes no route: old parents stay while their copy of the number travels.
            route.unconfirmed = tuple(p for p in was[1] if p in route.offers)
            self._choose(route)
            settle_ms = Millis(now_ms + self._parameters.parent_settle_ms)
            self._timers.set((route.core, "settle"), settle_ms)
        steps = self._flood(route, tell_teacher=was[0] < route.cost)
        if was[1:] != (route.parents, route.ties):
            steps.append(CoreMoved(route.core))
        if rank != route.rank:  # the operator changed the core's priority: elect again
            filters = frozenset(route.announced.filters.filters)
            steps.append(AnnouncedFiltersChanged(route.core, filters))
        return [*steps, CoreRefreshed(route.core)]

    def _revive(self, route: CoreRoute, ann: CoreAnn, now_ms: Millis) -> list[Step]:
        """Use the number under which we gave up the core, which a neighbour still has.

        If a parent is feasible, there is a route again; if not, only a newer number helps.
        """
        self._choose(route)
        if not route.reachable:
            return self._solicit(route, self._question(route), now_ms)
        route.forgotten = False
        self._timers.clear((route.core, "erase"))
        self._timers.set((route.core, "expired"), Millis(now_ms + self.lifetime_ms))
        steps = self.lists.hear(route, ann, now_ms=now_ms) + self._correct(route)
        return [*steps, CoreMoved(route.core), CoreRefreshed(route.core)]

    def _reroute(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Choose parents again for the number we have, after a neighbour's announcement changed."""
        if route.forgotten:
            return []
        was = (route.cost, route.parents, route.ties)
        self._choose(route)
        if was == (route.cost, route.parents, route.ties):
            return []
        if not route.reachable:
            return [CoreMoved(route.core), *self._starve(route, now_ms)]
        self._timers.clear((route.core, "starved"))
        steps: list[Step] = []
        if was[0] < route.cost or was[0] == UNREACHABLE:
            steps = self._correct(route)
        elif route.cost < was[0]:
            steps = self._flood(route, tell_teacher=False)
        if was[1:] != (route.parents, route.ties):
            steps.append(CoreMoved(route.core))
        return steps

    def _choose(self, route: CoreRoute) -> None:
        route.choose(
            self._links.cost_to,
            redundancy=self._parameters.redundancy,
            slack_percent=self._parameters.parent_slack_percent,
        )

    def _starve(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Retract the route and solicit a newer number: the last parent is gone."""
        self._timers.clear((route.core, "hold"))
        if route.newest_number > route.number:
            return self._adopt(route, now_ms)
        starved_ms = Millis(now_ms + self._parameters.solicit_timeout_ms)
        self._timers.set_sooner((route.core, "starved"), starved_ms)
        return self._correct(route) + self._solicit(route, self._question(route), now_ms)

    def _forget(self, route: CoreRoute, now_ms: Millis, *, reason: str) -> list[Step]:
        """Forget a core that seems to be dead; its number is kept."""
        was_reachable = route.reachable
        route.offers, route.askers = {}, set()
        self._choose(route)
        gone = route.announced.filters.filters
        route.announced = RemoteList()
        route.forgotten = True
        for kind in ("hold", "settle", "starved", "expired"):
            self._timers.clear((route.core, kind))
        self._erase_later(route, now_ms)
        steps: list[Step] = []
        if gone:
            steps = [Notice("core.lost", "warning", {"core": route.core, "reason": reason})]
        if was_reachable and gone:
            steps += self._correct(route)
        if was_reachable:
            steps.append(CoreMoved(route.core))
        return [*steps, AnnouncedFiltersChanged(route.core, gone)]

    def _erase_later(self, route: CoreRoute, now_ms: Millis) -> None:
        erase_ms = Millis(now_ms + FORGOTTEN_LIFETIMES * self.lifetime_ms)
        self._timers.set((route.core, "erase"), erase_ms)

    # -- sending -------------------------------------------------------------------------

    def _relayed(
        self, route: CoreRoute, *, added: tuple[str, ...] = (), removed: tuple[str, ...] = ()
    ) -> CoreAnn:
        source = route.adopted or route.newest
        assert source is not None, "a route begins with an announcement"
        return CoreAnn(
            sender=self._links.self_id,
            core=route.core,
            priority=route.priority,
            epoch=route.number[0],
            seq=route.number[1],
            cost=route.cost,
            in_mesh=route.in_mesh,
            added=added,
            removed=removed,
            digest=source.digest,
            count=source.count,
            gave_up=source.gave_up,
            path=route.path(self._links.self_id),
            proof=source.proof,
        )

    def _flood(self, route: CoreRoute, *, tell_teacher: bool) -> list[Step]:
        """Forward the number to every neighbour that can learn from it.

        ``tell_teacher``: our cost grew, so the neighbour that sent us the number may have us as a
        parent, and must drop us.
        """
        if not self._parameters.transit:
            return []
        newest = route.newest
        if newest is None or route.sent:
            message = self._relayed(route)
        else:
            message = self._relayed(route, added=newest.added, removed=newest.removed)
        teacher = route.nearest(self._links.cost_to, number=route.number)
        steps: list[Step] = []
        for neighbour, connection in self._links.up.items():
            if neighbour == teacher and not tell_teacher:
                continue  # this neighbour sent us the number
            if route.teaches(neighbour, connection.cost) and self._may_send(route, neighbour):
                route.sent_costs[neighbour] = route.cost
                steps += self._links.send(neighbour, message)
        return steps

    def _may_send(self, route: CoreRoute, neighbour: BrokerId) -> bool:
        """Whether one more copy of this number may go to ``neighbour``; if so, it is counted."""
        smaller = self._links.self_id < neighbour
        allowed = SENDS_OF_ONE_NUMBER_MAX if smaller else SENDS_OF_ONE_NUMBER_MAX - 1
        sent = route.sent.get(neighbour, 0)
        if sent >= allowed:
            return False
        route.sent[neighbour] = sent + 1
        return True

    def _correct(self, route: CoreRoute) -> list[Step]:
        """Send all neighbours our grown cost, beyond the bound of copies: they may rely on us."""
        if route.newest is None or not self._parameters.transit:
            return []
        message = self._relayed(route)
        route.sent_costs = dict.fromkeys(self._links.up, route.cost)
        return [step for n in self._links.up for step in self._links.send(n, message)]

    def _question(self, route: CoreRoute, shown: CoreAnn | None = None) -> Solicit:
        """Our own solicit, with more hops left than any forwarded one."""
        epoch, seq = route.number
        return Solicit(self._links.self_id, route.core, epoch, seq, SOLICIT_HOPS_MAX, shown)

    def _solicit(self, route: CoreRoute, question: Solicit, now_ms: Millis) -> list[Step]:
        """Send ``question`` towards the core, or to all neighbours without a path; rate-limited."""
        asked: Number = (question.epoch, question.seq)
        asker = question.sender
        last = route.solicit_passed_on
        shows = question.shown is not None
        gap_ms = self._parameters.solicit_timeout_ms // 2
        if last is not None and (shows, asked) <= last[0] and now_ms - last[1] < gap_ms:
            return []
        route.solicit_passed_on = ((shows, asked), now_ms)
        hops_left = question.hops_left - 1
        message = Solicit(self._links.self_id, route.core, *asked, hops_left, question.shown)
        ways = [p for p in route.parents if p != asker][:1]
        if not route.parents:
            ways = [n for n in self._links.up if n != asker]
        return [step for n in ways for step in self._links.send(n, message)]
