"""The set of filters that this broker wants from the federation, with its reasons counted.

Several sources hold a filter: clients, registrations, the configuration, distrust (``#``). It is
wanted while anyone holds it. ``take`` tells what changed since it was last asked, so a filter that
came and went in between does not show.

``#`` and ``+/#`` from clients are kept local by default: somebody who opens an MQTT explorer must
not pull the whole federation onto a gateway.

``$share/<group>/<filter>`` is interest in ``<filter>`` when each broker's group is served for
itself. When groups span brokers, members are counted instead: what they get is not for every
broker (``protocol.sharing``). That costs every broker work for each group, so a client, and all of
them together, have a quota of groups. Beyond it a group is served on each broker for itself: its
filter is wanted like any other. Nobody goes without; members on several brokers each get a copy.

Source: docs/protocol.md 9.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.filters import is_match_all, may_travel, share_of, without_share

MATCH_ALL = "#"

GroupKey = tuple[str, str]
"""A shared group: its name, and the filter."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """What our own clients want, as a change."""

    added: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Groups gained or lost members, or somebody began or ceased to see everything."""

    members: dict[GroupKey, int]  # how many each of these has now; 0 when the last one left
    watched: bool = False  # a client subscribes to everything here, unknown to the federation


class Interest:
    """Filters wanted from the federation."""

    def __init__(self, parameters: DiscoveryParameters) -> None:
        self.held: Counter[str] = Counter()  # how many reasons there are to want each
        self.kept_local: Counter[str] = Counter()  # those that do not travel by policy, likewise
        # Memberships of groups that are served here alone, for there are too many.
        self.beyond: set[tuple[str, GroupKey]] = set()
        self._parameters = parameters
        self._members: Counter[GroupKey] = Counter()
        self._members_before: dict[GroupKey, int] = {}
        self._memberships: Counter[str] = Counter()  # counted apart, by client
        self._watched_before = False
        self._wanted_before: dict[str, bool] = {}

    def count(self, filter: str, change: int, *, by_client: bool = True, client: str = "") -> None:
        """Count one reason more (1) or less (-1) to want ``filter``, ``$share/...`` included.

        One less goes with the arguments of the one more before; a client holds each filter once.
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
        """What changed since the last call."""
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
        """Whether ``filter`` is a membership that is counted apart; it was counted then."""
        key = share_of(filter) if self._parameters.groups_span_brokers else None
        if key is None or key[0] in ("+", "#"):  # Mosquitto grants such names; MQTT has none
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
    """Count, and keep no zeros."""
    counts[key] += change
    assert counts[key] >= 0, f"released more often than held: {key!r}"
    if not counts[key]:
        del counts[key]
