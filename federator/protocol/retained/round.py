"""One comparison of retained values: read offers, compare versions, request what is newer.

Two librarians compare catalogues before any book is carried: first 64 digests per filter, then the
entries of the buckets that differ, and only then the values that one of them lacks. No value is
fetched before every catalogue was read, so that of several versions only the newest is delivered,
once. At the end each peer is sent the list of its out-of-date entries.

Source: docs/protocol.md 13; anti-entropy as in Demers et al., "Epidemic algorithms for replicated
database maintenance", 1987.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from federator.protocol.filters import matches
from federator.protocol.messages.control import (
    RETAINED_ENTRIES_MAX,
    RetainedAsk,
    RetainedBody,
    RetainedEntry,
    RetainedNews,
    RetainedOffer,
    RetainedPage,
    RetainedPull,
    RetainedValues,
)
from federator.protocol.retained.long_values import LongValue
from federator.protocol.retained.store import Buckets, Entry, RetainedStore
from federator.protocol.retained.versions import NEVER, Version
from federator.protocol.types import BrokerId

PULLS_AT_ONCE_MAX = 4
ASK_TOPICS_MAX = 256
DECIDED_AT_ONCE_MAX = 512
LETTER_CHARS_MAX = 65_536

Way = tuple[BrokerId, ...]
"""The brokers from us to a peer, both included."""

Post = list[tuple[Way, RetainedBody]]
"""Letters to send, each with its way."""


@dataclass(slots=True)
class _Pull:
    """Pages of one peer's entries below one filter."""

    way: Way
    filter: str
    mask: int
    after: str = ""
    vain: bool = True  # no entry came


@dataclass(slots=True)
class _Newest:
    """The newest entry seen for a topic, and the peer that has it."""

    way: Way
    filter: str
    version: Version
    digest: int
    deleted: bool


