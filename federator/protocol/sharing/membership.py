"""Who has members of which group, as far as announcements tell.

A broker that changes its number announces the new record and takes the old one back, and the two
need not arrive together. So records are counted as a set per broker: while both stand, the larger
number counts, and a broker is gone only with its last record.

A group whose members all went out of reach without leaving was given up by nobody, so it is still
owed what is published meanwhile: for a while it is wanted as before, and publications are held
until members are heard of again. The same holds for what an agent knew before it was restarted.

Source: docs/protocol.md 12.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from federator.protocol.filters import overlaps
from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.types import BrokerId, Millis

GroupKey = tuple[str, str]
"""A group and its filter: ``$share/<group>/<filter>``."""


class Members(msgspec.Struct, frozen=True):
    """Members of one group at one broker; see ``MemberRecord``."""

    count: int
    crossed: bool


class Membership:
    """The member records of all brokers, our own included."""

    def __init__(self) -> None:
        self._records: dict[GroupKey, dict[BrokerId, set[MemberRecord]]] = {}
        self._beside: dict[GroupKey, set[GroupKey]] = {}  # others with overlapping filters
        self._in_reach: set[BrokerId] = set()

    def add(self, record: MemberRecord) -> None:
        """Add ``record``, which somebody announces."""
        key = (record.group, record.filter)
        if key not in self._records:
            self._beside[key] = {o for o in self._records if overlaps(o[1], key[1])}
            for other in self._beside[key]:
                self._beside[other].add(key)
        brokers = self._records.setdefault(key, {})
        brokers.setdefault(record.broker, set()).add(record)

    def discard(self, record: MemberRecord) -> None:
        """Remove ``record``, which nobody announces any more."""
        key = (record.group, record.filter)
        brokers = self._records.get(key, {})
        records = brokers.get(record.broker, set())
        records.discard(record)
        if not records:
            brokers.pop(record.broker, None)
        if not brokers and self._records.pop(key, None) is not None:
            for other in self._beside.pop(key):
                self._beside[other].discard(key)

    def reach(self, broker: BrokerId, in_reach: bool = True) -> None:
        """Note whether anything can be sent to ``broker``."""
        (self._in_reach.add if in_reach else self._in_reach.discard)(broker)

    @property
    def groups(self) -> list[GroupKey]:
        """Every group that has members, in order."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def has_records(self, key: GroupKey) -> bool:
        """Whether anybody announces members of ``key``."""
        return key in self._records

    def brokers(self, key: GroupKey) -> dict[BrokerId, Members]:
        """Where in reach ``key`` has members, by id, ascending."""
        return {
            broker: Members(max(r.members for r in records), any(r.crossed for r in records))
            for broker, records in sorted(self._records.get(key, {}).items())
            if broker in self._in_reach
        }

    def why_inexact(self, key: GroupKey) -> str | None:
        """Why ``key`` may be served more than once, for people; ``None`` when it is not."""
        mine = self.brokers(key)
        if len(mine) < 2:
            return None
        crossed = ", ".join(str(broker) for broker, members in mine.items() if members.crossed)
        if crossed:
            return f"ordinary subscribers beside members on broker {crossed}"
        for other in sorted(self._beside[key]):
            there = self.brokers(other).keys()
            if there != mine.keys() and not there.isdisjoint(mine):
                return f"$share/{other[0]}/{other[1]} has members on some of the same brokers"
        return None

    def is_alone(self, key: GroupKey) -> bool:
        """Whether what is published for ``key`` on its brokers reaches nobody else there."""
        mine = self.brokers(key)
        if any(members.crossed for members in mine.values()):
            return False
        return all(mine.keys().isdisjoint(self.brokers(other)) for other in self._beside[key])


ORPHANS_MAX: Final = 10_000


@dataclass(kw_only=True, eq=False)
class Orphans:
    """Groups whose members all went out of reach, each for ``keep_ms``."""

    keep_ms: int
    orphans_max: int = ORPHANS_MAX  # the oldest is forgotten when there are more

    def __post_init__(self) -> None:
        self._until_ms: dict[GroupKey, Millis] = {}  # in the order lost

    @property
    def groups(self) -> frozenset[GroupKey]:
        """The groups that are remembered."""
        return frozenset(self._until_ms)

    def lose(self, key: GroupKey, *, now_ms: Millis) -> None:
        """Remember ``key``, whose last members went out of reach."""
        self._until_ms.pop(key, None)
        self._until_ms[key] = Millis(now_ms + self.keep_ms)
        if len(self._until_ms) > self.orphans_max:
            del self._until_ms[next(iter(self._until_ms))]

    def find(self, keys: Iterable[GroupKey]) -> None:
        """Forget ``keys``, which have members again, or were given up."""
        for key in keys:
            self._until_ms.pop(key, None)

    def next_deadline_ms(self) -> Millis | None:
        """When ``expire`` is due."""
        return next(iter(self._until_ms.values()), None)

    def expire(self, *, now_ms: Millis) -> bool:
        """Forget groups kept long enough; tells whether there were any."""
        old = [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]
        self.find(old)
        return bool(old)
