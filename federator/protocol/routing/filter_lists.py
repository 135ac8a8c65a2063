"""Keeps a copy of a filter list that another broker owns.

The owner sends each change and the digest of the result. If the copy's digest agrees after the
change, the copy is right, whatever was missed before; if not, we request the whole list, in pages.
The digest is the XOR of the filters' keys, so order and repetition do not matter.

Source: docs/protocol.md 5.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise

from msgspec.structs import replace

from federator.protocol.filters import DigestedSet
from federator.protocol.links.links import Links
from federator.protocol.messages.control import (
    FILTER_LIST_BYTES_MAX,
    FILTERS_PER_MESSAGE_MAX,
    FilterListPage,
    ListKind,
)
from federator.protocol.signals import Step
from federator.protocol.types import BrokerId, Epoch, Millis

GREETING_FILTERS_MAX = 64
GREETING_BYTES_MAX = 4_096
PAGES_MAX = 4_096
LIST_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the pages of one list that is not complete yet."""

SMALL_CHANGE_MAX = 256
"""Filters processed in one turn: at some 0.04 ms each with all that follows, 10 ms."""

PAGE_GAP_MS = 5
"""Between two pages of long lists."""

LIST_FILTERS_MAX = 1_000_000
"""Filters of one remote list. More are not accepted, so the list stays out of sync."""


class RemoteList:
    """Our copy of one list, with at most ``filters_max`` filters."""

    __slots__ = (
        "_asked_at_ms",
        "_comes",
        "_coming",
        "_coming_bytes",
        "_coming_digest",
        "_filters_max",
        "_pages",
        "_wanted",
        "filters",
    )

    def __init__(self, *, filters_max: int = LIST_FILTERS_MAX) -> None:
        self.filters = DigestedSet()  # the copy; may lag behind while ``synced`` is false
        self._filters_max = filters_max
        self._wanted = 0
        self._asked_at_ms: Millis | None = None
        self._comes = False
        self._drop_pages(None)

    @property
    def synced(self) -> bool:
        """Whether the copy has the digest that the owner sent last."""
        return self.filters.digest == self._wanted

    def offer(
        self, added: Iterable[str], removed: Iterable[str], *, digest: int, busy: bool = False
    ) -> AbstractSet[str]:
        """Apply a change that leads to ``digest``; while ``busy``, only a small one.

        Returns the filters that were added or removed.
        """
        self._wanted = digest
        if self.synced:
            return frozenset()
        at_most = SMALL_CHANGE_MAX if busy else self._filters_max
        if digest == 0 and len(self.filters) <= at_most:  # the empty list needs no request
            went_all = self.filters.filters
            self.filters = DigestedSet()
            return went_all
        came = {f for f in added if f not in self.filters}
        went = {f for f in removed if f in self.filters and f not in came}
        if len(self.filters) + len(came) - len(went) > self._filters_max:
            return frozenset()
        if len(came) + len(went) > at_most:
            return frozenset()
        self.filters.apply(came, went)
        return came | went

    def may_ask(self, *, busy: bool = False, now_ms: Millis, gap_ms: Millis) -> bool:
        """Whether to request the whole list now: it is needed and ``gap_ms`` have passed.

        Records the request. While pages arrive, no other request is needed.
        """
        if self.synced or busy:
            return False
        if self._asked_at_ms is not None and now_ms - self._asked_at_ms < gap_ms:
            return False
        self._asked_at_ms = now_ms
        ask, self._comes = not self._comes, False
        return ask

    def on_page(self, page: FilterListPage, *, busy: bool = False) -> AbstractSet[str]:
        """Collect a page; the last one replaces the copy.

        Returns the added and removed filters; the result is valid until the next call.
        """
        if busy or self.synced or self._asked_at_ms is None:
            return frozenset()
        if not page.page < page.pages <= PAGES_MAX:
            return frozenset()
        if self._coming_digest != page.digest:
            self._drop_pages(page.digest)
        if page.page not in self._pages:
            self._pages.add(page.page)
            self._comes = len(self._pages) < page.pages
            self._coming.apply(added=page.filters)
            self._coming_bytes += sum(map(len, page.filters))
        if len(self._coming) > self._filters_max or self._coming_bytes > LIST_BYTES_MAX:
            self._drop_pages(page.digest)
            return frozenset()
        if len(self._pages) < page.pages:
            return frozenset()
        before, whole = self.filters, self._coming
        self._drop_pages(None)
        if whole.digest != page.digest:
            return frozenset()  # pages of two states of the list were mixed: request it again
        # A first list is long more often than a change, and comparing all of it takes time.
        if not before:
            self.filters = whole
            return whole.filters
        came, went = whole.filters - before.filters, before.filters - whole.filters
        before.apply(came, went)  # others hold the strings that were here before
        return came | went

    def _drop_pages(self, digest: int | None) -> None:
        """Start collecting the list with ``digest``."""
        self._coming_digest = digest
        self._pages: set[int] = set()
        self._coming = DigestedSet()
        self._coming_bytes = 0


