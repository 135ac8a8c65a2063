"""The subscriptions an agent holds so that each wanted publication reaches it exactly once.

A broker sends one copy per subscription that matches, so overlapping filters would bring a
publication twice. The cover is the finest set of filters of which no two overlap and which
contains every wanted filter: while two filters overlap, their join takes their place. The order
does not matter. Take any non-overlapping set of joins around the wanted filters: two filters below
its members that overlap lie below the same member, and so does their join. So every order ends at
or below that set, hence all in the same one, the finest.

Each cover filter remembers the wanted filters below it, and a few *witnesses* among them that
suffice to force it. Removing any other wanted filter changes nothing; removing a witness builds
this one group again. A cover filter that is itself the only wanted one, by far the common case,
costs a trie entry and nothing else.

Source: docs/ARCHITECTURE.md, "When the cover changes".
"""

from collections.abc import Iterable
from dataclasses import dataclass

from federator.protocol.filters.algebra import canonical, join
from federator.protocol.filters.sparse import is_sparse
from federator.protocol.filters.syntax import may_travel
from federator.protocol.filters.trie import FilterTrie


@dataclass(frozen=True, slots=True)
class CoverChange:
    """Subscriptions to change, each sorted."""

    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.subscribe or self.unsubscribe)


@dataclass(slots=True)
class _Group:
    """The wanted filters below one cover filter, and those that force it."""

    wanted: set[str]
    witnesses: set[str]


class Cover:
    """A non-overlapping cover of a changing set of wanted filters."""

    __slots__ = ("_cover", "_gone", "_groups", "_new")

    def __init__(self) -> None:
        self._cover = FilterTrie()
        self._groups: dict[str, _Group] = {}  # a cover filter without one is wanted, alone
        self._new: set[str] = set()
        self._gone: set[str] = set()

    @property
    def filters(self) -> tuple[str, ...]:
        """The cover, sorted."""
        return tuple(sorted(self._cover))

    def covering(self, filter: str) -> str | None:
        """Return the cover filter below which ``filter`` is wanted, if it is wanted."""
        for cover in self._cover.overlapping(filter):
            group = self._groups.get(cover)
            if filter in group.wanted if group else filter == cover:
                return cover
        return None

    def update(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> CoverChange:
        """Remove, then add, wanted filters: one named in both is wanted. Repetitions alter nothing.

        Raises:
            ValueError: An added filter starts with ``$``; nothing has changed.
        """
        added = list(added)
        for filter in added:
            if not may_travel(filter):
                raise ValueError(f"filter {filter!a}: what starts with '$' does not travel")
        self._remove(removed)
        for filter in added:
            self._add(filter)
        if is_sparse(self._groups):
            self._groups = dict(self._groups)
        change = CoverChange(tuple(sorted(self._new)), tuple(sorted(self._gone)))
        self._new, self._gone = set(), set()
        return change

    def _remove(self, removed: Iterable[str]) -> None:
        unproven: set[str] = set()
        for filter in removed:
            cover = self.covering(filter)
            if cover is None:
                continue
            group = self._groups.get(cover)
            if group is None:
                self._drop(cover)
                continue
            group.wanted.discard(filter)
            if is_sparse(group.wanted):
                group.wanted = set(group.wanted)
            if filter in group.witnesses:
                unproven.add(cover)
            elif group.wanted == {cover}:
                del self._groups[cover]
        for cover in unproven:
            group = self._drop(cover)
            for filter in group.wanted:
                self._add(filter)

    def _add(self, filter: str) -> None:
        joined = canonical(filter)
        wanted, witnesses = {filter}, {filter}
        while overlapping := self._cover.overlapping(joined):
            for cover in overlapping:
                wider = join(joined, cover)
                if wider == cover:  # then no other overlaps: it would overlap this one
                    self._put_below(cover, filter)
                    return
                group = self._drop(cover)
                wanted = _union(wanted, group.wanted)
                if wider != joined:
                    witnesses = witnesses | group.witnesses
                joined = wider
        self._cover.add(joined)
        self._note(joined, self._new, self._gone)
        if wanted != {joined}:
            self._groups[joined] = _Group(wanted, witnesses)

    def _put_below(self, cover: str, filter: str) -> None:
        """Put ``filter`` below ``cover``, which contains it and stays."""
        group = self._groups.get(cover)
        if group is not None:
            group.wanted.add(filter)
        elif filter != cover:
            self._groups[cover] = _Group({cover, filter}, {cover})

    def _drop(self, cover: str) -> _Group:
        self._cover.discard(cover)
        self._note(cover, self._gone, self._new)
        return self._groups.pop(cover, None) or _Group({cover}, {cover})

    def _note(self, cover: str, into: set[str], undoes: set[str]) -> None:
        if cover in undoes:
            undoes.discard(cover)
        else:
            into.add(cover)


def _union(a: set[str], b: set[str]) -> set[str]:
    """Return the union, built in the larger set, so that no filter moves often."""
    small, large = (a, b) if len(a) < len(b) else (b, a)
    large |= small
    return large
