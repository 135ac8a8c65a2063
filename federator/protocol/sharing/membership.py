"""Which brokers have members of which group, according to announcements.

When its number of members changes, a broker announces the new record and withdraws the old one, and
the two need not arrive together. So records are kept as a set per broker: while both stand, the
larger number counts, and a broker is gone only with its last record.

A group with members that all became unreachable without leaving was not given up, so it is still
owed what is published meanwhile: for a while it stays wanted, and publications are held until it
has members again. The same holds for groups that an agent knew before its restart.

Source: docs/protocol.md 12.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.filters import FilterTrie
from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.types import BrokerId, Millis

RECORDS_MAX: Final = 4_096
BROKER_RECORDS_MAX: Final = 1_024
NOBODY: Final = BrokerId(-1)

GroupKey = tuple[str, str]
"""A group and its filter: ``$share/<group>/<filter>``."""


class Members(msgspec.Struct, frozen=True):
    """The members of one group at one broker; see ``MemberRecord``."""

    count: int
    crossed: bool


class Membership:
    """The member records of all brokers.

    Records of ``own`` are all stored. Records of others beyond the bounds, which any broker may
    announce, wait for room.
    """

    def __init__(self, own: BrokerId = NOBODY) -> None:
        self._own = own
        self._records: dict[GroupKey, dict[BrokerId, set[MemberRecord]]] = {}
        self._filters = FilterTrie()
        self._by_filter: dict[str, set[GroupKey]] = {}
        self._counts: Counter[BrokerId] = Counter()  # records, by broker
        self._waiting: dict[BrokerId, dict[MemberRecord, None]] = {}
        self._in_reach: set[BrokerId] = set()
        self._where: dict[GroupKey, frozenset[BrokerId]] = {}  # cached results

    def add(self, record: MemberRecord) -> None:
        """Add ``record``, which a broker announces."""
        key, broker = (record.group, record.filter), record.broker
        if record in self._records.get(key, {}).get(broker, ()):
            return
        if not self._has_room(broker):
            self._waiting.setdefault(broker, {})[record] = None
            return
        self._where.pop(key, None)
        self._counts[broker] += 1
        if key not in self._records:
            self._filters.add(key[1])
            self._by_filter.setdefault(key[1], set()).add(key)
        self._records.setdefault(key, {}).setdefault(broker, set()).add(record)

    def _has_room(self, broker: BrokerId) -> bool:
        others = self._counts.total() - self._counts[self._own]
        fits = others < RECORDS_MAX and self._counts[broker] < BROKER_RECORDS_MAX
        return fits or broker == self._own

    @property
    def waiting(self) -> int:
        """How many records wait for room."""
        return sum(map(len, self._waiting.values()))

    def discard(self, record: MemberRecord) -> None:
        """Remove ``record``, which is no longer announced."""
        key, broker = (record.group, record.filter), record.broker
        if record in self._waiting.get(broker, ()):
            self._take_waiting(broker, record)
            return
        brokers = self._records.get(key, {})
        records = brokers.get(broker, set())
        if record not in records:
            return
        records.discard(record)
        self._where.pop(key, None)
        self._counts[broker] -= 1
        if not records:
            del brokers[broker]
        if not brokers:
            del self._records[key]
            self._by_filter[key[1]].discard(key)
            if not self._by_filter[key[1]]:
                del self._by_filter[key[1]]
                self._filters.discard(key[1])
        for next_ in [b for b in (broker, next(iter(self._waiting), None)) if b in self._waiting]:
            if self._has_room(next_):
                self.add(self._take_waiting(next_, next(iter(self._waiting[next_]))))

    def _take_waiting(self, broker: BrokerId, record: MemberRecord) -> MemberRecord:
        waiting = self._waiting[broker]
        del waiting[record]
        if not waiting:
            del self._waiting[broker]
        return record

    def reach(self, broker: BrokerId, in_reach: bool = True) -> None:
        """Note whether ``broker`` is reachable."""
        (self._in_reach.add if in_reach else self._in_reach.discard)(broker)
        self._where.clear()

    @property
    def groups(self) -> list[GroupKey]:
        """Every group that has members, in order."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def has_records(self, key: GroupKey) -> bool:
        """Whether any broker announces members of ``key``."""
        return key in self._records

    def brokers(self, key: GroupKey) -> dict[BrokerId, Members]:
        """The reachable brokers with members of ``key``, by id, ascending."""
        return {
            broker: Members(max(r.members for r in records), any(r.crossed for r in records))
            for broker, records in sorted(self._records.get(key, {}).items())
            if broker in self._in_reach
        }

    def why_inexact(self, key: GroupKey) -> str | None:
        """Why ``key`` may be served more than once, for humans; ``None`` when it is not."""
        mine = self.brokers(key)
        if len(mine) < 2:
            return None
        crossed = ", ".join(str(broker) for broker, members in mine.items() if members.crossed)
        if crossed:
            return f"ordinary subscribers beside members on broker {crossed}"
        for other, there in self._beside(key):
            if there != mine.keys() and not there.isdisjoint(mine):
                return f"$share/{other[0]}/{other[1]} has members on some of the same brokers"
        return None

    def is_alone(self, key: GroupKey) -> bool:
        """Whether publications for ``key`` on its brokers reach no other clients there."""
        mine = self.brokers(key)
        if any(members.crossed for members in mine.values()):
            return False
        return all(there.isdisjoint(mine) for _, there in self._beside(key))

    def _beside(self, key: GroupKey) -> Iterator[tuple[GroupKey, frozenset[BrokerId]]]:
        """The other groups with overlapping filters, and the reachable brokers of each."""
        for filter in self._filters.overlapping(key[1]):
            for other in sorted(self._by_filter[filter]):
                if other != key:
                    where = self._where.get(other)
                    if where is None:
                        where = frozenset(self._in_reach.intersection(self._records[other]))
                        self._where[other] = where
                    yield other, where


ORPHANS_MAX: Final = 10_000


@dataclass(kw_only=True, eq=False)
class Orphans:
    """Groups after all members became unreachable, each kept for ``keep_ms``."""

    keep_ms: int
    orphans_max: int = ORPHANS_MAX  # beyond this the oldest is forgotten

    def __post_init__(self) -> None:
        self._until_ms: Recent[GroupKey, Millis] = Recent(self.orphans_max)  # in the order lost

    @property
    def groups(self) -> frozenset[GroupKey]:
        """The groups that are remembered."""
        return frozenset(self._until_ms)

    def lose(self, key: GroupKey, *, now_ms: Millis) -> None:
        """Remember ``key``: its last members became unreachable."""
        self._until_ms.put(key, Millis(now_ms + self.keep_ms))

    def find(self, keys: Iterable[GroupKey]) -> None:
        """Forget ``keys``, which have members again or were given up."""
        for key in keys:
            self._until_ms.pop(key, None)

    def next_deadline_ms(self) -> Millis | None:
        """When ``expire`` is due."""
        return next(iter(self._until_ms.values()), None)

    def expire(self, *, now_ms: Millis) -> bool:
        """Forget groups kept for long enough; return whether there were any."""
        old = [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]
        self.find(old)
        return bool(old)