@dataclass(eq=False)
class Round:
    """One comparison of our entries with those of peers."""

    store: RetainedStore  # our entries: read, and updated in ``decide``
    wanted: Callable[[str], bool]  # whether our broker should have a topic
    # The digests of what our broker has, where the store has no place for it.
    found: Callable[[str], int | None] = lambda topic: None
    own: Mapping[str, Buckets] = field(default_factory=dict)  # our digests, by filter

    def __post_init__(self) -> None:
        self._waiting: deque[_Pull] = deque()
        self._pulls: dict[tuple[BrokerId, str], _Pull] = {}
        self._newest: dict[str, _Newest] = {}
        # Versions that peers have, and that are out of date.
        self._behind: dict[tuple[Way, str], dict[str, Version]] = {}
        self._requests: deque[tuple[Way, str, list[str]]] = deque()
        self._open_request: tuple[Way, str, list[str]] | None = None
        self._long = LongValue()
        self._vanished = 0

    @property
    def reading(self) -> bool:
        """Whether pages are still expected."""
        return bool(self._pulls or self._waiting)

    def on_offer(self, way: Way, offer: RetainedOffer) -> Post:
        """Handle a peer's digests: request the buckets that differ."""
        filter = offer.filter
        own = self.own.get(filter, {})
        mask = sum(1 << b for b, digest in dict(offer.buckets).items() if own.get(b) != digest)
        if mask:
            self._waiting.append(_Pull(way, filter, mask))
        return self._start_pulls()

    def on_page(self, way: Way, page: RetainedPage) -> Post:
        """Handle a page of a peer's entries."""
        key = (way[-1], page.filter)
        pull = self._pulls.get(key)
        if pull is None or page.after != pull.after:
            return []
        pull.vain &= not page.entries
        for entry in page.entries:
            self._weigh(pull.way, pull.filter, entry)
        pull.after = page.upto
        if page.last or page.upto <= page.after:
            # The peer has more than it can remember, and must look again.
            self._vanished += pull.vain
            del self._pulls[key]
            return self._start_pulls()
        return [(pull.way, RetainedPull(pull.filter, pull.mask, pull.after))]

    def on_news(self, way: Way, news: RetainedNews) -> None:
        """Handle entries of which a peer has newer versions."""
        for entry in news.entries:
            self._weigh(way, news.filter, entry)

    def give_up_reading(self) -> int:
        """Stop waiting for pages; return how many lists stay unread."""
        unread = len(self._pulls) + len(self._waiting) + self._vanished
        self._pulls.clear()
        self._waiting.clear()
        return unread

    def set_aside(self, filter: str) -> Post:
        """Leave what is below ``filter`` to another comparison, and continue with the rest."""
        for key in [key for key in self._pulls if key[1] == filter]:
            del self._pulls[key]
        self._waiting = deque(pull for pull in self._waiting if pull.filter != filter)
        self._requests = deque(ask for ask in self._requests if ask[1] != filter)
        self._newest = {t: newest for t, newest in self._newest.items() if newest.filter != filter}
        return self._start_pulls()

    def few_first(self) -> None:
        """Request values below filters with few values first."""
        sizes = Counter(ask[1] for ask in self._requests)
        self._requests = deque(sorted(self._requests, key=lambda ask: sizes[ask[1]]))

    @property
    def undecided(self) -> bool:
        """Whether ``decide`` has more to do."""
        return bool(self._newest)

    def decide(self, now_us: int) -> tuple[list[tuple[str, Version]], int]:
        """Adopt some versions, and decide which values to request.

        Returns:
            Topics to delete on our broker, with the version of the delete; and how many versions
            were adopted for values that we hold already.
        """
        erase: list[tuple[str, Version]] = []
        adopted = 0
        store = self.store
        asks: dict[tuple[Way, str], list[str]] = {}
        for topic in list(islice(self._newest, DECIDED_AT_ONCE_MAX)):
            newest = self._newest.pop(topic)
            own = store.get(topic)
            if own is not None and own.version >= newest.version:
                continue
            if newest.deleted and own is not None and not own.deleted:
                erase.append((topic, newest.version))
            elif newest.deleted:
                if own is not None or not store.is_expired(newest.version, now_us):
                    store.put(topic, newest.version, 0, deleted=True, now_us=now_us)
            elif own is not None and own.digest == newest.digest and own.here and not own.deleted:
                store.put(topic, newest.version, newest.digest, deleted=False, now_us=now_us)
                adopted += 1
            elif store.refuses(topic, newest.digest):
                continue
            elif own is not None or self.found(topic) != newest.digest:
                asks.setdefault((newest.way, newest.filter), []).append(topic)
        for (way, filter), topics in asks.items():
            for some in _parts(topics, ASK_TOPICS_MAX):
                self._requests.append((way, filter, some))
        return erase, adopted

    def next_ask(self) -> tuple[Way, RetainedAsk] | None:
        """The next request for a few values; the previous one is done.

        Topics that are no longer wanted are not requested.
        """
        self._open_request = None
        while self._requests:
            way, filter, topics = self._requests.popleft()
            if topics := [topic for topic in topics if self.wanted(topic)]:
                self._open_request = way, filter, topics
                at = self._long.next_at(way[-1], topics[0])
                return way, RetainedAsk(filter, tuple(topics), at)
        return None

    def on_values(
        self, way: Way, values: RetainedValues
    ) -> list[tuple[RetainedEntry, bytes]] | None:
        """The requested values that we still lack; ``None``: this answers no request of ours.

        Values that did not fit will be requested next.
        """
        asked = self._open_request
        if asked is None or way[-1] != asked[0][-1] or values.filter != asked[1]:
            return None
        if values.size:
            return self._on_part(asked, values)
        missing = dict.fromkeys(asked[2])
        taken = []
        for entry, packet in zip(values.entries, values.packets, strict=False):
            if entry.topic in missing:
                del missing[entry.topic]
                taken.append((entry, packet))
        if missing and taken:
            self._requests.appendleft((asked[0], asked[1], list(missing)))
        self._open_request = None
        return taken

    def _on_part(
        self, asked: tuple[Way, str, list[str]], values: RetainedValues
    ) -> list[tuple[RetainedEntry, bytes]]:
        """Take a part of the first available value; queue the next part, or other values."""
        way, filter, topics = asked
        whole, self._open_request = None, None
        for entry, part in zip(values.entries[:1], values.packets, strict=False):
            if entry.topic in topics:
                topics = topics[topics.index(entry.topic) :]
                self._long.next_at(way[-1], entry.topic)
                whole = self._long.put(entry, part, at=values.at, size=values.size)
        if whole != b"":
            topics = topics[1:]
        if topics:
            self._requests.appendleft((way, filter, topics))
        return [(values.entries[0], whole)] if whole else []

    def news(self) -> Iterator[tuple[Way, RetainedBody]]:
        """For peers: their entries that are out of date."""
        for (way, filter), theirs in self._behind.items():
            for topics in _parts(theirs, RETAINED_ENTRIES_MAX):
                newer = tuple(
                    as_entry(topic, entry)
                    for topic in topics
                    if (entry := self.store.get(topic)) and entry.version > theirs[topic]
                )
                if newer:
                    yield way, RetainedNews(filter, newer)

    def _start_pulls(self) -> Post:
        post: Post = []
        while self._waiting and len(self._pulls) < PULLS_AT_ONCE_MAX:
            pull = self._waiting.popleft()
            key = (pull.way[-1], pull.filter)
            if key not in self._pulls:
                self._pulls[key] = pull
                post.append((pull.way, RetainedPull(pull.filter, pull.mask, "")))
        return post

    def _weigh(self, way: Way, filter: str, entry: RetainedEntry) -> None:
        topic, version = entry.topic, version_of(entry)
        if not matches(filter, topic):
            return
        own = self.store.get(topic)
        best = self._newest.get(topic)
        newest = max(
            own.version if own is not None else NEVER, best.version if best is not None else NEVER
        )
        if version < newest:
            self._behind.setdefault((way, filter), {})[topic] = version
        elif version > newest and self.wanted(topic):
            if best is not None:
                self._behind.setdefault((best.way, best.filter), {})[topic] = best.version
            self._newest[topic] = _Newest(way, filter, version, entry.digest, entry.deleted)


