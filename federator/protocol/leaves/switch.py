"""What a hub advertises to each side: to the mesh, and to each of its leaves.

A hub is a railway junction where lines meet that know nothing of each other. It advertises to the
mesh the filters of its own clients and of all leaves; to a leaf those of its own clients, the mesh
and the *other* leaves. Each side receives a bounded cover of them (``bounded_cover``), never which
party wants them.

All leaves get filters from **one cover** of all demand, less what a leaf alone asks for; so a hub's
memory and work grow with the demand, not with demand times leaves.

**A merger is no loss.** When the cover merges ``a/1`` and ``a/2`` into ``a/+``, publications that
others sent or logged for ``a/1`` alone are still on their way, or wait for a link. So a filter that
left the cover while its publications may still be wanted *lingers*: it stays advertised as long as
others keep what they owe. A filter without demand goes at once. After a restart the reason for a
filter is unknown, so filters advertised before linger, too (``recall``).

Source: docs/hubs.md.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, islice, takewhile
from typing import Final, Literal

from federator.protocol.filters.algebra import canonical
from federator.protocol.filters.cover import CoverChange
from federator.protocol.filters.syntax import is_match_all
from federator.protocol.filters.trie import FilterTrie
from federator.protocol.leaves.bounded_cover import BoundedCover, Steps, at_once
from federator.protocol.leaves.level_names import LevelNames
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Millis

Side = BrokerId | None
"""A leaf, or the mesh (``None``)."""

CLIENTS: Final = "clients"
Source = Side | Literal["clients"]
"""A side, or the hub's own clients: they want filters, too."""

Changes = dict[Side, CoverChange]
"""What changes in the filters advertised to each side."""

Advertising = Generator[Changes | None, None, None]
"""Changes to advertise, side by side. ``None`` marks a good moment to do other work: a change may
take some ten microseconds for each of its filters."""

Hidden = dict[str, BrokerId | None]
"""Advertised filters, each with the leaf from which it is hidden, if any."""


