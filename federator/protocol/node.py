"""One agent's protocol behind one method: events in, effects out.

The machines below never call each other: each returns signals, which the node passes to the others
in a fixed order until none is left.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import assert_never

from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol import signals as s
from federator.protocol.controller.failover import Failover, FailoverParameters
from federator.protocol.leaves.serving import Serving
from federator.protocol.links.configured import follow
from federator.protocol.links.links import COMPLAINT_GAP_MS, Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.messages import control as c
from federator.protocol.messages.destinations import is_destination_record
from federator.protocol.messages.places import PREFIX as PLACE_PREFIX
from federator.protocol.messages.places import AddressVerifier
from federator.protocol.messages.serving import Served, is_served_record
from federator.protocol.messages.session_records import PREFIX
from federator.protocol.parameters import LinkCost, Parameters
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.backlog import FILTERS_CHANGED
from federator.protocol.routing.meshes import Meshes
from federator.protocol.routing.topic_routing import TopicRouting
from federator.protocol.timers import earliest
from federator.protocol.topology.manager import TopologyManager
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import EPOCH_LEAP_MAX, BrokerId, Cost, Epoch, Millis

OWN_ID_RENEWALS_MAX = 3
"""So many epoch renewals within ``OWN_ID_WINDOW_MS`` prove that another agent has our id."""

OWN_ID_WINDOW_MS = 60_000
OWN_ID_PAUSE_MS = 30_000
UNPROVEN_GAP_MS = Millis(3_600_000)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this agent."""

    id: BrokerId  # unique in the federation
    epoch: Epoch  # must be greater than at the last start
    address: str = ""  # where other agents reach our broker; empty when they cannot
    priority: int = 0  # our priority as a core; the smaller is preferred, before the id
    name: str = ""  # the name that operators gave our broker