def answer_pull(store: RetainedStore, pull: RetainedPull) -> RetainedPage:
    """The page of our entries that ``pull`` asks for."""
    after, count, chars = pull.after, RETAINED_ENTRIES_MAX, LETTER_CHARS_MAX
    listed, upto = store.page(pull.filter, mask=pull.mask, after=after, count=count, chars=chars)
    entries = tuple(as_entry(topic, entry) for topic, entry in listed)
    return RetainedPage(pull.filter, after, upto or after, not upto, entries)


def make_offer(filter: str, buckets: Buckets) -> RetainedOffer:
    """The offer with our digests below ``filter``."""
    return RetainedOffer(filter, tuple(sorted(buckets.items())))


def as_entry(topic: str, entry: Entry) -> RetainedEntry:
    """``entry`` in its wire form."""
    return RetainedEntry(topic, *entry.version, entry.digest, entry.deleted)


def version_of(entry: RetainedEntry) -> Version:
    return Version(entry.time_us, entry.number, entry.origin)


def _parts(topics: Iterable[str], count: int) -> Iterator[list[str]]:
    """Parts of ``topics`` that each fit a letter."""
    part: list[str] = []
    chars = 0
    for topic in topics:
        if part and (len(part) == count or chars + len(topic) > LETTER_CHARS_MAX):
            yield part
            part, chars = [], 0
        part.append(topic)
        chars += len(topic)
    if part:
        yield part
