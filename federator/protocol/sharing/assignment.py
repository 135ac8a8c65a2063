"""Which broker serves a group with a publication.

A broker delivers what is published on it to its own members of **every** matching group, and to its
ordinary subscribers. So publishing a parcel at a broker serves all matching groups with members
there, and the question is an exact cover: pick brokers such that each group is served once. The
broker where the client published has already served the groups with members there. For each other
group in turn we pick a broker without members of groups already served; if there is none, one group
gets the publication twice, and ``Membership.why_inexact`` says so.

A group that shares no broker with another one and whose members' brokers have no ordinary
subscribers for its topics is *alone*. For it, **stand-ins** of ours join the group at each broker
with members: as many as there are members elsewhere. Mosquitto distributes publications round
robin, so the members here get their fair share and the stand-ins forward the rest.

A ``crossed`` broker gets the publication for its ordinary subscribers in any case, and its members
receive it with them; so this broker is picked.

Source: docs/protocol.md 12; Mosquitto 2.0.11, ``subs__shared_process``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.filters import FilterTrie
from federator.protocol.sharing.membership import GroupKey, Members, Membership
from federator.protocol.types import BrokerId

TOPICS_MAX = 4_096
"""Topics with cached picks."""


@dataclass(slots=True, eq=False)
class Pick:
    """One of the brokers in ``weights`` must get the publication, for the groups ``serves``.

    Brokers take turns by weight; each pick counts its own turns.
    """

    serves: tuple[GroupKey, ...]
    weights: Mapping[BrokerId, int]
    _credit: dict[BrokerId, int] = field(default_factory=dict)

    def next(self) -> BrokerId:
        """The next broker: the one with most credit, which then pays.

        This is smooth weighted round robin.
        """
        if len(self.weights) == 1:
            return next(iter(self.weights))
        total = 0
        for broker, weight in self.weights.items():
            self._credit[broker] = self._credit.get(broker, 0) + weight
            total += weight
        best = max(self.weights, key=lambda broker: (self._credit[broker], -broker))
        self._credit[best] -= total
        return best


class TopicShare(msgspec.Struct, frozen=True):
    """The shared groups that one topic concerns, seen from one broker."""

    picks: tuple[Pick, ...]  # brokers that must get what a client published here
    orphans: tuple[GroupKey, ...]  # groups that must get it once they have members again
    served_here: bool  # whether some group has members here
    stood_in: bool  # whether our stand-ins are among them


class Assignment:
    """Decides which broker serves a group, as seen from one broker."""

    def __init__(self, self_id: BrokerId, *, stand_ins_max: int) -> None:
        self._self_id = self_id
        self._stand_ins_max = stand_ins_max
        self._brokers: dict[GroupKey, dict[BrokerId, Members]] = {}
        self._by_filter: dict[str, list[GroupKey]] = {}
        self._trie = FilterTrie()
        self.share = BoundedCache(self._share, answers_max=TOPICS_MAX)  # by topic
        self._picks: dict[tuple[GroupKey, ...], tuple[Pick, ...]] = {}
        self._taken: dict[GroupKey, Pick] = {}
        self.stand_ins: dict[GroupKey, int] = {}
        self.wanted: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._brokers)

    def update(
        self,
        membership: Membership,
        *,
        watched: bool = False,
        orphans: frozenset[GroupKey] = frozenset(),
    ) -> None:
        """Assign all groups anew.

        ``watched``: clients here see all that is published here, repetitions included, so there are
        no stand-ins. ``orphans``: groups without members that are still wanted.

        Afterwards ``stand_ins`` has the number of stand-ins for each group here, and ``wanted`` the
        filters to subscribe here for groups without members here.
        """
        keys = sorted(orphans.union(membership.groups))
        self._brokers = {key: membership.brokers(key) for key in keys}
        self._by_filter, self._trie = {}, FilterTrie()
        for key in self._brokers:
            if key[1] not in self._by_filter:
                self._trie.add(key[1])
            self._by_filter.setdefault(key[1], []).append(key)
        self.share.clear()
        self._picks.clear()
        self._taken.clear()
        here = self._self_id
        self.wanted = frozenset(k[1] for k, brokers in self._brokers.items() if here not in brokers)
        self.stand_ins = {}
        for key, brokers in self._brokers.items():
            elsewhere = sum(m.count for broker, m in brokers.items() if broker != here)
            count = min(elsewhere, self._stand_ins_max)
            if here in brokers and count and not watched and membership.is_alone(key):
                self.stand_ins[key] = count

    def _share(self, topic: str) -> TopicShare:
        groups = self.groups_of(topic)
        here = [key for key in groups if self._self_id in self._brokers[key]]
        orphans = tuple(key for key in groups if not self._brokers[key])
        missing = [key for key in groups if key not in here and key not in orphans]
        return TopicShare(
            picks=self._shared_picks(missing, here),
            orphans=orphans,
            served_here=bool(here),
            stood_in=any(self.stand_ins.get(key) for key in here),
        )

    def taken(self, topic: str) -> Pick | None:
        """The pick for what a stand-in of ours received; ``None``: no members elsewhere."""
        groups = self.groups_of(topic)
        for key in groups:
            if self._self_id in self._brokers[key]:
                return self._elsewhere(key)
        picks = self.share(topic).picks
        return picks[0] if picks else None

    def again(self, groups: Iterable[GroupKey]) -> tuple[Pick, ...]:
        """The picks to serve ``groups`` in place of a broker that is gone.

        Groups without any member now are left out.
        """
        return self._shared_picks([key for key in groups if self._brokers.get(key)], [])

    def knows(self, key: GroupKey) -> bool:
        """Whether ``key`` has members, or had some that became unreachable."""
        return key in self._brokers

    def groups_of(self, topic: str) -> list[GroupKey]:
        """The groups that ``topic`` concerns, in order."""
        if topic.startswith("$"):
            return []
        return sorted(key for f in self._trie.match(topic) for key in self._by_filter[f])

    def _elsewhere(self, key: GroupKey) -> Pick | None:
        pick = self._taken.get(key)
        if pick is None:
            brokers = self._brokers[key]
            weights = {b: m.count for b, m in brokers.items() if b != self._self_id}
            if not weights:
                return None
            pick = self._taken[key] = Pick((key,), weights)
        return pick

    def _shared_picks(self, missing: list[GroupKey], served: list[GroupKey]) -> tuple[Pick, ...]:
        """The picks for these groups: topics of the same groups share their turns."""
        question = (*missing, ("", ""), *served)
        picks = self._picks.get(question)
        if picks is None:
            picks = self._picks[question] = tuple(self._cover(missing, served))
        return picks

    def _cover(self, missing: list[GroupKey], served: list[GroupKey]) -> Iterable[Pick]:
        done = set(served)
        for key in missing:
            if key in done:
                continue
            brokers = self._brokers[key]
            serves = {b: self._at(b, [*missing, *served]) for b in brokers}
            crossed = [b for b, members in brokers.items() if members.crossed]
            free = [b for b in brokers if done.isdisjoint(serves[b])]
            candidates = crossed[:1] or free or list(brokers)
            most = max(len(serves[b]) for b in candidates)
            best = next(serves[b] for b in candidates if len(serves[b]) == most)
            weights = {b: brokers[b].count for b in candidates if serves[b] == best}
            done.update(best)
            yield Pick(tuple(sorted(best.difference(served))), weights)

    def _at(self, broker: BrokerId, keys: Iterable[GroupKey]) -> frozenset[GroupKey]:
        """The groups among ``keys`` that a publication at ``broker`` serves."""
        return frozenset(key for key in keys if broker in self._brokers[key])
