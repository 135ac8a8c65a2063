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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from federator.protocol.filters.algebra import canonical
from federator.protocol.filters.cover import CoverChange
from federator.protocol.filters.syntax import is_match_all
from federator.protocol.leaves.bounded_cover import BoundedCover
from federator.protocol.types import BrokerId, Millis


class Asked:
    """What one side is told: a bounded cover of what several sources want.

    ``#`` is told beside the cover, and not as part of it: an agent that doubts what it knows asks
    for it for a while, and all that is below would have to be told again.

    Args:
        filters_max: Filters told at most, ``#`` included; twice as many may linger.
        linger_ms: How long what became part of a wider filter, or fell apart, is asked for.
    """

    def __init__(self, filters_max: int, linger_ms: int) -> None:
        assert filters_max >= 2, "# and one filter for all others"
        self.cover = BoundedCover(filters_max - 1)
        self._max = filters_max
        self._all: set[str] = set()  # told, of the filters that match everything
        self._linger_ms = linger_ms
        self._sources: Counter[str] = Counter()  # how many want it
        self._lingering: dict[str, Millis] = {}  # until when; the first to end first

    @property
    def filters(self) -> frozenset[str]:
        """All that is told now."""
        return frozenset((*self.cover.filters, *self._all, *self._lingering))

    def update(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> CoverChange:
        """One source wants ``added`` and no more ``removed``."""
        fresh, gone = self._counted(tuple(map(canonical, added)), tuple(map(canonical, removed)))
        change = self.cover.update(
            (f for f in fresh if not is_match_all(f)), (f for f in gone if not is_match_all(f))
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
        return fresh, gone

    def next_deadline_ms(self) -> Millis | None:
        """When something ends that lingers."""
        return next(iter(self._lingering.values()), None)

    def on_deadline(self, now_ms: Millis) -> CoverChange:
        """What need not be asked for any longer."""
        ended = [f for f, until_ms in self._lingering.items() if until_ms <= now_ms]
        for filter in ended:
            del self._lingering[filter]
        return CoverChange((), tuple(sorted(f for f in ended if not self._tells(f))))


@dataclass(frozen=True, slots=True)
class Told:
    """What the mesh, and which leaves, are to be told otherwise."""

    mesh: CoverChange = field(default_factory=CoverChange)
    leaves: dict[BrokerId, CoverChange] = field(default_factory=dict)


class Switch:
    """What the sides of one hub want of each other. All names are those of the hub's broker."""

    def __init__(self, leaves: Iterable[BrokerId], *, filters_max: int, linger_ms: int = 0) -> None:
        self.mesh = Asked(filters_max, linger_ms)
        self.leaves = {leaf: Asked(filters_max, linger_ms) for leaf in sorted(leaves)}
        self._world = Asked(filters_max, linger_ms)  # clients and the mesh, once for all leaves

    def recall(
        self, mesh: Iterable[str], leaves: Mapping[BrokerId, Iterable[str]], now_ms: Millis
    ) -> Told:
        """Before our restart the mesh, and each of ``leaves``, were asked for these."""
        known = {leaf: told for leaf, told in leaves.items() if leaf in self.leaves}
        again = {leaf: self.leaves[leaf].recall(told, now_ms) for leaf, told in known.items()}
        return Told(self.mesh.recall(mesh, now_ms), _changed(again))

    def on_clients(self, added: Iterable[str], removed: Iterable[str], now_ms: Millis) -> Told:
        """The hub's own clients want ``added``, and no more ``removed``."""
        added, removed = tuple(added), tuple(removed)
        mesh = self.mesh.update(added, removed, now_ms)
        return Told(mesh, self._on_world(added, removed, now_ms))

    def on_mesh(self, change: CoverChange, now_ms: Millis) -> Told:
        """The mesh wants otherwise."""
        return Told(leaves=self._on_world(change.subscribe, change.unsubscribe, now_ms))

    def on_leaf(self, leaf: BrokerId, change: CoverChange, now_ms: Millis) -> Told:
        """A leaf wants otherwise: the mesh and all other leaves hear of it."""
        said = change.subscribe, change.unsubscribe
        others = {
            other: asked.update(*said, now_ms)
            for other, asked in self.leaves.items()
            if other != leaf
        }
        return Told(self.mesh.update(*said, now_ms), _changed(others))

    def _on_world(
        self, added: Iterable[str], removed: Iterable[str], now_ms: Millis
    ) -> dict[BrokerId, CoverChange]:
        world = self._world.update(added, removed, now_ms)
        return self._tell_leaves(world, now_ms) if world else {}

    def _tell_leaves(self, world: CoverChange, now_ms: Millis) -> dict[BrokerId, CoverChange]:
        said = world.subscribe, world.unsubscribe
        return _changed({each: a.update(*said, now_ms) for each, a in self.leaves.items()})

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        sides = (self.mesh, self._world, *self.leaves.values())
        due = [each.next_deadline_ms() for each in sides]
        return min((each for each in due if each is not None), default=None)

    def on_deadline(self, now_ms: Millis) -> Told:
        """What lingered long enough is asked for no more."""
        world = self._world.on_deadline(now_ms)
        told: dict[BrokerId, CoverChange] = {}
        for leaf, asked in self.leaves.items():
            first = asked.update(world.subscribe, world.unsubscribe, now_ms)
            then = asked.on_deadline(now_ms)
            told[leaf] = CoverChange(first.subscribe, (*first.unsubscribe, *then.unsubscribe))
        return Told(self.mesh.on_deadline(now_ms), _changed(told))


def _changed(changes: dict[BrokerId, CoverChange]) -> dict[BrokerId, CoverChange]:
    return {leaf: change for leaf, change in changes.items() if change}
