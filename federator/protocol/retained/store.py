"""What one agent knows of retained values: per topic the newest version, never the value itself.

It is a library catalogue, not the library: the broker holds the values. An entry says which version
of a topic is the newest known, the hash of its payload, whether it is a delete (a tombstone, kept
for a while so that an old value cannot come back), and whether our own broker is known to hold it.

Not everything that happens on our broker passes through the agent: topics that no other broker
wants are not subscribed. So now and then the agent scans what the broker retains, and classifies
each value (``on_found``):

- as known: nothing to do;
- different, and our broker held the known state before: a client changed it unseen. The change
  gets a version just after that of the value it replaced (``Version.successor``), so it wins over
  that value, and loses to any that was seen being set later;
- different, after the broker restarted: it may be new, or come from an old file. It gets the oldest
  version possible: any known version, ours or another broker's, replaces it.

Source: docs/protocol.md 13.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.keeping import Keeping
from federator.protocol.retained.places import TOPICS_MAX, Places, SortedNames
from federator.protocol.retained.versions import NEVER, Version
from federator.protocol.types import BrokerId

BUCKETS = 64
STEP_TOPICS_MAX = 1_000
KEPT_AT_ONCE_MAX = 4
"""For so many topics one step asks whether they are kept: each may match many filters."""

PAGE_STEPS_MAX = 4
"""How many steps look for the entries of one page, whether or not they find any."""

REFUSED_MAX = 4_096
"""Refused values that are remembered; the oldest are forgotten first."""

Buckets = dict[int, int]
"""The digest of the entries of each bucket; empty buckets are left out."""


class Verdict(Enum):
    """What to do with an arriving value."""

    NEWER = "newer"
    SAME = "same"
    OLDER = "older"


class Entry(NamedTuple):
    """What we know about one topic."""

    version: Version  # of the newest state known
    digest: int  # of its payload
    deleted: bool  # it is a tombstone
    here: bool  # our broker is known to have this state
    bucket: int  # the part of the digests that the topic belongs to
    mark: int  # a number for topic, version and payload, from which digests are made
    touched: int  # the number of the change that made this entry, or updated ``here``
    noted_us: int  # when we learnt of it, or its version's time if that is later


class Saved(msgspec.Struct, array_like=True, frozen=True):
    """One entry on disk."""

    topic: str
    time_us: int
    number: int
    origin: int
    digest: int
    deleted: bool
    here: bool
    noted_us: int


class RetainedStore:
    """The entries of one agent.

    Args:
        topics_max: Entries held, tombstones included; ``Places`` decides which.
        tombstone_keep_us: How long a delete is remembered.
        allows_export: Whether values of our own clients on a topic may leave our broker.
        kept: Whether they stay for now, because only collectors want the topic: what a scan finds
            there is no news for other brokers.
        keeping: Whether any topics are kept.
    """

    def __init__(
        self,
        self_id: BrokerId,
        *,
        topics_max: int = TOPICS_MAX,
        tombstone_keep_us: int,
        allows_export: Callable[[str], bool] = lambda topic: True,
        kept: Callable[[str], bool] = lambda topic: False,
        keeping: Keeping | None = None,
    ) -> None:
        self.places = Places(self_id, topics_max=topics_max)
        self.touched = 0  # grows with every change
        # Called when ``take_changes`` has something to return.
        self.on_change: Callable[[], None] = lambda: None
        self._self_id = self_id
        self._unknown = Version(0, 0, self_id)
        self._keep_us = tombstone_keep_us
        self._allows_export = allows_export
        self._kept = kept
        self._keeping = keeping or Keeping()
        self._entries: dict[str, Entry] = {}
        self._names = SortedNames()
        self.tombstones = 0  # how many entries are deletes
        self._changed: dict[str, None] = {}  # since take_changes
        self._refused: Recent[str, int] = Recent(REFUSED_MAX)  # digests of payloads
        # Entries touched before this number say nothing about our broker's state.
        self._restarted = 0

    def __len__(self) -> int:
        return len(self._entries)

    def newest(self) -> Version:
        return max((entry.version for entry in self._entries.values()), default=NEVER)

    def get(self, topic: str) -> Entry | None:
        entry = self._entries.get(topic)
        if entry is not None and entry.here and entry.touched < self._restarted:
            entry = self._entries[topic] = entry._replace(here=False)
        return entry

    def admit(
        self,
        topic: str,
        version: Version,
        digest: int,
        *,
        deleted: bool,
        here: bool = True,
        now_us: int,
    ) -> Verdict:
        """Classify a value that our broker is about to get; record a newer one."""
        entry = self.get(topic)
        if entry is not None:
            if version < entry.version:
                return Verdict.OLDER
            if version == entry.version and entry.here:
                return Verdict.SAME
        self.put(topic, version, digest, deleted=deleted, here=here, now_us=now_us)
        return Verdict.NEWER

    def put(
        self,
        topic: str,
        version: Version,
        digest: int,
        *,
        deleted: bool,
        here: bool = True,
        found: bool = False,
        now_us: int,
    ) -> None:
        """Record the state of ``topic``, whatever was known before.

        ``found``: its origin is unknown; it takes no other topic's place.
        """
        before = self._entries.get(topic)
        if before is None:
            self._names.add(topic)
        else:
            self.tombstones -= before.deleted
        self.touched += 1
        self.tombstones += deleted
        mark, noted_us = _mark(topic, version, digest, deleted), max(version.time_us, now_us)
        self._entries[topic] = Entry(
            version, digest, deleted, here, bucket_of(topic), mark, self.touched, noted_us
        )
        gave_way, gone = self.places.take(
            topic, version.origin, found=found or version == self._unknown
        )
        self._note(topic)
        if gave_way is not None:
            self._changed[gave_way] = None
            self.on_change()
        if gone is not None:
            self._forget(gone)

    def doubt(self, topic: str) -> None:
        """Record that our broker may not have the known state of ``topic``."""
        entry = self._entries.get(topic)
        if entry is not None:
            self._know(topic, entry, here=False)

    def doubt_others(self, *, since_us: int) -> None:
        """Doubt values of others that we wrote after ``since_us``: they may have been lost.

        Values of our own clients came from our broker, so it has them.
        """
        for topic, entry in list(self._entries.items()):
            if entry.noted_us >= since_us and entry.version.origin != self._self_id:
                self._know(topic, entry, here=False)

    def refuse(self, topic: str, digest: int) -> None:
        """Record that our broker refuses this value: it is not to be fetched again."""
        self.doubt(topic)
        self._refused.put(topic, digest)

    def refuses(self, topic: str, digest: int) -> bool:
        """Whether our broker refused this value since it started."""
        return self._refused.get(topic) == digest

    def broker_restarted(self) -> None:
        """Doubt everything: what our broker holds after a restart, and takes, is unknown."""
        self._refused.clear()
        self.touched += 1
        self._restarted = self.touched
        self._changed = dict.fromkeys(self._entries)
        self.on_change()

    def on_found(
        self, found: Mapping[str, int], *, since: int, now_us: int, seen_us: int = 0
    ) -> list[str]:
        """Classify values that our broker holds.

        Args:
            found: The digest of each payload, by topic: all that a scan found, or some.
            since: ``touched`` when the scan began: entries changed later are not judged.
            now_us: Wall clock.
            seen_us: When all this was scanned before: what differs was set later. 0: never.

        Returns:
            Topics that were deleted elsewhere and must be deleted on our broker.
        """
        return [
            topic
            for topic, digest in found.items()
            if self._place(topic, digest, since=since, now_us=now_us, seen_us=seen_us)
        ]

    def on_scanned(
        self,
        filters: Iterable[str],
        found: Collection[str],
        *,
        since: int,
        now_us: int,
        seen_us: int = 0,
    ) -> Iterator[None]:
        """Handle what our broker no longer holds, a part with each step.

        Args:
            filters: What was scanned completely.
            found: Every topic with a value.
            since: As for ``on_found``.
            now_us: Wall clock, for tombstones' age.
            seen_us: As for ``on_found``.
        """
        asked = 0
        for step, _ in self._below(filters):
            for topic, _ in step:
                if self._keeping.policy is not None and topic not in found:
                    asked += 1
                    if asked % KEPT_AT_ONCE_MAX == 0:
                        yield
                    if self._kept(topic):
                        continue
                entry = self.get(topic)
                if entry is None or entry.touched > since or topic in found:
                    continue
                if entry.deleted:
                    self._know(topic, entry, here=True)
                elif entry.here:  # a client deleted it unseen
                    version = self._unseen(entry.version, seen_us)
                    self.put(topic, version, 0, deleted=True, now_us=now_us)
                else:
                    self._forget(topic)
            yield
        while self.expire(now_us):
            yield

    def _unseen(self, version: Version, seen_us: int) -> Version:
        """The version of an unseen change after ``version`` and after ``seen_us``."""
        return max(version.successor(self._self_id), Version(seen_us, 0, self._self_id))

    def _place(self, topic: str, digest: int, *, since: int, now_us: int, seen_us: int) -> bool:
        """Classify one value that was found; ``True`` when it must be deleted."""
        entry = self.get(topic)
        if entry is None:
            if self._allows_export(topic) and not self._kept(topic):
                # If a place was lost, or a value was kept, this one may be old.
                sure = not self.places.refused and self._keeping.policy is None
                version = Version(seen_us if sure else 0, 0, self._self_id)
                self.put(topic, version, digest, deleted=False, found=True, now_us=now_us)
            return False
        if entry.touched > since:
            return False  # it changed during the scan
        if entry.digest == digest and not entry.deleted:
            self._know(topic, entry, here=True)
        elif entry.deleted and not entry.here:
            return True  # it was deleted elsewhere while our broker's state was unknown
        elif not self._kept(topic):
            here = entry.here
            newer = self._unseen(entry.version, seen_us) if here else self._unknown
            self.put(topic, newer, digest, deleted=False, found=not here, now_us=now_us)
        return False

    def _below(
        self, filters: Iterable[str], *, after: str = ""
    ) -> Iterator[tuple[list[tuple[str, list[str]]], str]]:
        """The topics after ``after`` that ``filters`` match, each with the filters that match it.

        Each step yields some topics, and the last of them if there are more. Entries may change
        between two steps.
        """
        tries: dict[str, FilterTrie] = {}  # by the literal beginning of their topics
        for filter in filters:
            beginning = filter.partition("+")[0].partition("#")[0]
            if beginning != filter:
                tries.setdefault(beginning.removesuffix("/"), FilterTrie()).add(filter)
            elif filter in self._entries and filter > after:
                yield [(filter, [filter])], ""
        for beginning, trie in sorted(tries.items()):
            upto = after
            whole = len(trie) == 1 and f"{beginning}/#" in trie  # all topics that begin so match
            names = [""] * STEP_TOPICS_MAX
            while len(names) == STEP_TOPICS_MAX:
                names = list(islice(self._names.beginning(beginning, after=upto), STEP_TOPICS_MAX))
                upto = names[-1] if len(names) == STEP_TOPICS_MAX else ""
                if whole:
                    matching = [f"{beginning}/#"]
                    start = matching[0][:-1]
                    yield (
                        [(n, matching) for n in names if n.startswith(start) or n == beginning],
                        upto,
                    )
                else:
                    yield [(n, matching) for n in names if (matching := trie.match(n))], upto

    def digests(self, filters: Collection[str]) -> Iterator[dict[str, Buckets]]:
        """The digests of what each of ``filters`` matches: equal digests mean equal entries.

        Each step adds to the same result; the last one has everything.
        """
        digests: dict[str, Buckets] = {filter: {} for filter in filters}
        for step, _ in self._below(filters):
            for topic, matching in step:
                entry = self._entries[topic]
                for filter in matching:
                    buckets = digests[filter]
                    buckets[entry.bucket] = buckets.get(entry.bucket, 0) ^ entry.mark
            yield digests
        yield digests

    def has_many(self, filter: str, count: int) -> bool:
        """Whether ``filter``, which ends in ``/#``, matches ``count`` entries or more, roughly.

        ``False`` for other filters: to count what they match takes too long.
        """
        beginning, hash_, _ = filter.partition("#")
        return bool(hash_) and "+" not in beginning and self._names.has_many(beginning, count)

    def page(
        self, filter: str, *, mask: int, after: str, count: int, chars: int
    ) -> tuple[list[tuple[str, Entry]], str]:
        """A page of entries after topic ``after``, and where the next one begins, if there is one.

        Args:
            filter: Matches their topics.
            mask: Bit ``i``: those of bucket ``i``.
            after: Where the previous page ended.
            count: At most so many,
            chars: and topics of so many characters in all, but at least one.
        """
        entries: list[tuple[str, Entry]] = []
        for number, (step, upto) in enumerate(self._below([filter], after=after), 1):
            for topic, _ in step:
                entry = self._entries[topic]
                if mask >> entry.bucket & 1:
                    chars -= len(topic)
                    if len(entries) == count or (entries and chars < 0):
                        return entries, entries[-1][0]
                    entries.append((topic, entry))
            if number == PAGE_STEPS_MAX:
                return entries, upto
        return entries, ""

    def is_expired(self, version: Version, now_us: int) -> bool:
        """Whether a tombstone of ``version`` is too old to be adopted by an agent without an entry
        for its topic: otherwise agents would pass it on for ever.
        """
        return version.time_us + self._keep_us < now_us

    def expire(self, now_us: int) -> bool:
        """Drop some tombstones that were kept for long enough; return whether there were any."""
        entries = self._entries.items() if self.tombstones else ()
        due = (t for t, e in entries if e.deleted and e.noted_us + self._keep_us < now_us)
        old = list(islice(due, STEP_TOPICS_MAX))
        for topic in old:
            self._forget(topic)
        return bool(old)

    def save(self) -> Callable[[], list[Saved | str]]:
        """Return a function that lists all entries as they are now; another thread may call it."""
        self._changed.clear()
        entries = [(t, e) for t, e in self._entries.items() if not self.places.is_guest(t)]
        restarted = self._restarted
        return lambda: [_saved(topic, entry, restarted) for topic, entry in entries]

    def take_changes(self, count: int) -> list[Saved | str]:
        """Changes since the last call: entries, and topics that have no lasting entry.

        Args:
            count: At most so many; the others stay for the next call.
        """
        changed, entries = self._changed, self._entries
        topics = list(islice(changed, count))
        for topic in topics:
            del changed[topic]
        lasting = [t in entries and not self.places.is_guest(t) for t in topics]
        return [
            _saved(topic, entries[topic], self._restarted) if lasts else topic
            for topic, lasts in zip(topics, lasting, strict=True)
        ]

    def load(self, saved: Iterable[Saved | str]) -> None:
        """Load what the last incarnation saved, in the same order."""
        for entry in saved:
            if isinstance(entry, str):
                if entry in self._entries:
                    self._forget(entry)
                continue
            self.put(
                entry.topic,
                Version(entry.time_us, entry.number, BrokerId(entry.origin)),
                entry.digest,
                deleted=entry.deleted,
                here=entry.here,
                now_us=entry.noted_us,
            )

    def _know(self, topic: str, entry: Entry, *, here: bool) -> None:
        """Record whether our broker has the known state."""
        if entry.here != here:
            self._entries[topic] = entry._replace(here=here, touched=self.touched)
            self._note(topic)

    def _note(self, topic: str) -> None:
        """Mark ``topic`` as changed, to be saved, unless it is a guest."""
        if not self.places.is_guest(topic):
            self._changed[topic] = None
            self.on_change()

    def _forget(self, topic: str) -> None:
        self._note(topic)
        entry = self._entries.pop(topic)
        self.tombstones -= entry.deleted
        self._names.discard(topic)
        self.places.free(topic)
        self.touched += 1


def bucket_of(topic: str) -> int:
    """The bucket of ``topic``, the same on every machine."""
    return crc32(topic.encode()) % BUCKETS


def digest_of_buckets(buckets: Buckets) -> int:
    """One number for all buckets."""
    digest = 0
    for bucket, value in sorted(buckets.items()):
        digest = (digest * 31 + bucket + 1 + value) & 0xFFFF_FFFF_FFFF_FFFF
    return digest


def _saved(topic: str, entry: Entry, restarted: int) -> Saved:
    here = entry.here and entry.touched >= restarted
    return Saved(topic, *entry.version, entry.digest, entry.deleted, here, entry.noted_us)


def _mark(topic: str, version: Version, digest: int, deleted: bool) -> int:
    text = f"{topic}\0{version.time_us}\0{version.number}\0{version.origin}\0{digest}\0{deleted}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