class Asked:
    """The filters advertised to one side: a bounded cover of what several sources want.

    ``#`` is advertised beside the cover, not as part of it: an agent that doubts its table asks for
    ``#`` for a while, and all filters below would have to be advertised again afterwards.

    Args:
        filters_max: Filters advertised at most: a third of them, ``#`` included, for present
            demand, the rest for lingering ones.
        linger_ms: How long a filter that was merged or split stays advertised.
        names: Counts names for several of these.
        index: Is kept equal to the present demand, for looking up topics.
    """

    def __init__(
        self,
        filters_max: int,
        linger_ms: int,
        names: LevelNames | None = None,
        index: FilterTrie | None = None,
    ) -> None:
        assert filters_max >= 3, "#, one filter for all others, and one that lingers"
        cover_max = max(2, filters_max // 3)
        self.cover = BoundedCover(cover_max - 1, names)
        self._lingering_max = filters_max - cover_max
        self._all: set[str] = set()  # advertised filters that match everything
        self._linger_ms = linger_ms
        self._sources: Counter[str] = Counter()  # number of sources that want each filter
        self._index = index
        self._lingering: dict[str, Millis] = {}  # until when; the first to end first

    def __len__(self) -> int:
        beside = sum(f not in self.cover and f not in self._lingering for f in self._all)
        return len(self.cover) + beside + len(self._lingering)

    @property
    def filters(self) -> frozenset[str]:
        """All filters advertised now."""
        return frozenset((*self.cover.filters, *self._all, *self._lingering))

    def count(self, filter: str) -> int:
        """The number of sources that want ``filter``, in canonical form."""
        return self._sources[filter]

    def asks(self, filter: str) -> bool:
        """Whether ``filter`` is advertised for present demand, and does not only linger."""
        return filter in self.cover or filter in self._all

    def update(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> CoverChange:
        """Add and remove filters that one source wants."""
        return at_once(self.steps(_canonical(CoverChange(tuple(added), tuple(removed))), now_ms))

    def steps(self, demand: CoverChange, now_ms: Millis) -> Steps:
        """Like ``update``, step by step; filters are in canonical form."""
        fresh, gone = self._counted(demand.subscribe, demand.unsubscribe)
        change = yield from self.cover.steps(
            [f for f in fresh if not is_match_all(f)], [f for f in gone if not is_match_all(f)]
        )
        new, old = {*change.subscribe}, {*change.unsubscribe}
        # A new filter without new demand was covered by one without demand, which was split.
        apart = _overlapping(gone & old, new.difference(fresh))
        everything = {f for f in fresh if is_match_all(f)}
        concerned = new | old | gone | everything
        beside = self._all | self._lingering.keys()
        before = {
            f for f in concerned if f in beside or f in old or (f in self.cover and f not in new)
        }
        self._all = (self._all | everything) - gone
        for filter in sorted(concerned):
            if filter in new or filter in gone - apart:
                self._lingering.pop(filter, None)
            elif filter in old:
                self._lingering[filter] = Millis(now_ms + self._linger_ms)
        over = max(0, len(self._lingering) - self._lingering_max)
        before |= self._end(list(islice(self._lingering, over)))
        after = {f for f in concerned if self._advertises(f)}
        return CoverChange(tuple(sorted(after - before)), tuple(sorted(before - after)))

    def recall(self, filters: Iterable[str], now_ms: Millis) -> CoverChange:
        """Let ``filters`` from before our restart linger: their publications may be under way."""
        room = self._lingering_max - len(self._lingering)
        unknown = (f for f in sorted(filters) if not (is_match_all(f) or self._advertises(f)))
        recalled = tuple(islice(unknown, room))
        self._lingering |= dict.fromkeys(recalled, Millis(now_ms + self._linger_ms))
        return CoverChange(recalled)

    def _advertises(self, filter: str) -> bool:
        return self.asks(filter) or filter in self._lingering

    def _end(self, filters: Iterable[str]) -> set[str]:
        """Let these linger no longer; return those that are no longer advertised."""
        for filter in filters:
            del self._lingering[filter]
        return {f for f in filters if not self.asks(f)}

    def _counted(
        self, added: tuple[str, ...], removed: tuple[str, ...]
    ) -> tuple[list[str], frozenset[str]]:
        """Count sources; return the filters with first demand and those with none left."""
        sources = self._sources
        before = {f: sources[f] for f in (*added, *removed)}
        sources.update(added)
        sources.subtract(removed)
        fresh = [f for f in dict.fromkeys(added) if not before[f] and sources[f] > 0]
        gone = frozenset(f for f in removed if before[f] and sources[f] <= 0)
        for filter in before:
            if sources[filter] <= 0:
                del sources[filter]
        if self._index is not None:
            for filter in fresh:
                self._index.add(filter)
            for filter in gone:
                self._index.discard(filter)
        return fresh, gone

    def next_deadline_ms(self) -> Millis | None:
        """When the next lingering filter expires."""
        return next(iter(self._lingering.values()), None)

    def on_deadline(self, now_ms: Millis) -> CoverChange:
        """Remove the lingering filters that expired."""
        lingering = self._lingering.items()
        ended = [f for f, _ in takewhile(lambda item: item[1] <= now_ms, lingering)]
        return CoverChange((), tuple(sorted(self._end(ended))))


class Leaves:
    """The filters advertised to a hub's leaves: a cover of all demand, less each leaf's own.

    A filter of the cover is hidden from a leaf that alone wants what it matches. If the demand of
    the other parties moved to another filter of the cover, it is shown to that leaf until lingering
    ends.
    """

    def __init__(
        self, leaves: Iterable[BrokerId], filters_max: int, linger_ms: int, names: LevelNames
    ) -> None:
        self._ids = sorted(leaves)
        self._asked = Asked(filters_max, linger_ms, names)
        self._linger_ms = linger_ms
        # By filter: which leaves want it, and how often.
        self._wanting: dict[str, Counter[BrokerId]] = {}
        # Advertised filters, and the leaf from which each is hidden.
        self._kept_from: dict[str, BrokerId] = {}
        # Until when filters with one leaf's demand are still shown to it.
        self._moved: dict[str, Millis] = {}

    def advertised_to(self, leaf: BrokerId) -> frozenset[str]:
        """All filters advertised to ``leaf`` now."""
        return frozenset(f for f in self._asked.filters if self._kept_from.get(f) != leaf)

    def count_advertised_to(self, leaf: BrokerId) -> int:
        """The number of filters advertised to ``leaf`` now, without collecting them."""
        return len(self._asked) - sum(hidden == leaf for hidden in self._kept_from.values())

    def steps(
        self, demand: CoverChange, now_ms: Millis, leaf: BrokerId | None
    ) -> Generator[None, None, Changes]:
        """Change the demand of ``leaf``, or of another source; see ``Steps``."""
        added, removed = demand.subscribe, demand.unsubscribe
        if leaf is not None:
            self._note(leaf, added, removed)
        shrunk = {self._holder(f) for f in removed}
        change = yield from self._asked.steps(demand, now_ms)
        touched = {*self._asked.cover.touched, *map(self._holder, (*added, *removed)), *shrunk}
        return self._changes_to_leaves(change, touched, shrunk, now_ms)

    def recall(self, before: Mapping[BrokerId, Iterable[str]], now_ms: Millis) -> Changes:
        """Restore the filters that were advertised to each leaf before our restart."""
        receivers: defaultdict[str, set[BrokerId]] = defaultdict(set)
        for leaf, filters in before.items():
            for filter in filters:
                receivers[filter].add(leaf)
        change = self._asked.recall(receivers, now_ms)
        for filter in change.subscribe:
            others = [id for id in self._ids if id not in receivers[filter]]
            if len(others) == 1:
                self._kept_from[filter] = others[0]
        return self._changes({}, {f: self._kept_from.get(f) for f in change.subscribe})

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self._asked.next_deadline_ms(), next(iter(self._moved.values()), None))

    def on_deadline(self, now_ms: Millis) -> Changes:
        """Stop advertising filters that lingered long enough."""
        moved = {f for f, until_ms in self._moved.items() if until_ms <= now_ms}
        for filter in moved:
            del self._moved[filter]
        return self._changes_to_leaves(self._asked.on_deadline(now_ms), moved, moved, now_ms)

    def _note(self, leaf: BrokerId, added: Iterable[str], removed: Iterable[str]) -> None:
        for filter in added:
            self._wanting.setdefault(filter, Counter())[leaf] += 1
        for filter in removed:
            wanting = self._wanting.get(filter, Counter())
            wanting[leaf] -= 1
            if wanting[leaf] <= 0:
                del wanting[leaf]
            if not wanting:
                self._wanting.pop(filter, None)

    def _holder(self, filter: str) -> str:
        return self._asked.cover.holder(filter) or filter

    def _only(self, filter: str) -> BrokerId | None:
        """The leaf that alone wants ``filter``."""
        wanting = self._wanting.get(filter)
        if wanting is None or len(wanting) != 1:
            return None
        [(leaf, times)] = wanting.items()
        return leaf if times == self._asked.count(filter) else None

    def _owner(self, filter_: str) -> BrokerId | None:
        """The leaf that alone wants what this filter, of the cover or ``#``, matches."""
        cover = self._asked.cover
        itself = (filter_,) if self._asked.count(filter_) else ()
        owners = map(self._only, chain(itself, cover.below(filter_) if filter_ in cover else ()))
        owner = next(owners)
        return owner if owner is not None and all(other == owner for other in owners) else None

    def _changes_to_leaves(
        self, change: CoverChange, touched: Iterable[str], shrunk: AbstractSet[str], now_ms: Millis
    ) -> Changes:
        """Compute per-leaf changes after the advertised filters changed by ``change``.

        Args:
            touched: Filters that may now be hidden from another leaf, or from none.
            shrunk: Those of them below which demand ended.
        """
        new, old = {*change.subscribe}, {*change.unsubscribe}
        before: Hidden = {}
        after: Hidden = {}
        wanted = {f for f in touched if self._asked.asks(f)}  # others linger as before, or are gone
        for filter in new | old | wanted:
            hidden = None if filter in new else self._kept_from.pop(filter, None)
            if filter not in new:
                before[filter] = hidden
            if filter in old:
                self._moved.pop(filter, None)
                continue
            owner = self._owner(filter)
            if filter not in new and filter not in shrunk and owner not in (None, hidden):
                self._moved.setdefault(filter, Millis(now_ms + self._linger_ms))
                owner = hidden
            if owner is not None:
                self._kept_from[filter] = owner
            after[filter] = owner
        return self._changes(before, after)

    def _changes(self, before: Hidden, after: Hidden) -> Changes:
        """The change for each leaf from the filters advertised ``before`` to those ``after``."""

        def change_for(leaf: BrokerId | None) -> CoverChange:
            had = {f for f, hidden in before.items() if leaf is None or hidden != leaf}
            has = {f for f, hidden in after.items() if leaf is None or hidden != leaf}
            return CoverChange(tuple(sorted(has - had)), tuple(sorted(had - has)))

        common, special = change_for(None), {*before.values(), *after.values()}
        changes = {leaf: change_for(leaf) if leaf in special else common for leaf in self._ids}
        return {leaf: change for leaf, change in changes.items() if change}


def _canonical(demand: CoverChange) -> CoverChange:
    added, removed = (map(canonical, part) for part in (demand.subscribe, demand.unsubscribe))
    return CoverChange(tuple(added), tuple(removed))


def _overlapping(some: AbstractSet[str], others: AbstractSet[str]) -> set[str]:
    """Those of ``some`` that match topics which ``others`` match, too."""
    trie = FilterTrie()
    for filter in some if others else ():
        trie.add(filter)
    return {match for filter in others for match in trie.overlapping(filter)}


class Switch:
    """The demand of all sides of one hub. All names are those of the hub's broker.

    A change must be iterated to its end before the next one.
    """

    def __init__(self, leaves: Iterable[BrokerId], *, filters_max: int, linger_ms: int = 0) -> None:
        self.names = LevelNames()
        self._wanted_here = FilterTrie()
        self.mesh = Asked(filters_max, linger_ms, self.names, self._wanted_here)
        self.leaves = Leaves(leaves, filters_max, linger_ms, self.names)

    def recall(self, before: Mapping[Side, Iterable[str]], now_ms: Millis) -> Changes:
        """Restore the filters that were advertised to each side before our restart."""
        leaves = {leaf: filters for leaf, filters in before.items() if leaf is not None}
        mesh = self.mesh.recall(before.get(None, ()), now_ms)
        return {None: mesh, **self.leaves.recall(leaves, now_ms)}

    def advertised_to(self, side: Side) -> frozenset[str]:
        """All filters advertised to ``side`` now."""
        return self.mesh.filters if side is None else self.leaves.advertised_to(side)

    def wishes(self, topic: str) -> Iterator[tuple[str, int]]:
        """Filters of clients here and of leaves that match ``topic``; how many sides want each."""
        return ((f, self.mesh.count(f)) for f in self._wanted_here.match(topic))

    def saw(self, topic: str) -> bool:
        """Count a topic that no side wanted; return whether to call ``reconsider``."""
        before = self.names.fan_outs
        self.names.note(topic)
        return self.names.fan_outs is not before

    def reconsider(self, now_ms: Millis) -> Advertising:
        """Narrow the covers where levels have more names than assumed."""
        return self.change(CLIENTS, CoverChange(), now_ms)

    def change(self, source: Source, demand: CoverChange, now_ms: Millis) -> Advertising:
        """Change the demand of ``source``: advertise that to all other sides."""
        demand = _canonical(demand)
        if source is not None:
            yield {None: (yield from self.mesh.steps(demand, now_ms))}
        leaf = None if source == CLIENTS else source
        yield (yield from self.leaves.steps(demand, now_ms, leaf))

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self.mesh.next_deadline_ms(), self.leaves.next_deadline_ms())

    def on_deadline(self, now_ms: Millis) -> Advertising:
        """Stop advertising filters that lingered long enough."""
        yield {None: self.mesh.on_deadline(now_ms), **self.leaves.on_deadline(now_ms)}
