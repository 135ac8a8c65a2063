"""Keeps our copies of the cores' filter lists in sync: request, answer, wait.

A broker that receives a request for a list while its own copy is out of sync answers when the copy
is right, so that a new list travels outwards from the core in one wave.

Source: docs/protocol.md 5.
"""

from collections.abc import Mapping

from federator.protocol.filters import DigestedSet
from federator.protocol.links.links import Links
from federator.protocol.messages.control import CoreAnn, FilterListPage, FilterListRequest, ListKind
from federator.protocol.routing.backlog import Backlog
from federator.protocol.routing.core_route import CoreRoute
from federator.protocol.routing.filter_lists import ListSender
from federator.protocol.routing.own_core import OwnCore
from federator.protocol.signals import AnnouncedFiltersChanged, Step
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis


class CoreLists:
    """Keeps the filters announced by all cores in sync: ``announced`` and ``askers`` of routes.

    Requests for one list are ``gap_ms`` apart.
    """

    def __init__(
        self,
        links: Links,
        own: OwnCore,
        routes: Mapping[BrokerId, CoreRoute],
        backlog: Backlog,
        *,
        gap_ms: Millis,
    ) -> None:
        self._links = links
        self._own = own
        self._routes = routes
        self._backlog = backlog
        self._gap_ms = gap_ms
        self._sender = ListSender(links, ListKind.CORE)
        self._timers: Timers[BrokerId] = Timers()

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self._timers.next_deadline_ms(), self._sender.due_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Repeat requests for lists that have not come; send the next pages of our own answers."""
        steps = self._sender.on_deadline(now_ms=now_ms)
        due = [self._routes[c] for c in self._timers.pop_due(now_ms) if c in self._routes]
        return steps + [step for route in due for step in self._request_list(route, now_ms)]

    def hear(self, route: CoreRoute, ann: CoreAnn, *, now_ms: Millis) -> list[Step]:
        """Apply the change of filters in an announcement."""
        if (ann.epoch, ann.seq) < route.newest_number:
            return []
        changed = route.announced.offer(
            ann.added, ann.removed, digest=ann.digest, busy=self._is_busy(route)
        )
        steps = self._request_list(route, now_ms) + self._answer(route, now_ms)
        if changed:
            steps.append(AnnouncedFiltersChanged(route.core, changed, ann.gave_up))
        return steps

    def on_request(self, request: FilterListRequest, *, now_ms: Millis) -> list[Step]:
        """Send the whole list, or remember the requester until our own copy is right."""
        if self._links.cost_to(request.sender) is None:
            return []
        if request.core == self._links.self_id:
            return self._send(request.sender, request.core, self._own.filters, now_ms)
        route = self._routes.get(request.core)
        if route is None or route.forgotten:
            return []
        if not route.announced.synced:
            route.askers.add(request.sender)
            return []
        return self._send(request.sender, request.core, route.announced.filters, now_ms)

    def on_page(self, page: FilterListPage, *, now_ms: Millis) -> list[Step]:
        """Collect a page of a list that we requested."""
        route = self._routes.get(page.core)
        if route is None or route.forgotten or self._links.cost_to(page.sender) is None:
            return []
        changed = route.announced.on_page(page, busy=self._is_busy(route))
        steps = self._answer(route, now_ms)
        if changed:
            steps.append(AnnouncedFiltersChanged(route.core, changed))
        return steps

    def _request_list(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        """Request the whole list from a neighbour closer to the core, until the digests agree."""
        if route.announced.synced or route.forgotten:
            return []
        self._timers.set(route.core, Millis(now_ms + self._gap_ms))
        # Only neighbours that announced the newest number: among them costs fall towards the core,
        # so no two brokers wait for each other's list.
        nearest = route.nearest(self._links.cost_to, number=route.newest_number)
        if nearest is None or not route.announced.may_ask(
            busy=self._is_busy(route), now_ms=now_ms, gap_ms=self._gap_ms
        ):
            return []
        request = FilterListRequest(self._links.self_id, ListKind.CORE, route.core)
        return self._links.send(nearest, request)

    def _is_busy(self, route: CoreRoute) -> bool:
        return self._backlog.is_busy(AnnouncedFiltersChanged(route.core))

    def _answer(self, route: CoreRoute, now_ms: Millis) -> list[Step]:
        if not route.announced.synced:
            return []
        askers, route.askers = sorted(route.askers), set()
        filters = route.announced.filters
        return [step for asker in askers for step in self._send(asker, route.core, filters, now_ms)]

    def _send(
        self, to: BrokerId, core: BrokerId, filters: DigestedSet, now_ms: Millis
    ) -> list[Step]:
        return self._sender.send(to, core, filters, epoch=self._links.epoch, now_ms=now_ms)
