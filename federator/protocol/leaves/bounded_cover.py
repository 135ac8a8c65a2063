"""A few filters that contain many: a cover that never has more than so many filters.

While there is room, the cover is what is wanted, without filters that another one contains. When
there is none, several filters become one that contains them (their *widening*): the one that asks
for the least, and among those that ask for as much the one that makes the most room. Nobody knows
what all others publish, so how much a filter asks for is estimated by its levels: each that is
written out lets one name through of all that were seen there (``level_names``). So ``site/7/a`` and
``site/7/b`` become ``site/7/+`` long before anything becomes ``site/+/a`` or ``#``.

A change moves little: what is added is contained already, finds room, or is widened with what is
nearest; what is gone takes its filter along when nothing else is below, and room that became free
lets the widest filter fall apart again. So the result depends on the order of changes, and a
neighbour that is told of it hears of a few filters at a time. A widening falls apart only when an
eighth of the room stays free: else one client that comes and goes would move it each time.

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
"""How much more ``a/#`` is taken to let through than ``a/+``."""

PAIRED_LEVELS_MAX: Final = 8
"""In filters with more levels, no two levels are replaced at once but by ``#``."""

FILTERS_REMEMBERED_MAX: Final = 8_192
"""Filters whose widenings are remembered: a hub tells its leaves much the same."""

ROOM_IN: Final = 8
"""One part in so many stays free when a widening falls apart."""

WEIGHED_PER_STEP: Final = 256

Steps = Generator[None, None, CoverChange]
"""A change under way: each ``next`` does a little of it, and in the end it says what has changed.
Nothing else may be asked or altered in between."""


class BoundedCover:
    """At most ``filters_max`` filters that contain a changing set of wanted ones.

    No two of them contain each other. Several covers may count ``names`` together.
    """

    def __init__(self, filters_max: int, names: LevelNames | None = None) -> None:
        assert filters_max >= 1, "one filter contains all"
        self._max = filters_max
        self._names = LevelNames() if names is None else names
        self._fan_outs = self._names.fan_outs  # by which weights below are
        self._holders: dict[str, str] = {}  # wanted filter to the one of the cover that contains it
        self._below: dict[str, set[str]] = {}  # the other way round
        self._cover = FilterTrie()
        self._widenings: dict[str, int] = {}  # what would contain how many of the cover
        self._several: dict[float, set[str]] = {}  # of these, those of more than one, by weight
        self._before: dict[str, bool] = {}  # touched by this change: was it in the cover?
        self.touched: set[str] = set()  # of the cover, those with other filters below since then
        self._shrunk: set[str] = set()  # of the cover: less is below by this change

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
        """Which filter of the cover asks for ``filter``, while that is wanted."""
        return self._holders.get(filter)

    def below(self, holder: str) -> AbstractSet[str]:
        """What is wanted and asked for by this filter of the cover."""
        return self._below[holder]

    def update(self, added: Iterable[str], removed: Iterable[str]) -> CoverChange:
        """Want ``added`` and no more ``removed``; what of the cover is new, and what is gone."""
        return at_once(self.steps(added, removed))

    def steps(self, added: Iterable[str], removed: Iterable[str]) -> Steps:
        """As ``update``, filter by filter: one that was wide may fall apart into 100,000."""
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
        elif holder == filter:  # so wide only by this one
            for each in sorted(self._let_go(holder)):
                self._add(each)
                self._keep_bound()
                yield

    def _containing(self, filter: str) -> str | None:
        if filter in self._below:
            return filter
        return self._cover.containing(filter)

    def _hold(self, holder: str, below: set[str]) -> None:
        """Put ``holder`` into the cover, in place of all that it contains."""
        for inner in self._cover.overlapping(holder):
            if contains(holder, inner):
                below |= self._let_go(inner)
        self._before.setdefault(holder, False)
        self.touched.add(holder)
        self._below[holder] = below
        for each in below:
            self._holders[each] = holder
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
        """While there are too many, let several become the one that asks for the least more."""
        while len(self._below) > self._max:
            least = self._several[min(self._several)]
            self._hold(min(least, key=lambda each: (-self._widenings[each], _order(each))), set())

    def _narrow(self) -> Iterator[None]:
        """Let filters that are wider than what is wanted fall apart, while there is room."""
        room = self._max - self._max // ROOM_IN - 1

        def may_fall_apart(holder: str) -> bool:
            below = len(self._below.get(holder, ()))
            return below == 1 or 0 < below <= room - len(self._below) + 1

        # In a full cover, which is the usual one, only what has shrunk to one filter makes no more.
        near = self._shrunk if len(self._below) >= room else self._below
        wide = [each for each in near if may_fall_apart(each) and each not in self._holders]
        for holder in sorted(wide, key=lambda each: (-self._weight(each), each)):
            if may_fall_apart(holder):
                for each in sorted(self._let_go(holder)):
                    self._add(each)
                    yield

    def _weight(self, filter: str) -> float:
        """How much ``filter`` is taken to ask for, of all there is."""
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
        """A level has many more names than was known: what is too wide for that falls apart."""
        wide = [each for each in self._below if each not in self._holders]
        for holder in sorted(wide, key=lambda each: (-self._weight(each), each)):
            spacious = 2 * len(self._below) <= self._max
            narrower = self._several and FAN_OUT * min(self._several) <= self._weight(holder)
            if not (spacious or narrower):
                return
            for each in sorted(self._let_go(holder)) if holder in self._below else ():
                self._add(each)
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
    """Of filters that ask for as much, names usually part at the later level."""
    return [level in ("+", "#") for level in filter.split("/")], filter


@lru_cache(maxsize=FILTERS_REMEMBERED_MAX)
def widenings(filter: str) -> tuple[str, ...]:
    """Filters that contain ``filter`` and may contain others: one or two levels less, or an end."""
    levels = filter.split("/")
    written = [at for at, level in enumerate(levels) if level not in ("+", "#")]
    found = {canonical("/".join([*levels[:at], "#"])) for at in range(len(levels))}
    for many in (1, 2) if len(levels) <= PAIRED_LEVELS_MAX else (1,):
        for replaced in combinations(written, many):
            wider = ["+" if at in replaced else level for at, level in enumerate(levels)]
            found.add(canonical("/".join(wider)))
    found.discard(filter)
    return tuple(found)
