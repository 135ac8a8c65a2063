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

from federator.protocol.filters import is_match_all, may_travel, share_of, without_share

MATCH_ALL = "#"

GroupKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """What our own clients want, as a change."""

    added: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Groups gained or lost members, or somebody began or ceased to see everything.

    Attributes:
        members: How many members groups, as (group, filter), have now; 0 when the last one left.
        watched: Whether some client subscribes to everything here, unknown to the federation.
    """

    members: dict[tuple[str, str], int]
    watched: bool = False


class Interest:
    """Filters wanted from the federation.

    Args:
        federate_match_all: Whether to let ``#`` and ``+/#`` from clients travel too.
        groups_span_brokers: Whether to count the members of shared groups apart.
        groups_max: Groups whose members are counted apart.
        client_groups_max: Memberships of one client that are.
    """

    def __init__(
        self,
        *,
        federate_match_all: bool = False,
        groups_span_brokers: bool = False,
        groups_max: int = 256,
        client_groups_max: int = 32,
    ) -> None:
        self._federate_match_all = federate_match_all
        self._groups_span_brokers = groups_span_brokers
        self._groups_max = groups_max
        self._client_groups_max = client_groups_max
        self._members: Counter[GroupKey] = Counter()
        self._members_before: dict[GroupKey, int] = {}
        self._memberships: Counter[str] = Counter()  # counted apart, by client
        self._beyond: set[tuple[str, GroupKey]] = set()
        self._watched_before = False
        self._held: Counter[str] = Counter()
        self._kept_local: Counter[str] = Counter()
        self._wanted_before: dict[str, bool] = {}

    @property
    def wanted(self) -> frozenset[str]:
        """The filters that somebody holds."""
        return frozenset(self._held)

    @property
    def kept_local(self) -> dict[str, int]:
        """Filters that do not travel by policy, with the number of their subscriptions."""
        return dict(sorted(self._kept_local.items()))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def beyond_quota(self) -> int:
        """Memberships of groups that are served here alone, for there are too many."""
        return len(self._beyond)

    def hold(self, filter: str, *, by_client: bool = True, client: str = "") -> None:
        """Count one more reason to want ``filter``, as subscribed (``$share/...`` included).

        A client holds each filter once.
        """
        plain = without_share(filter)
        if not may_travel(plain):
            return
        if self._stays_local(plain, by_client):
            self._kept_local[plain] += 1
            return
        if self._count_member(client, filter, 1):
            return
        self._wanted_before.setdefault(plain, plain in self._held)
        self._held[plain] += 1

    def release(self, filter: str, *, by_client: bool = True, client: str = "") -> None:
        """Count one reason less; the counterpart of ``hold`` with the same arguments."""
        plain = without_share(filter)
        if not may_travel(plain):
            return
        local = self._stays_local(plain, by_client)
        if not local and self._count_member(client, filter, -1):
            return
        counts = self._kept_local if local else self._held
        assert counts[plain] > 0, f"released more often than held: {plain!r}"
        if not local:
            self._wanted_before.setdefault(plain, True)
        counts[plain] -= 1
        if not counts[plain]:
            del counts[plain]

    def take(self) -> InterestChanged | None:
        """The change since the last call, or ``None`` when there is none."""
        touched, self._wanted_before = self._wanted_before, {}
        added = frozenset(f for f, before in touched.items() if not before and f in self._held)
        removed = frozenset(f for f, before in touched.items() if before and f not in self._held)
        return InterestChanged(added, removed) if added or removed else None

    def take_members(self) -> MembersChanged | None:
        """What changed about groups since the last call, or ``None`` when nothing did."""
        touched, self._members_before = self._members_before, {}
        changed = {
            key: self._members[key]
            for key, before in sorted(touched.items())
            if self._members[key] != before
        }
        watched = self._groups_span_brokers and bool(self._kept_local)
        if not changed and watched == self._watched_before:
            return None
        self._watched_before = watched
        return MembersChanged(changed, watched)

    def _count_member(self, client: str, filter: str, change: int) -> bool:
        """Whether ``filter`` is a membership that is counted apart; it was counted then."""
        key = share_of(filter) if self._groups_span_brokers else None
        if key is None:
            return False
        if change > 0:
            full = len(self._members) >= self._groups_max
            greedy = self._memberships[client] >= self._client_groups_max
            if key not in self._members and (full or greedy):
                self._beyond.add((client, key))
                return False
        elif (client, key) in self._beyond:
            self._beyond.discard((client, key))
            return False
        self._memberships[client] += change
        if not self._memberships[client]:
            del self._memberships[client]
        self._members_before.setdefault(key, self._members[key])
        self._members[key] += change
        assert self._members[key] >= 0, f"released more often than held: {filter!r}"
        if not self._members[key]:
            del self._members[key]
        return True

    def _stays_local(self, plain: str, by_client: bool) -> bool:
        return by_client and not self._federate_match_all and is_match_all(plain)
