"""A bounded cover: at most so many filters that contain all wanted ones.

While there is room, the cover is the set of wanted filters without those that another one contains.
When there is none, several filters are merged into one that contains them (their *widening*): the
one that asks for the least, and among equals the one that makes the most room. We do not know what
other clients publish, so how much a filter asks for is estimated by its levels: each literal level
selects one of all names seen at that level (``level_names``). So ``site/7/a`` and ``site/7/b``
become ``site/7/+`` long before anything becomes ``site/+/a`` or ``#``.

A change of demand changes little: an added filter is already contained, finds room, or is merged
with the nearest ones; a removed one takes its filter of the cover along when nothing else is below,
and free room lets the widest filter be split again. So the result depends on the order of changes,
and a neighbour receives changes of a few filters at a time. A widening is split only when an eighth
of the room stays free: else one client that comes and goes would change it each time.

Source: route aggregation in BGP and OSPF; Li and others, "Subscription covering and merging in
content-based publish/subscribe systems", ICDCS 2005.
"""

from collections.abc import Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import combinations
from typing import Final

from federator.protocol.filters.algebra import canonical, contains
from federator.protocol.filters.cover import CoverChange
from federator.protocol.filters.trie import FilterTrie
from federator.protocol.leaves.level_names import FAN_OUT, LevelNames

DEPTH: Final = 4.0
"""How much more ``a/#`` is assumed to match than ``a/+``."""

PAIRED_LEVELS_MAX: Final = 8
"""In filters with more levels, two levels are never replaced at once, except by ``#``."""

FILTERS_REMEMBERED_MAX: Final = 8_192
"""Filters with cached widenings: a hub advertises much the same to all its leaves."""

ROOM_IN: Final = 8
"""One part in so many stays free when a widening is split."""

WEIGHED_PER_STEP: Final = 256

Steps = Generator[None, None, CoverChange]
"""A change in progress: each ``next`` does a small part, and the generator returns the change of
the cover. Do not read or change the cover in between."""


