"""All brokers that arrange their links among themselves: who is there, who is missed, and where.

Who is missed for a moment keeps his seat on the rings, so that a restart moves nobody. Then the
others close the gap, but go on knocking at the door of who left it, for longer: a federation that
was split has on both sides such neighbours of the other, and so heals by itself.

Source: docs/protocol.md section 16.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from federator.protocol.topology.graph import Pair, near_of
from federator.protocol.topology.places import Place, Warrant
from federator.protocol.topology.rings import Rings
from federator.protocol.types import BrokerId, Epoch, Millis


@dataclass(slots=True)
class Member:
    """One broker of the federation.

    Attributes:
        address: Where it was last.
        words: Its places that are announced and believed; several while one replaces another.
        epoch: The newest of its agent that we believed.
        missed_at_ms: Since when nobody announces it; ``None`` while it is there.
    """

    address: str
    words: set[Place] = field(default_factory=set)
    epoch: Epoch = Epoch(0)
    missed_at_ms: Millis | None = None

    @property
    def place(self) -> Place | None:
        """Its newest word, ``None`` while it is missed."""
        return max(self.words, key=lambda place: (place.epoch, place.links), default=None)


class Directory:
    """Everybody, ourselves included.

    Args:
        self_id: Our broker.
        rings: How many rings there are.
        warrant: Judges addresses.
        patience_ms: How long who is missed keeps his seat.
        forget_ms: How long he is remembered.
        members_max: Brokers held; more are ignored.

    Attributes:
        seated: Rings of those who are there, or missed for a moment.
        expected: Rings of all who are not forgotten.
        changed_at_ms: When somebody came, went or moved last.
    """

    def __init__(
        self,
        self_id: BrokerId,
        *,
        rings: int,
        warrant: Warrant,
        patience_ms: Millis,
        forget_ms: Millis,
        members_max: int,
    ) -> None:
        self.seated = Rings(rings)
        self.expected = Rings(rings)
        self.seated.add(self_id)
        self.expected.add(self_id)
        self.changed_at_ms = Millis(0)
        self._self_id = self_id
        self._warrant = warrant
        self._patience_ms = patience_ms
        self._forget_ms = forget_ms
        self._members_max = members_max
        self._members: dict[BrokerId, Member] = {}
        self._present: list[tuple[BrokerId, Place]] | None = None

    def __iter__(self) -> Iterator[tuple[BrokerId, Member]]:
        return iter(sorted(self._members.items(), key=itemgetter(0)))

    def place_of(self, id: BrokerId) -> Place | None:
        """Where ``id`` is; ``None`` when it is not there."""
        member = self._members.get(id)
        return member.place if member is not None else None

    def address_of(self, id: BrokerId) -> str:
        """Where ``id`` is or was; empty when that is not known."""
        member = self._members.get(id)
        return member.address if member is not None else ""

    def is_expected(self, id: BrokerId) -> bool:
        """We know of it, there or not."""
        return id in self._members

    def at(self, address: str) -> BrokerId | None:
        """Who is or was at ``address``."""
        found = (id for id, member in self if member.address == address)
        return next(found, None)

    def present(self) -> list[tuple[BrokerId, Place]]:
        """All others that are there, ascending. Not to be changed."""
        if self._present is None:
            known = ((id, member.place) for id, member in self)
            self._present = [(id, place) for id, place in known if place is not None]
        return self._present

    def addresses(self) -> tuple[tuple[BrokerId, str], ...]:
        """Whom we would look for after a restart."""
        return tuple((id, member.address) for id, member in self)

    def recall(self, known: Iterable[tuple[BrokerId, str]], *, now_ms: Millis) -> None:
        """Expect brokers that we knew before we restarted."""
        for id, address in known:
            if self._has_room(id):
                self._members[id] = Member(address, missed_at_ms=now_ms)
                self.expected.add(id)

    def come(self, id: BrokerId, place: Place, *, now_ms: Millis) -> str:
        """``id`` announces ``place``; why that is not believed, or nothing."""
        if not self._has_room(id):
            return ""
        objection = self._warrant.objection(id, place)
        if objection:
            return objection
        member = self._members.setdefault(id, Member(place.address))
        if place.epoch < member.epoch:
            return ""  # a word of an earlier start, that is overtaken
        member.epoch = place.epoch
        member.words.add(place)
        self._present = None
        member.missed_at_ms = None
        if id not in self.seated or member.address != place.address:
            self.changed_at_ms = now_ms
        member.address = place.address
        self.seated.add(id)
        self.expected.add(id)
        return ""

    def go(self, id: BrokerId, place: Place, *, lost: bool, now_ms: Millis) -> None:
        """``place`` is announced no more; ``lost``: because ``id`` is out of reach."""
        member = self._members.get(id)
        if member is None or place not in member.words:
            return
        member.words.discard(place)
        self._present = None
        if not member.words:
            member.missed_at_ms = now_ms
            if not lost:  # it arranges its links no more
                self._forget(id, now_ms)

    def on_look(self, *, now_ms: Millis) -> None:
        """Take the seat of who is missed for long, and forget who is for very long."""
        for id, member in list(self._members.items()):
            if member.missed_at_ms is None:
                continue
            missed_ms = now_ms - member.missed_at_ms
            if missed_ms >= self._patience_ms and id in self.seated:
                self.seated.discard(id)
                self.changed_at_ms = now_ms
            if missed_ms >= self._forget_ms:
                self._forget(id, now_ms)

    def start_over(self, *, now_ms: Millis) -> None:
        """We were deaf: whom we miss, we miss from now on."""
        for _, member in self:
            if member.missed_at_ms is not None:
                member.missed_at_ms = now_ms

    def graph(self, own: Iterable[BrokerId]) -> dict[BrokerId, set[BrokerId]]:
        """The links that both ends tell of.

        Args:
            own: With whom we have links.
        """
        told = {id: frozenset(place.links) for id, place in self.present()}
        told[self._self_id] = frozenset(own)
        pairs: set[Pair] = {
            (a, b) for a, others in told.items() for b in others if a < b and a in told.get(b, ())
        }
        return near_of(told, pairs)

    def _forget(self, id: BrokerId, now_ms: Millis) -> None:
        del self._members[id]
        self.seated.discard(id)
        self.expected.discard(id)
        self.changed_at_ms = now_ms

    def _has_room(self, id: BrokerId) -> bool:
        if id == self._self_id:
            return False
        return id in self._members or len(self._members) < self._members_max
