"""Our own membership announcements: to each parent, the filters we want in the core's meshes.

One list per core serves all its parents. A parent receives the whole list when it becomes a parent,
then each change, and with every new core announcement a confirmation that the list still holds.

Source: Spohn 2021, 4; docs/protocol.md 7.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from federator.protocol.filters import DigestedSet
from federator.protocol.links.links import Links
from federator.protocol.messages.control import FilterListRequest, ListKind, MeshMembAnn
from federator.protocol.parameters import Parameters
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.core_route import CoreRoute
from federator.protocol.routing.filter_lists import ListSender, as_delta
from federator.protocol.signals import Step
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis


@dataclass(slots=True)
class Membership:
    """What we want from the meshes of one core, and which parents have received it."""

    filters: DigestedSet = field(default_factory=DigestedSet)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    informed: set[BrokerId] = field(default_factory=set)
    sent_at_ms: Millis | None = None
    lost: bool = False  # some of ``removed`` became unreachable, and were not given up


class Memberships:
    """Keeps our memberships and reports them to parents; sets ``in_mesh`` of the routes."""

    def __init__(
        self, links: Links, announcements: Announcements, *, parameters: Parameters
    ) -> None:
        self.by_core: dict[BrokerId, Membership] = {}
        self._links = links
        self._announcements = announcements
        self._parameters = parameters
        self._timers: Timers[BrokerId] = Timers()
        self._sender = ListSender(links, ListKind.MEMBERSHIP)
        self._changed: set[BrokerId] = set()

    def filters_of(self, core: BrokerId) -> AbstractSet[str]:
        """The filters that we want from the meshes of ``core``."""
        membership = self.by_core.get(core)
        return membership.filters.filters if membership is not None else frozenset()

    def set(self, core: BrokerId, filter_: str, *, member: bool, lost: bool = False) -> None:
        """Join or leave the filter's mesh around ``core``. ``flush`` informs the parents.

        ``lost``: the filter is not given up; the brokers that wanted it became unreachable.
        """
        membership = self.by_core.get(core)
        if membership is None:
            if not member:
                return
            membership = self.by_core[core] = Membership()
        if (filter_ in membership.filters) == member:
            return
        came, went = membership.added, membership.removed
        if member:
            membership.filters.apply(added=(filter_,))
        else:
            membership.filters.apply(removed=(filter_,))
            membership.lost = membership.lost or lost
            came, went = went, came
        if filter_ in went:
            went.discard(filter_)
        else:
            came.add(filter_)
        self._changed.add(core)

    def is_told(self, core: BrokerId, filter_: str) -> bool:
        """Whether our parents have received that we want ``filter_`` around ``core``."""
        membership = self.by_core.get(core)
        if membership is None or filter_ not in membership.filters:
            return False
        return filter_ not in membership.added and bool(membership.informed)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self._timers.next_deadline_ms(), self._sender.due_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Send delayed reports."""
        self._changed.update(self._timers.pop_due(now_ms))
        return self._sender.on_deadline(now_ms=now_ms) + self.flush(now_ms=now_ms)

    def flush(self, *, now_ms: Millis) -> list[Step]:
        """Send the parents our changes; at once after a quiet time, else soon."""
        steps: list[Step] = []
        for core in sorted(self._changed):
            membership = self.by_core[core]
            self._mark_in_mesh(core)
            last_ms = membership.sent_at_ms
            gap_ms = self._parameters.core_ann_gap_ms
            if last_ms is not None and now_ms - last_ms < gap_ms:
                self._timers.set_sooner(core, Millis(last_ms + gap_ms))
            else:
                steps += self._send(core, now_ms)
        self._changed = set()
        return steps

    def on_core_refreshed(self, core: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Confirm our membership to every parent: ``core`` sent a new announcement."""
        return self._send(core, now_ms) if core in self.by_core else []

    def on_core_moved(self, core: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Join new parents, leave old ones."""
        membership = self.by_core.get(core)
        if membership is None:
            return []
        route = self._announcements.routes.get(core)
        parents = route.parents if route is not None else ()
        steps = self._leave(core, membership, membership.informed - set(parents))
        if set(parents) - membership.informed:
            steps += self._send(core, now_ms)
        return steps

    def on_link_up(self, neighbour: BrokerId, *, now_ms: Millis) -> list[Step]:
        """Join ``neighbour`` again if it is a parent: its state about us is gone."""
        steps: list[Step] = []
        for core, membership in sorted(self.by_core.items()):
            if neighbour in membership.informed:
                membership.informed.discard(neighbour)
                steps += self._send(core, now_ms)
        return steps

    def on_link_down(self, neighbour: BrokerId) -> None:
        """Note that ``neighbour`` forgets our memberships."""
        for membership in self.by_core.values():
            membership.informed.discard(neighbour)

    def on_list_request(self, request: FilterListRequest, *, now_ms: Millis) -> list[Step]:
        """Send a parent the whole list."""
        membership = self.by_core.get(request.core)
        route = self._announcements.routes.get(request.core)
        if membership is None or route is None or request.sender not in membership.informed:
            return []
        return self._sender.send(
            request.sender, request.core, membership.filters, epoch=route.number[0], now_ms=now_ms
        )

    def _mark_in_mesh(self, core: BrokerId) -> None:
        route = self._announcements.routes.get(core)
        if route is not None:
            route.in_mesh = bool(len(self.by_core[core].filters))

    def _send(self, core: BrokerId, now_ms: Millis) -> list[Step]:
        membership = self.by_core[core]
        route = self._announcements.routes.get(core)
        added, removed = as_delta(membership.added, membership.removed)
        membership.added, membership.removed = set(), set()
        gave_up, membership.lost = not membership.lost, False
        membership.sent_at_ms = now_ms
        self._timers.clear(core)
        if not len(membership.filters):  # we want nothing any longer: leave every parent
            steps = self._leave(core, membership, set(membership.informed), gave_up=gave_up)
            del self.by_core[core]
            return steps
        if route is None or not route.reachable:
            return []
        steps = []
        for parent in route.parents:
            if parent in membership.informed:  # it has the list and needs only the change
                message = self._message(route, membership, added, removed, gave_up=gave_up)
            else:
                whole, _ = as_delta(membership.filters.filters, ())
                message = self._message(route, membership, whole, ())
                membership.informed.add(parent)
            steps += self._links.send(parent, message)
        return steps

    def _message(
        self,
        route: CoreRoute,
        membership: Membership,
        added: tuple[str, ...],
        removed: tuple[str, ...],
        *,
        gave_up: bool = False,
    ) -> MeshMembAnn:
        return MeshMembAnn(
            sender=self._links.self_id,
            core=route.core,
            epoch=route.number[0],
            seq=route.number[1],
            added=added,
            removed=removed,
            digest=membership.filters.digest,
            count=len(membership.filters),
            gave_up=gave_up,
        )

    def _leave(
        self,
        core: BrokerId,
        membership: Membership,
        parents: AbstractSet[BrokerId],
        *,
        gave_up: bool = False,
    ) -> list[Step]:
        route = self._announcements.routes.get(core)
        membership.informed -= parents
        if route is None:
            return []
        nothing = self._message(route, Membership(), (), (), gave_up=gave_up)
        return [step for p in sorted(parents) for step in self._links.send(p, nothing)]
