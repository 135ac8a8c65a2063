"""Keeping a copy of a filter list that somebody else owns.

The owner says what changed and the digest of the result. A copy whose digest agrees after the
change is right, whatever was missed before; one whose digest differs asks for the whole list, in
pages.
The digest is the XOR of the filters' keys, so order and repetition do not matter.

Source: docs/protocol.md 5.
"""

from collections.abc import Iterable, Iterator

from federator.protocol.filters import DigestedSet, digest_of
from federator.protocol.messages.control import (
    FILTER_LIST_BYTES_MAX,
    FILTERS_PER_MESSAGE_MAX,
    FilterListPage,
    ListKind,
)
from federator.protocol.types import BrokerId, Epoch, Millis

GREETING_FILTERS_MAX = 64
GREETING_BYTES_MAX = 4_096
PAGES_MAX = 4_096
LIST_BYTES_MAX = 64 * 1024 * 1024
"""Of pages of one list that is not complete yet."""

LIST_FILTERS_MAX = 1_000_000
"""Filters of one remote list. More are not taken, so that the list stays out of step."""


class RemoteList:
    """Our copy of one list.

    Args:
        filters_max: Filters taken at most.

    Attributes:
        filters: The copy; may lag behind while ``synced`` is false.
    """

    __slots__ = (
        "_asked_at_ms",
        "_filters_max",
        "_pages",
        "_pages_bytes",
        "_pages_digest",
        "_pages_filters",
        "_wanted",
        "filters",
    )

    def __init__(self, *, filters_max: int = LIST_FILTERS_MAX) -> None:
        self.filters = DigestedSet()
        self._filters_max = filters_max
        self._wanted = 0
        self._asked_at_ms: Millis | None = None
        self._drop_pages(None)

    @property
    def synced(self) -> bool:
        """Whether the copy has the digest that the owner named last."""
        return self.filters.digest == self._wanted

    def offer(self, added: Iterable[str], removed: Iterable[str], *, digest: int) -> frozenset[str]:
        """Follow a change towards ``digest``. Returns the filters that came or went."""
        self._wanted = digest
        if self.synced:
            return frozenset()
        if digest == 0:  # the empty list needs no explanation
            went_all = frozenset(self.filters.filters)
            self.filters.apply(removed=went_all)
            return went_all
        came = {f for f in added if f not in self.filters}
        went = {f for f in removed if f in self.filters and f not in came}
        if len(self.filters) + len(came) - len(went) > self._filters_max:
            return frozenset()
        self.filters.apply(came, went)
        return frozenset(came | went)

    def may_ask(self, *, now_ms: Millis, gap_ms: Millis) -> bool:
        """Note that the whole list is asked for, if it is needed and ``gap_ms`` have passed."""
        if self.synced:
            return False
        if self._asked_at_ms is not None and now_ms - self._asked_at_ms < gap_ms:
            return False
        self._asked_at_ms = now_ms
        return True

    def on_page(self, page: FilterListPage) -> frozenset[str]:
        """Collect a page; with the last one replace the copy. Returns what came or went."""
        if self.synced or self._asked_at_ms is None or not page.page < page.pages <= PAGES_MAX:
            return frozenset()
        if self._pages_digest != page.digest:
            self._drop_pages(page.digest)
        if page.page not in self._pages:
            self._pages[page.page] = page.filters
            self._pages_filters += len(page.filters)
            self._pages_bytes += sum(map(len, page.filters))
        if self._pages_filters > self._filters_max or self._pages_bytes > LIST_BYTES_MAX:
            self._drop_pages(page.digest)
            return frozenset()
        if len(self._pages) < page.pages:
            return frozenset()
        whole = {f for filters in self._pages.values() for f in filters}
        self._drop_pages(None)
        if digest_of(whole) != page.digest:
            return frozenset()  # pages of two states of the list were mixed: it is asked for again
        came = whole - self.filters.filters
        went = self.filters.filters - whole
        self.filters.apply(came, went)
        return frozenset(came | went)

    def _drop_pages(self, digest: int | None) -> None:
        """Collect anew, the list with ``digest``."""
        self._pages_digest = digest
        self._pages: dict[int, tuple[str, ...]] = {}
        self._pages_filters = self._pages_bytes = 0


def pages_of(
    filters: Iterable[str],
    *,
    sender: BrokerId,
    kind: ListKind,
    core: BrokerId,
    epoch: Epoch,
    digest: int,
) -> Iterator[FilterListPage]:
    """The whole list, cut into messages of bounded size. An empty list is one empty page."""
    pages: list[list[str]] = [[]]
    room = FILTER_LIST_BYTES_MAX
    for filter_ in sorted(filters):
        size = len(filter_.encode())
        if pages[-1] and (size > room or len(pages[-1]) >= FILTERS_PER_MESSAGE_MAX):
            pages.append([])
            room = FILTER_LIST_BYTES_MAX
        pages[-1].append(filter_)
        room -= size
    for number, page in enumerate(pages):
        yield FilterListPage(
            sender=sender,
            kind=kind,
            core=core,
            epoch=epoch,
            digest=digest,
            page=number,
            pages=len(pages),
            filters=tuple(page),
        )


def as_greeting(filters: DigestedSet) -> tuple[str, ...]:
    """The whole list for a new neighbour when it is short, else nothing: it will ask."""
    if len(filters) > GREETING_FILTERS_MAX:
        return ()
    short = sum(len(f.encode()) for f in filters.filters) <= GREETING_BYTES_MAX
    return tuple(sorted(filters.filters)) if short else ()


def as_delta(
    added: Iterable[str], removed: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The change in the order of the wire, or nothing when it is too long to send along.

    Whoever needs what was left out notices by the digest.
    """
    come, go = tuple(sorted(added)), tuple(sorted(removed))
    if len(come) > FILTERS_PER_MESSAGE_MAX or len(go) > FILTERS_PER_MESSAGE_MAX:
        return (), ()
    if sum(len(f.encode()) for f in come + go) > FILTER_LIST_BYTES_MAX:
        return (), ()
    return come, go