class BoundedCover:
    """At most ``filters_max`` filters that contain a changing set of wanted ones.

    No two of them contain each other. Several covers may share ``names``.
    """

    def __init__(self, filters_max: int, names: LevelNames | None = None) -> None:
        assert filters_max >= 1, "one filter contains all"
        self._max = filters_max
        self._names = LevelNames() if names is None else names
        self._fan_outs = self._names.fan_outs  # by which the weights below were computed
        self._holders: dict[str, str] = {}  # wanted filter to the one of the cover that contains it
        self._below: dict[str, set[str]] = {}  # the inverse
        self._cover = FilterTrie()
        # How many filters of the cover each widening would contain.
        self._widenings: dict[str, int] = {}
        self._several: dict[float, set[str]] = {}  # those of more than one, by weight
        self._before: dict[str, bool] = {}  # touched by this change: was it in the cover?
        self.touched: set[str] = set()  # filters of the cover with changes below since then
        self._shrunk: set[str] = set()  # filters of the cover with fewer below by this change

    @property
    def filters(self) -> tuple[str, ...]:
        """The cover, sorted."""
        return tuple(sorted(self._below))

    def __len__(self) -> int:
        return len(self._below)

    def __contains__(self, filter: str) -> bool:
        return filter in self._below

    def wants(self, filter: str) -> bool:
        """Whether ``filter`` itself is wanted."""
        return filter in self._holders

    def holder(self, filter: str) -> str | None:
        """The filter of the cover that contains the wanted ``filter``."""
        return self._holders.get(filter)

    def below(self, holder: str) -> AbstractSet[str]:
        """The wanted filters that this filter of the cover contains."""
        return self._below[holder]

    def update(self, added: Iterable[str], removed: Iterable[str]) -> CoverChange:
        """Add and remove wanted filters; return the change of the cover."""
        return at_once(self.steps(added, removed))

    def steps(self, added: Iterable[str], removed: Iterable[str]) -> Steps:
        """Like ``update``, filter by filter: one wide filter may be split into 100,000."""
        self._before, self.touched = {}, set()
        self._shrunk = set()
        added = list(added)
        for filter in added:
            self._names.note(filter)
        wider = self._names.fan_outs is not self._fan_outs
        if wider:
            yield from self._weigh_again()
        for filter in removed:
            yield from self._remove(filter)
            yield
        for filter in added:
            if filter not in self._holders:
                self._add(filter)
                self._keep_bound()
                yield
        if wider:
            yield from self._let_wide_go()
        if self._shrunk:
            yield from self._narrow()
        changed = [f for f, was in sorted(self._before.items()) if was != (f in self._below)]
        return CoverChange(
            tuple(f for f in changed if f in self._below),
            tuple(f for f in changed if f not in self._below),
        )

    # One filter

    def _add(self, filter: str) -> None:
        holder = self._containing(filter)
        if holder is None:
            self._hold(filter, {filter})
        else:
            self._holders[filter] = holder
            self._below[holder].add(filter)
            self.touched.add(holder)

    def _remove(self, filter: str) -> Iterator[None]:
        holder = self._holders.pop(filter, None)
        if holder is None:
            return
        self._shrunk.add(holder)
        below = self._below[holder]
        below.discard(filter)
        self.touched.add(holder)
        if not below:
            self._let_go(holder)
        elif holder == filter:  # this filter alone made it so wide
            for inner in sorted(self._let_go(holder)):
                self._add(inner)
                self._keep_bound()
                yield

    def _containing(self, filter: str) -> str | None:
        if filter in self._below:
            return filter
        return self._cover.containing(filter)

    def _hold(self, holder: str, below: set[str]) -> None:
        """Put ``holder`` into the cover, in place of all filters that it contains."""
        for inner in self._cover.overlapping(holder):
            if contains(holder, inner):
                below |= self._let_go(inner)
        self._before.setdefault(holder, False)
        self.touched.add(holder)
        self._below[holder] = below
        for wanted in below:
            self._holders[wanted] = holder
        self._cover.add(holder)
        self._count(holder, 1)

    def _let_go(self, holder: str) -> set[str]:
        self._before.setdefault(holder, True)
        self._cover.discard(holder)
        self._count(holder, -1)
        return self._below.pop(holder)

    # Room

    def _count(self, holder: str, step: int) -> None:
        for widening in widenings(holder):
            count = self._widenings.get(widening, 0) + step
            if count:
                self._widenings[widening] = count
            else:
                del self._widenings[widening]
            if (count, step) == (2, 1):
                self._several.setdefault(self._weight(widening), set()).add(widening)
            elif (count, step) == (1, -1):
                alike = self._several[asks := self._weight(widening)]
                alike.discard(widening)
                if not alike:
                    del self._several[asks]

    def _keep_bound(self) -> None:
        """While there are too many, merge several into the filter that asks for the least more."""
        while len(self._below) > self._max:
            least = self._several[min(self._several)]
            self._hold(min(least, key=lambda f: (-self._widenings[f], _order(f))), set())

    def _narrow(self) -> Iterator[None]:
        """Split filters that are wider than needed, while there is room."""
        room = self._max - self._max // ROOM_IN - 1

        def may_fall_apart(holder: str) -> bool:
            below = len(self._below.get(holder, ()))
            return below == 1 or 0 < below <= room - len(self._below) + 1

        # In a full cover, the usual case, only a filter shrunk to one below makes no more of them.
        near = self._shrunk if len(self._below) >= room else self._below
        wide = [f for f in near if may_fall_apart(f) and f not in self._holders]
        for holder in sorted(wide, key=lambda f: (-self._weight(f), f)):
            if may_fall_apart(holder):
                for inner in sorted(self._let_go(holder)):
                    self._add(inner)
                    yield

    def _weight(self, filter: str) -> float:
        """The estimated share of all topics that ``filter`` matches."""
        return (DEPTH if filter.endswith("#") else 1.0) / self._fan_outs.names_of(filter)

    def _weigh_again(self) -> Iterator[None]:
        self._fan_outs = self._names.fan_outs
        self._several.clear()
        for number, (widening, count) in enumerate(self._widenings.items()):
            if count > 1:
                self._several.setdefault(self._weight(widening), set()).add(widening)
            if number % WEIGHED_PER_STEP == 0:
                yield

    def _let_wide_go(self) -> Iterator[None]:
        """Split filters that are too wide now that a level has many more names than assumed."""
        wide = [f for f in self._below if f not in self._holders]
        for holder in sorted(wide, key=lambda f: (-self._weight(f), f)):
            spacious = 2 * len(self._below) <= self._max
            narrower = self._several and FAN_OUT * min(self._several) <= self._weight(holder)
            if not (spacious or narrower):
                return
            for inner in sorted(self._let_go(holder)) if holder in self._below else ():
                self._add(inner)
                self._keep_bound()
                yield


def at_once(steps: Steps) -> CoverChange:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            change: CoverChange = done.value
            return change


def _order(filter: str) -> tuple[list[bool], str]:
    """Among filters that ask for as much, names usually differ at the later level."""
    return [level in ("+", "#") for level in filter.split("/")], filter


@lru_cache(maxsize=FILTERS_REMEMBERED_MAX)
def widenings(filter: str) -> tuple[str, ...]:
    """Filters that contain ``filter``: one or two levels replaced by ``+``, or the end by ``#``."""
    levels = filter.split("/")
    written = [at for at, level in enumerate(levels) if level not in ("+", "#")]
    wider_filters = {canonical("/".join([*levels[:at], "#"])) for at in range(len(levels))}
    for many in (1, 2) if len(levels) <= PAIRED_LEVELS_MAX else (1,):
        for replaced in combinations(written, many):
            wider = ["+" if at in replaced else level for at, level in enumerate(levels)]
            wider_filters.add(canonical("/".join(wider)))
    wider_filters.discard(filter)
    return tuple(wider_filters)
