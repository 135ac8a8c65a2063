"""Our own announcements, as the core of some filters.

Source: Spohn 2021, 4; docs/protocol.md 6.
"""

from federator.protocol.filters import DigestedSet
from federator.protocol.links.links import Links
from federator.protocol.messages.control import CoreAnn
from federator.protocol.parameters import Parameters
from federator.protocol.routing.core_route import Number
from federator.protocol.routing.filter_lists import as_delta, as_greeting
from federator.protocol.signals import Step
from federator.protocol.types import Cost, Millis


class OwnCore:
    """Composes our own announcements."""

    def __init__(self, links: Links, *, priority: int, parameters: Parameters) -> None:
        self.filters = DigestedSet()  # what we announce
        self.priority = priority
        self.seq = 0  # the number of the last announcement, 0 before the first
        self.announced_at_ms: Millis | None = None
        self.due_ms: Millis | None = None  # when the next one is due
        self._links = links
        self._parameters = parameters
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._lost = False  # some of these became unreachable

    @property
    def number(self) -> Number:
        """The number of our last announcement."""
        return (self._links.epoch, self.seq)

    def is_told(self, filter_: str) -> bool:
        """Whether an announcement with ``filter_`` was sent."""
        return filter_ in self.filters and filter_ not in self._added

    @property
    def announces(self) -> bool:
        """Whether there is anything to announce."""
        return len(self.filters) > 0

    def change(
        self, added: frozenset[str], removed: frozenset[str], *, lost: bool, now_ms: Millis
    ) -> list[Step]:
        """Announce changed filters: at once after a quiet time.

        ``lost``: the brokers that wanted the removed ones became unreachable.
        """
        self._lost = self._lost or (lost and bool(removed))
        self.filters.apply(added, removed)
        self._added = (self._added | added) - removed
        self._removed = (self._removed | removed) - added
        return self.announce_soon(now_ms=now_ms)

    def change_priority(self, priority: int, *, now_ms: Millis) -> list[Step]:
        """Use another priority in our announcements from now on."""
        if priority == self.priority:
            return []
        self.priority = priority
        return self.announce_soon(now_ms=now_ms) if self.announces else []

    def announce_soon(self, *, now_ms: Millis) -> list[Step]:
        """Announce a new number as soon as ``core_ann_gap_ms`` allows."""
        last_ms = self.announced_at_ms
        due_ms = now_ms if last_ms is None else last_ms + self._parameters.core_ann_gap_ms
        if due_ms <= now_ms:
            return self._announce(now_ms)
        self.due_ms = Millis(due_ms if self.due_ms is None else min(due_ms, self.due_ms))
        return []

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Announce if it is due."""
        due = self.due_ms is not None and self.due_ms <= now_ms
        return self._announce(now_ms) if due else []

    def greeting(self) -> CoreAnn:
        """Our current announcement for a new neighbour."""
        return self._compose(as_greeting(self.filters), ())

    def _announce(self, now_ms: Millis) -> list[Step]:
        self.seq += 1
        self.announced_at_ms = now_ms
        message = self._compose(
            *as_delta(self._added, self._removed), gave_up=bool(self._removed) and not self._lost
        )
        self._added, self._removed, self._lost = set(), set(), False
        next_ms = Millis(now_ms + self._parameters.core_ann_interval_ms)
        self.due_ms = next_ms if self.announces else None
        return [step for n in self._links.up for step in self._links.send(n, message)]

    def _compose(
        self, added: tuple[str, ...], removed: tuple[str, ...], *, gave_up: bool = False
    ) -> CoreAnn:
        return CoreAnn(
            sender=self._links.self_id,
            core=self._links.self_id,
            priority=self.priority,
            epoch=self._links.epoch,
            seq=self.seq,
            cost=Cost(0),
            in_mesh=True,
            added=added,
            removed=removed,
            digest=self.filters.digest,
            count=len(self.filters),
            gave_up=gave_up,
            path=(self._links.self_id,),
        )
