"""Who is told what others want, at a hub: the mesh, its own clients' side, and each of its leaves.

A hub is a railway junction where lines meet that know nothing of each other. The mesh is told what
clients of the hub and all leaves want; a leaf, what clients of the hub, the mesh and the *other*
leaves want; and each hears a bounded cover of it (``bounded_cover``), never who wants it.

**A merger is no loss.** When the cover widens ``a/1`` and ``a/2`` to ``a/+``, what others sent or
logged for ``a/1`` alone is still on its way, or waits for a link. So a filter that left the cover
while somebody may still want what it brings *lingers*: it is asked for as long as others keep what
they owe. What nobody wants any more goes at once. A restart forgets why something was asked for, so
what was asked for before lingers, too (``recall``).

Source: docs/hubs.md.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile

from federator.protocol.filters.algebra import canonical
from federator.protocol.filters.cover import CoverChange
from federator.protocol.filters.syntax import is_match_all
from federator.protocol.filters.trie import FilterTrie
from federator.protocol.leaves.bounded_cover import BoundedCover, Steps, at_once
from federator.protocol.leaves.level_names import LevelNames
from federator.protocol.types import BrokerId, Millis


class Asked:
    """What one side is told: a bounded cover of what several sources want.

    ``#`` is told beside the cover, and not as part of it: an agent that doubts what it knows asks
    for it for a while, and all that is below would have to be told again.

    Args:
        filters_max: Filters told at most, ``#`` included; twice as many may linger.
        linger_ms: How long what became part of a wider filter, or fell apart, is asked for.
        names: Counts names for several of these.
        index: Is kept to have what is wanted, where topics are looked up.
    """

    def __init__(
        self,
        filters_max: int,
        linger_ms: int,
        names: LevelNames | None = None,
        index: FilterTrie | None = None,
    ) -> None:
        assert filters_max >= 2, "# and one filter for all others"
        self.cover = BoundedCover(filters_max - 1, names)
        self._max = filters_max
        self._all: set[str] = set()  # told, of the filters that match everything
        self._linger_ms = linger_ms
        self._sources: Counter[str] = Counter()  # how many want it
        self._index = index
        self._lingering: dict[str, Millis] = {}  # until when; the first to end first

    def __len__(self) -> int:
        """How many filters are told now."""
        beside = sum(f not in self.cover and f not in self._lingering for f in self._all)
        return len(self.cover) + beside + len(self._lingering)

    @property
    def filters(self) -> frozenset[str]:
        """All that is told now."""
        return frozenset((*self.cover.filters, *self._all, *self._lingering))

    def update(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> CoverChange:
        """One source wants ``added`` and no more ``removed``."""
        return at_once(self.steps(added, removed, now_ms))

    def steps(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> Steps:
        """As ``update``, little by little."""
        fresh, gone = self._counted(tuple(map(canonical, added)), tuple(map(canonical, removed)))
        change = yield from self.cover.steps(
            [f for f in fresh if not is_match_all(f)], [f for f in gone if not is_match_all(f)]
        )
        new, old = {*change.subscribe}, {*change.unsubscribe}
        everything = {f for f in fresh if is_match_all(f)}
        concerned = sorted(new | old | gone | everything)
        before = {f for f in concerned if f in old or (self._tells(f) and f not in new)}
        before |= {f for f in new if f in self._all or f in self._lingering}
        self._all = (self._all | everything) - gone
        for filter in concerned:
            if filter in new or filter in gone:
                self._lingering.pop(filter, None)
            elif filter in old:
                self._lingering[filter] = Millis(now_ms + self._linger_ms)
        after = {f for f in concerned if self._tells(f)}
        dropped = self._drop_beyond_bound()
        return CoverChange(
            tuple(sorted(after - before - dropped)),
            tuple(sorted((before - after) | (dropped - (after - before)))),
        )

    def recall(self, filters: Iterable[str], now_ms: Millis) -> CoverChange:
        """Before our restart ``filters`` were told: something on its way may be known by them."""
        room = 2 * self._max - len(self._lingering)
        recalled = [f for f in sorted(filters) if not (is_match_all(f) or self._tells(f))][:room]
        self._lingering |= dict.fromkeys(recalled, Millis(now_ms + self._linger_ms))
        return CoverChange(tuple(recalled), ())

    def wanted_by(self, filter: str) -> int:
        """How many sources want exactly ``filter``."""
        return self._sources[filter]

    def _tells(self, filter: str) -> bool:
        return filter in self.cover or filter in self._all or filter in self._lingering

    def _drop_beyond_bound(self) -> set[str]:
        """Let the oldest go of more than may linger."""
        over = len(self._lingering) - 2 * self._max
        dropped = list(islice(self._lingering, over)) if over > 0 else []
        for filter in dropped:
            del self._lingering[filter]
        return {f for f in dropped if not self._tells(f)}

    def _counted(
        self, added: tuple[str, ...], removed: tuple[str, ...]
    ) -> tuple[list[str], frozenset[str]]:
        """Which filters somebody wants whom nobody wanted, and nobody any more."""
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
        """When something ends that lingers."""
        return next(iter(self._lingering.values()), None)

    def on_deadline(self, now_ms: Millis) -> CoverChange:
        """What need not be asked for any longer."""
        lingering = self._lingering.items()
        ended = [f for f, _ in takewhile(lambda each: each[1] <= now_ms, lingering)]
        for filter in ended:
            del self._lingering[filter]
        return CoverChange((), tuple(sorted(f for f in ended if not self._tells(f))))


@dataclass(frozen=True, slots=True)
class Told:
    """What the mesh, and which leaves, are to be told otherwise."""

    mesh: CoverChange = field(default_factory=CoverChange)
    leaves: dict[BrokerId, CoverChange] = field(default_factory=dict)


Telling = Generator[Told | None, None, None]
"""What is to be told, side by side. ``None`` is a good moment to do something else: a change may
cost some ten microseconds for each of its filters and each leaf."""


class Switch:
    """What the sides of one hub want of each other. All names are those of the hub's broker.

    A change has to be gone through before the next one.
    """

    def __init__(self, leaves: Iterable[BrokerId], *, filters_max: int, linger_ms: int = 0) -> None:
        self.names = LevelNames()
        self._wanted_here = FilterTrie()
        self.mesh = Asked(filters_max, linger_ms, self.names, self._wanted_here)
        self.leaves = {leaf: Asked(filters_max, linger_ms, self.names) for leaf in sorted(leaves)}
        self._world = Asked(
            filters_max, linger_ms, self.names
        )  # clients and the mesh, once for all leaves

    def recall(
        self, mesh: Iterable[str], leaves: Mapping[BrokerId, Iterable[str]], now_ms: Millis
    ) -> Told:
        """Before our restart the mesh, and each of ``leaves``, were asked for these."""
        known = {leaf: told for leaf, told in leaves.items() if leaf in self.leaves}
        again = {leaf: self.leaves[leaf].recall(told, now_ms) for leaf, told in known.items()}
        return Told(self.mesh.recall(mesh, now_ms), _changed(again))

    def wishes(self, topic: str) -> Iterator[tuple[str, int]]:
        """Filters of clients here and of leaves that match ``topic``; how many sides want each."""
        return ((f, self.mesh.wanted_by(f)) for f in self._wanted_here.match(topic))

    def saw(self, topic: str) -> bool:
        """Something was brought in vain; whether covers should be thought over: ``reconsider``."""
        before = self.names.fan_outs
        self.names.note(topic)
        return self.names.fan_outs is not before

    def reconsider(self, now_ms: Millis) -> Telling:
        """Let covers be narrower where levels turned out to have more names than was known."""
        yield Told((yield from self.mesh.steps((), (), now_ms)))
        yield from self._on_world((), (), now_ms)
        yield from self._tell_leaves(CoverChange(), now_ms)

    def on_clients(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> Telling:
        """The hub's own clients want ``added``, and no more ``removed``."""
        added, removed = tuple(added), tuple(removed)
        yield Told((yield from self.mesh.steps(added, removed, now_ms)))
        yield from self._on_world(added, removed, now_ms)

    def on_mesh(self, change: CoverChange, now_ms: Millis) -> Telling:
        """The mesh wants otherwise."""
        return self._on_world(change.subscribe, change.unsubscribe, now_ms)

    def on_leaf(self, leaf: BrokerId, change: CoverChange, now_ms: Millis) -> Telling:
        """A leaf wants otherwise: the mesh and all other leaves hear of it."""
        yield Told((yield from self.mesh.steps(change.subscribe, change.unsubscribe, now_ms)))
        yield from self._tell_leaves(change, now_ms, but=leaf)

    def _on_world(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> Telling:
        world = yield from self._world.steps(added, removed, now_ms)
        if world:
            yield from self._tell_leaves(world, now_ms)

    def _tell_leaves(
        self, change: CoverChange, now_ms: Millis, but: BrokerId | None = None
    ) -> Telling:
        said = change.subscribe, change.unsubscribe
        for leaf, asked in self.leaves.items():
            if leaf != but:
                yield Told(leaves=_changed({leaf: (yield from asked.steps(*said, now_ms))}))

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        sides = (self.mesh, self._world, *self.leaves.values())
        due = [each.next_deadline_ms() for each in sides]
        return min((each for each in due if each is not None), default=None)

    def on_deadline(self, now_ms: Millis) -> Telling:
        """What lingered long enough is asked for no more."""
        yield Told(self.mesh.on_deadline(now_ms))
        world = self._world.on_deadline(now_ms)
        if world:
            yield from self._tell_leaves(world, now_ms)
        for leaf, asked in self.leaves.items():
            yield Told(leaves=_changed({leaf: asked.on_deadline(now_ms)}))


def _changed(changes: dict[BrokerId, CoverChange]) -> dict[BrokerId, CoverChange]:
    return {leaf: change for leaf, change in changes.items() if change}
