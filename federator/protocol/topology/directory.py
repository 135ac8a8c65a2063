"""All brokers that arrange their links among themselves: present or missed, and their addresses.

A broker that is missed for a moment keeps its seat on the rings, so a restart changes no links.
Later the others close the gap, but keep dialling the missed broker for longer: after a split each
side has neighbours of brokers on the other side, and so the federation heals by itself.

Source: docs/protocol.md 16.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from federator.protocol.messages.places import AddressVerifier, Place
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.topology.rings import Rings
from federator.protocol.types import BrokerId, Epoch, Millis


@dataclass(slots=True)
class Member:
    """One broker of the federation."""

    address: str  # the last known address
    announced: set[Place] = field(default_factory=set)  # and accepted; two during a change
    epoch: Epoch = Epoch(0)  # the newest accepted one of its agent
    missed_at_ms: Millis | None = None  # since when it has not been announced

    @property
    def place(self) -> Place | None:
        """The newest place of the broker, ``None`` while it is missed."""
        return max(self.announced, key=lambda place: (place.epoch, place.links), default=None)


class Directory:
    """All brokers that arrange their links, ourselves included."""

    def __init__(
        self, self_id: BrokerId, verifier: AddressVerifier, parameters: TopologyParameters
    ) -> None:
        # Rings of the brokers that are present, or missed for a moment.
        self.seated = Rings(parameters.rings)
        self.expected = Rings(parameters.rings)  # rings of all brokers that are not forgotten
        self.seated.add(self_id)
        self.expected.add(self_id)
        self.changed_at_ms = Millis(0)  # when a broker last came, went or moved
        self._self_id = self_id
        self._verifier = verifier
        self._parameters = parameters
        self._members: dict[BrokerId, Member] = {}
        self._present: list[tuple[BrokerId, Place]] | None = None

    def __iter__(self) -> Iterator[tuple[BrokerId, Member]]:
        return iter(sorted(self._members.items(), key=itemgetter(0)))

    def place_of(self, id: BrokerId) -> Place | None:
        """The place of ``id``; ``None`` when it is not present."""
        member = self._members.get(id)
        return member.place if member is not None else None

    def address_of(self, id: BrokerId) -> str:
        """The present or last address of ``id``; empty when unknown."""
        member = self._members.get(id)
        return member.address if member is not None else ""

    def at(self, address: str) -> BrokerId | None:
        return next((id for id, member in self if member.address == address), None)

    def present(self) -> list[tuple[BrokerId, Place]]:
        """All other brokers that are present, ascending. Do not modify the list."""
        if self._present is None:
            places = ((id, member.place) for id, member in self)
            self._present = [(id, place) for id, place in places if place is not None]
        return self._present

    def addresses(self) -> tuple[tuple[BrokerId, str], ...]:
        """The brokers and addresses to dial after a restart."""
        return tuple((id, member.address) for id, member in self)

    def recall(self, addresses: Iterable[tuple[BrokerId, str]], *, now_ms: Millis) -> None:
        """Expect brokers that we knew before our restart."""
        for id, address in addresses:
            if self._has_room(id):
                self._members[id] = Member(address, missed_at_ms=now_ms)
                self.expected.add(id)

    def come(self, id: BrokerId, place: Place, *, now_ms: Millis) -> str:
        """Store ``place``, which ``id`` announces; return an objection to it, or ""."""
        if not self._has_room(id):
            return ""
        if objection := self._verifier.objection(id, place):
            return objection
        member = self._members.setdefault(id, Member(place.address))
        if place.epoch < member.epoch:
            return ""  # announced by an earlier start of its agent, and late
        member.epoch = place.epoch
        member.announced.add(place)
        self._present = None
        member.missed_at_ms = None
        if id not in self.seated or member.address != place.address:
            self.changed_at_ms = now_ms
        member.address = place.address
        self.seated.add(id)
        self.expected.add(id)
        return ""

    def go(self, id: BrokerId, place: Place, *, lost: bool, now_ms: Millis) -> None:
        """Remove ``place``, which is no longer announced; ``lost``: ``id`` is unreachable."""
        member = self._members.get(id)
        if member is None or place not in member.announced:
            return
        member.announced.discard(place)
        self._present = None
        if not member.announced:
            member.missed_at_ms = now_ms
            if not lost:  # the broker withdrew it: it no longer arranges its links
                self._forget(id, now_ms)

    def expire_missed(self, *, now_ms: Millis) -> None:
        """Unseat brokers that are missed for long; forget those missed for very long."""
        for id, member in list(self._members.items()):
            if member.missed_at_ms is None:
                continue
            missed_ms = now_ms - member.missed_at_ms
            if missed_ms >= self._parameters.patience_ms and id in self.seated:
                self.seated.discard(id)
                self.changed_at_ms = now_ms
            if missed_ms >= self._parameters.forget_ms:
                self._forget(id, now_ms)

    def start_over(self, *, now_ms: Millis) -> None:
        """Restart the time for which each missed broker is missed: we were offline."""
        for _, member in self:
            if member.missed_at_ms is not None:
                member.missed_at_ms = now_ms

    def graph(self, own: Iterable[BrokerId]) -> dict[BrokerId, set[BrokerId]]:
        """The links that both ends announce; ``own``: the brokers with which we have links."""
        announced = {id: frozenset(place.links) for id, place in self.present()}
        announced[self._self_id] = frozenset(own)
        return {
            id: {other for other in others if other != id and id in announced.get(other, ())}
            for id, others in announced.items()
        }

    def _forget(self, id: BrokerId, now_ms: Millis) -> None:
        del self._members[id]
        self.seated.discard(id)
        self.expected.discard(id)
        self.changed_at_ms = now_ms

    def _has_room(self, id: BrokerId) -> bool:
        if id == self._self_id:
            return False
        return id in self._members or len(self._members) < self._parameters.members_max