class ListSender:
    """Sends whole lists: a short one at once, a long one page by page."""

    def __init__(self, links: Links, kind: ListKind) -> None:
        self.due_ms: Millis | None = None  # when ``on_deadline`` is due
        self._links = links
        self._kind = kind
        self._sending: dict[tuple[BrokerId, BrokerId], tuple[int, Iterator[FilterListPage]]] = {}

    def send(
        self, to: BrokerId, core: BrokerId, filters: DigestedSet, *, epoch: Epoch, now_ms: Millis
    ) -> list[Step]:
        """Send the ``filters`` of ``core``, unless they are being sent already."""
        sending, _ = self._sending.get((to, core), (None, None))
        if sending == filters.digest:
            return []
        self_id, digest = self._links.self_id, filters.digest
        blank = FilterListPage(
            self_id, self._kind, core, epoch, digest, page=0, pages=0, filters=()
        )
        pages = pages_of(filters.filters, blank)
        self._sending[to, core] = (digest, pages)
        if len(filters) <= FILTERS_PER_MESSAGE_MAX:
            return self._send_page(to, core, now_ms)
        self._go_on(now_ms)  # splitting a long list takes a turn of its own
        return []

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Send the next page of one of the lists; they take turns."""
        if self.due_ms is None or now_ms < self.due_ms:
            return []
        self.due_ms = None
        return self._send_page(*next(iter(self._sending)), now_ms)

    def _send_page(self, to: BrokerId, core: BrokerId, now_ms: Millis) -> list[Step]:
        digest, pages = self._sending.pop((to, core))
        page = next(pages)
        if page.page + 1 < page.pages and self._links.cost_to(to) is not None:
            self._sending[to, core] = (digest, pages)
        self._go_on(now_ms)
        return self._links.send(to, page)

    def _go_on(self, now_ms: Millis) -> None:
        if self._sending and self.due_ms is None:
            self.due_ms = Millis(now_ms + PAGE_GAP_MS)


def pages_of(filters: Collection[str], blank: FilterListPage) -> Iterator[FilterListPage]:
    """Split the present list into messages of bounded size, all else as in ``blank``.

    An empty list is one empty page. Each page is sorted by itself: sorting a long list would take
    longer than all else here.
    """
    listed = list(filters)
    ends = list(accumulate(map(len, listed)))
    cuts = [0]
    while cuts[-1] < len(listed) or len(cuts) == 1:
        start = cuts[-1]
        before = ends[start - 1] if start else 0
        fitting = bisect_right(ends, before + FILTER_LIST_BYTES_MAX, lo=start)
        cuts.append(min(fitting, start + FILTERS_PER_MESSAGE_MAX))
    for number, (start, end) in enumerate(pairwise(cuts)):
        part = tuple(sorted(listed[start:end]))
        yield replace(blank, page=number, pages=len(cuts) - 1, filters=part)


def as_greeting(filters: DigestedSet) -> tuple[str, ...]:
    """The whole list for a new neighbour when it is short, else nothing: it will request it."""
    if len(filters) > GREETING_FILTERS_MAX:
        return ()
    short = sum(len(f.encode()) for f in filters.filters) <= GREETING_BYTES_MAX
    return tuple(sorted(filters.filters)) if short else ()


def as_delta(
    added: Collection[str], removed: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The change in wire order, or nothing when it is too long for one message.

    A receiver that needs what was left out notices by the digest.
    """
    if max(len(added), len(removed)) > FILTERS_PER_MESSAGE_MAX:
        return (), ()
    if sum(map(len, added)) + sum(map(len, removed)) > FILTER_LIST_BYTES_MAX:
        return (), ()
    return tuple(sorted(added)), tuple(sorted(removed))