class Node:
    """The whole protocol of one agent. Without ``topology`` the operator configures its links."""

    def __init__(
        self,
        identity: Identity,
        parameters: Parameters,
        failover: FailoverParameters | None = None,
        topology: TopologyParameters | None = None,
        verifier: AddressVerifier | None = None,
    ) -> None:
        self.parameters = parameters
        self.links = Links(identity.id, identity.epoch, identity.address, parameters)
        self.announcements = Announcements(
            self.links, priority=identity.priority, parameters=parameters
        )
        self.meshes = Meshes(self.links, self.announcements, parameters=parameters)
        self.failover = Failover(
            self.links, self.announcements, failover or FailoverParameters(), identity.name
        )
        self.topology = TopologyManager(self.links, topology, verifier)
        self.topic_routing = TopicRouting(self.links, self.announcements, parameters=parameters)
        self.serving = Serving(identity.id, self.announcements, self.topic_routing)
        self.id_conflict_until_ms: Millis | None = None
        self._renewed_at_ms: deque[Millis] = deque(maxlen=OWN_ID_RENEWALS_MAX)
        self._local_broker_up = False
        self._left = False
        self._greeted: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=UNPROVEN_GAP_MS, keys_max=c.NEIGHBOURS_MAX
        )
        self._complaints: RateLimiter[str] = RateLimiter(
            gap_ms=Millis(COMPLAINT_GAP_MS), keys_max=8
        )

    def handle(self, event: events.Event, *, now_ms: Millis) -> list[e.Effect]:
        """Pass ``event`` to every machine that it concerns; return the effects."""
        if self._left:
            return []
        steps = self._on_event(event, now_ms)
        backlog = self.announcements.backlog
        done: list[e.Effect] = []
        for step in steps:  # grows while signals are followed
            if isinstance(step, s.SignalBase):
                large = isinstance(step, FILTERS_CHANGED) and backlog.postpones(step, now_ms=now_ms)
                if not large:
                    steps.extend(self._on_signal(step, now_ms))
            else:
                done.append(step)
        return done

    def next_deadline_ms(self) -> Millis | None:
        return earliest(
            self.links.next_deadline_ms(),
            self.announcements.next_deadline_ms(),
            self.meshes.next_deadline_ms(),
            self.failover.next_deadline_ms(),
            self.topology.next_deadline_ms(),
            self.id_conflict_until_ms,
        )

    def _on_event(self, event: events.Event, now_ms: Millis) -> list[s.Step]:
        match event:
            case events.Received(message):
                return self._on_message(message, now_ms)
            case events.DeadlineReached(behind):
                return self._on_deadline(behind, now_ms)
            case events.LocalFiltersChanged(added, removed):
                return self._on_local_filters(added, removed, now_ms)
            case events.PriorityChanged(priority):
                return [
                    *self.announcements.own.change_priority(priority, now_ms=now_ms),
                    *self.meshes.on_own_priority(now_ms=now_ms),
                    *self.failover.on_links(now_ms=now_ms),
                ]
            case events.StatusChanged(status):
                return self.failover.on_status(status, now_ms=now_ms)
            case events.CollectsChanged(filters):
                return self.failover.on_collects(filters, now_ms=now_ms)
            case events.RowsChanged(added, removed):
                return self.failover.on_rows(added, removed, now_ms=now_ms)
            case events.DrainRequested(broker, drain):
                order = c.DrainOrder(self.links.self_id, broker, drain, c.SOLICIT_HOPS_MAX)
                return self._on_drain(order)
            case events.NeighbourConnected(conn, address, expected_id, cost, takes_outbox):
                by_delay = self.parameters.link_cost is LinkCost.DELAY
                connection = LinkConnection(
                    conn,
                    address,
                    expected_id,
                    cost or Cost(1),
                    measured=by_delay and cost is None,
                    takes_outbox=takes_outbox,
                )
                return self.links.on_connected(connection, now_ms=now_ms)
            case events.NeighbourDisconnected(conn):
                return [*self.links.on_disconnected(conn), *self.failover.on_links(now_ms=now_ms)]
            case events.LocalBrokerUp():
                self._local_broker_up = True
                if self.id_conflict_until_ms is not None:
                    return []
                return [
                    *self.links.on_local_up(now_ms=now_ms),
                    *self.failover.on_links(now_ms=now_ms),
                    *self.topology.on_local(now_ms=now_ms),
                ]
            case events.LocalBrokerDown():
                self._local_broker_up = False
                return [
                    *self.links.on_local_down(now_ms=now_ms),
                    *self.failover.on_links(now_ms=now_ms),
                    *self.topology.on_local(now_ms=now_ms),
                ]
            case events.LinksConfigured():
                self.parameters = replace(self.parameters, link_cost=event.link_cost)
                self.topology.keep(neighbour.address for neighbour in event.neighbours)
                return [
                    *follow(event, self.links, now_ms=now_ms),
                    *self.failover.on_links(now_ms=now_ms),
                ]
            case events.Measured(broker, round_trip_ms):
                return self.topology.on_measured(broker, round_trip_ms)
            case events.HubChosen(hub, others, since_us, resumes):
                return self.serving.choose(Served(hub, since_us), others, resumes=resumes)
            case events.LeaveRequested():
                self._left = True
                return self.links.farewell()
            case _:
                assert_never(event)

    def _on_message(self, message: c.NodeMessage, now_ms: Millis) -> list[s.Step]:
        if not self.links.listening:
            return []
        match message:
            case c.Hello():
                return [
                    *self.links.on_hello(message, now_ms=now_ms),
                    *self.topology.on_hello(message, now_ms=now_ms),
                ]
            case c.Bye():
                return self.links.on_bye(message)
            case c.CoreAnn():
                return self.announcements.on_announcement(message, now_ms=now_ms)
            case c.MeshMembAnn():
                return self.meshes.on_membership(message, now_ms=now_ms)
            case c.Solicit():
                return self.announcements.on_solicit(message, now_ms=now_ms)
            case c.DrainOrder():
                return self._on_drain(message)
            case c.FilterListRequest():
                if message.kind is c.ListKind.CORE:
                    return self.announcements.lists.on_request(message, now_ms=now_ms)
                return self.meshes.memberships.on_list_request(message, now_ms=now_ms)
            case c.FilterListPage():
                if message.kind is c.ListKind.CORE:
                    return self.announcements.lists.on_page(message, now_ms=now_ms)
                return self.meshes.on_list_page(message)
            case _:
                assert_never(message)

    def _on_signal(self, signal: s.Signal, now_ms: Millis) -> Iterable[s.Step]:
        match signal:
            case s.LinkUp(neighbour):
                return [
                    *self.announcements.on_link_up(neighbour),
                    *self.meshes.memberships.on_link_up(neighbour, now_ms=now_ms),
                    *self.failover.on_links(now_ms=now_ms),
                    *self.topology.on_links(now_ms=now_ms),
                ]
            case s.LinkDown(neighbour):
                return [
                    *self.announcements.on_link_down(neighbour, now_ms=now_ms),
                    *self.meshes.on_link_down(neighbour),
                    *self.failover.on_links(now_ms=now_ms),
                    *self.topology.on_links(now_ms=now_ms),
                ]
            case s.LinkCostChanged(neighbour):
                return self.announcements.on_link_cost(neighbour, now_ms=now_ms)
            case s.CoreMoved(core):
                return [
                    *self.topic_routing.on_core_moved(core),
                    *self.meshes.on_core_moved(core, now_ms=now_ms),
                ]
            case s.CoreRefreshed(core):
                return self.meshes.memberships.on_core_refreshed(core, now_ms=now_ms)
            case s.AnnouncedFiltersChanged(core, filters, gave_up):
                return self._on_announced(core, filters, not gave_up, now_ms)
            case s.ChildFiltersChanged(core, _, filters, gave_up):
                return self.meshes.on_child_filters(core, filters, lost=not gave_up, now_ms=now_ms)
            case s.ParentsChanged(_, filters):
                return self.meshes.on_parents(filters)
            case s.OwnFiltersChanged(added, removed, lost):
                return self.announcements.own.change(added, removed, lost=lost, now_ms=now_ms)
            case s.RouteChanged(filter_, lost):
                return [self._route(filter_, lost=lost)]
            case s.OwnIdHeard():
                return self._on_own_id(signal, now_ms)
            case _:
                assert_never(signal)

    def _on_local_filters(
        self, added: frozenset[str], removed: frozenset[str], now_ms: Millis
    ) -> list[s.Step]:
        asks_for = self.topic_routing.asks_for
        straight_in = frozenset(filter(asks_for, added))
        straight_out = frozenset(filter(asks_for, removed))
        return [
            *self.topic_routing.change_local(straight_in, straight_out),
            *self.meshes.change_local(added - straight_in, removed - straight_out, now_ms=now_ms),
        ]

    def _route(self, filter_: str, *, lost: bool) -> e.SetRoute:
        """The route of ``filter_`` for both routings together."""
        route = self.topic_routing.route_of(filter_, self.meshes.route_of(filter_))
        still = route is not None and route.wanted and not route.collected
        return e.SetRoute(filter_, route, lost and not still)

    def _on_deadline(self, behind: bool, now_ms: Millis) -> list[s.Step]:
        steps: list[s.Step] = []
        resume_ms = self.id_conflict_until_ms
        if resume_ms is not None and now_ms >= resume_ms:
            self.id_conflict_until_ms = None
            self._renewed_at_ms.clear()
            if self._local_broker_up:
                steps += self.links.on_local_up(now_ms=now_ms)
                steps += self.topology.on_local(now_ms=now_ms)
        steps += self.links.on_deadline(behind=behind, now_ms=now_ms)
        part = self.announcements.backlog.next_slice(now_ms=now_ms)
        if part is not None:
            steps.append(part)
        steps += self.announcements.on_deadline(now_ms=now_ms)
        steps += self.meshes.on_deadline(now_ms=now_ms)
        steps += self.failover.on_deadline(now_ms=now_ms)
        return steps + self.topology.on_deadline(now_ms=now_ms)

    def _on_announced(
        self, core: BrokerId, filters: AbstractSet[str], lost: bool, now_ms: Millis
    ) -> list[s.Step]:
        """Pass announced filters to the meshes, and each kind of record to its machine."""
        if not any(f.startswith("$") for f in filters):
            return self.meshes.on_announced(core, filters, lost=lost, now_ms=now_ms)
        controlled = frozenset(f for f in filters if f.startswith(PREFIX))
        destinations = frozenset(f for f in filters if is_destination_record(f))
        places = frozenset(f for f in filters if f.startswith(PLACE_PREFIX))
        served = frozenset(f for f in filters if is_served_record(f))
        meshed = filters - controlled - destinations - places - served
        steps = (
            self.topic_routing.on_announced(core, destinations, lost=lost) if destinations else []
        )
        if meshed:
            steps += self.meshes.on_announced(core, meshed, lost=lost, now_ms=now_ms)
        if controlled:
            steps += self.failover.on_announced(core, controlled, now_ms=now_ms)
            steps += self._on_collects(core)
        if served and self.parameters.serves_leaf:
            steps += self.serving.on_announced(core, now_ms=now_ms)
        if places:
            steps += self._on_places(core, places, now_ms)
        return steps

    def _on_collects(self, core: BrokerId) -> list[s.Step]:
        """Follow the announcement of ``core`` which filters it only collects; out of reach, its
        last one stays.
        """
        route = self.announcements.routes.get(core)
        collects = self.failover.presence.collected_by(core)
        if collects is None and (route is None or route.forgotten):
            return []
        return self.topic_routing.on_collects(core, collects or frozenset())

    def _on_places(self, core: BrokerId, places: frozenset[str], now_ms: Millis) -> list[s.Step]:
        route = self.announcements.routes.get(core)
        lost = route is None or route.forgotten
        held = route.announced.filters.filters if route is not None else frozenset[str]()
        announced = frozenset(place for place in places if place in held)
        return self.topology.on_announced(
            core, announced, places - announced, lost=lost, now_ms=now_ms
        )

    def _on_drain(self, order: c.DrainOrder) -> list[s.Step]:
        """Obey the order, or forward it towards the broker that it names."""
        if order.broker == self.links.self_id:
            return [e.SetDraining(order.drain)]
        route = self.announcements.routes.get(order.broker)
        if route is None or not route.parents or not order.hops_left:
            return [e.Notice("drain.undelivered", "warning", {"broker": order.broker})]
        hops_left = order.hops_left - 1
        passed_on = c.DrainOrder(self.links.self_id, order.broker, order.drain, hops_left)
        return self.links.send(route.parents[0], passed_on)

    def _on_own_id(self, heard: s.OwnIdHeard, now_ms: Millis) -> list[s.Step]:
        """Renew our epoch: our clock was set back, or another agent has our id.

        A newer epoch fixes the first. If that does not help for long, it is the second. Without
        proof by our own signed message, only a neighbour's hello is accepted, and only once an
        hour.
        """
        epoch = heard.epoch
        if epoch <= self.links.epoch:
            return []
        if not heard.proven and not (heard.greeted and self._greeted.allow(heard.told_by, now_ms)):
            if not self._complaints.allow("epoch.unproven", now_ms):
                return []
            unproven: dict[str, int | str] = {"neighbour": heard.told_by, "heard": epoch}
            return [e.Notice("epoch.unproven", "warning", unproven)]
        if epoch - self.links.epoch > EPOCH_LEAP_MAX:
            if not self._complaints.allow("epoch.absurd", now_ms):
                return []
            details: dict[str, int | str] = {"id": self.links.self_id, "heard": epoch}
            return [e.Notice("epoch.absurd", "error", details)]
        renewed = self._renewed_at_ms
        self_id = self.links.self_id
        lately = now_ms - renewed[0] < OWN_ID_WINDOW_MS if renewed else False
        if heard.proven and len(renewed) == OWN_ID_RENEWALS_MAX and lately:
            self.id_conflict_until_ms = Millis(now_ms + OWN_ID_PAUSE_MS)
            notice = e.Notice("id.conflict", "error", {"id": self_id, "other_epoch": epoch})
            return [notice, *self.links.on_local_down(now_ms=now_ms)]
        if heard.proven:
            renewed.append(now_ms)
        newer = Epoch(epoch + 1)
        steps = self.links.renew(newer, now_ms=now_ms)
        if self.announcements.own.announces:
            steps += self.announcements.own.announce_soon(now_ms=now_ms)
        notice = e.Notice("epoch.renewed", "warning", {"id": self_id, "epoch": newer})
        return [e.RenewEpoch(newer), notice, *steps]
