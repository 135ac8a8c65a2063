"""The set of filters that this broker wants from the federation, with reasons counted.

Several sources hold a filter: clients, registrations, the configuration, distrust (``#``). The
filter is wanted while any source holds it. ``take`` returns the changes since its last call, so a
filter that was added and removed in between does not show.

``#`` and ``+/#`` from clients are kept local by default: a user who opens an MQTT explorer must not
pull the whole federation onto a gateway.

``$share/<group>/<filter>`` is interest in ``<filter>`` when each broker serves its own group. When
groups span brokers, members are counted instead: not every broker gets their publications
(``protocol.sharing``). Each group costs every broker work, so there is a quota of groups for one
client and for all clients together. Beyond the quota each broker serves the group by itself: the
group's filter is wanted like any other. Every group is served; members on several brokers each get
a copy.

Source: docs/protocol.md 9.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.filters import is_match_all, may_travel, share_of, without_share

MATCH_ALL = "#"

GroupKey = tuple[str, str]
"""A shared group: its name and its filter."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """Our own clients want other filters than before."""

    added: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Groups gained or lost members, or the first or last local match-all subscription changed."""

    members: dict[GroupKey, int]  # present number of members per group; 0 when the last one left
    watched: bool = False  # a local client subscribes to everything, unknown to the federation


class Interest:
    """Counts the reasons for each filter wanted from the federation."""

    def __init__(self, parameters: DiscoveryParameters) -> None:
        self.held: Counter[str] = Counter()  # the number of reasons to want each filter
        self.kept_local: Counter[str] = Counter()  # likewise for filters that stay local by policy
        # Memberships of groups that only this broker serves, because the quota is exceeded.
        self.beyond: set[tuple[str, GroupKey]] = set()
        self._parameters = parameters
        self._members: Counter[GroupKey] = Counter()
        self._members_before: dict[GroupKey, int] = {}
        self._memberships: Counter[str] = Counter()  # memberships counted as such, by client
        self._watched_before = False
        self._wanted_before: dict[str, bool] = {}

    def count(self, filter: str, change: int, *, by_client: bool = True, client: str = "") -> None:
        """Add (1) or remove (-1) one reason to want ``filter``, ``$share/...`` included.

        A removal has the same arguments as the addition before it; a client holds each filter once.
        """
        plain = without_share(filter)
        if not plain or not may_travel(plain):  # ``$share/g`` matches nothing
            return
        local = by_client and self._parameters.match_all == "local" and is_match_all(plain)
        if not local:
            if self._count_member(client, filter, change):
                return
            self._wanted_before.setdefault(plain, plain in self.held)
        _add(self.kept_local if local else self.held, plain, change)

    def take(self) -> list[InterestChanged | MembersChanged]:
        """Return the changes since the last call."""
        changes: list[InterestChanged | MembersChanged] = []
        touched, self._wanted_before = self._wanted_before, {}
        added = frozenset(f for f, before in touched.items() if not before and f in self.held)
        removed = frozenset(f for f, before in touched.items() if before and f not in self.held)
        if added or removed:
            changes.append(InterestChanged(added, removed))
        groups, self._members_before = self._members_before, {}
        members = {
            key: self._members[key]
            for key, before in sorted(groups.items())
            if self._members[key] != before
        }
        watched = self._parameters.groups_span_brokers and bool(self.kept_local)
        if members or watched != self._watched_before:
            self._watched_before = watched
            changes.append(MembersChanged(members, watched))
        return changes

    def _count_member(self, client: str, filter: str, change: int) -> bool:
        """Count ``filter`` as a group membership; ``False`` if it is not to be counted as one."""
        key = share_of(filter) if self._parameters.groups_span_brokers else None
        if key is None or key[0] in ("+", "#"):  # Mosquitto grants such names; MQTT forbids them
            return False
        if change > 0:
            full = len(self._members) >= self._parameters.groups_max
            greedy = self._memberships[client] >= self._parameters.client_groups_max
            if key not in self._members and (full or greedy):
                self.beyond.add((client, key))
                return False
        elif (client, key) in self.beyond:
            self.beyond.discard((client, key))
            return False
        self._members_before.setdefault(key, self._members[key])
        _add(self._memberships, client, change)
        _add(self._members, key, change)
        return True


def _add(counts: Counter[K], key: K, change: int) -> None:
    """Add ``change`` and remove the key at zero."""
    counts[key] += change
    assert counts[key] >= 0, f"released more often than held: {key!r}"
    if not counts[key]:
        del counts[key]
