"""What one agent knows of retained values: per topic the newest version, never the value itself.

A library catalogue, not the library: the broker holds the values. An entry says which version of a
topic is the newest known, what its payload hashes to, whether it is a delete (a tombstone, kept for
a while so that an old value cannot come back), and whether our own broker is known to hold it.

Not everything that happens on our broker passes through the agent: topics that nobody else wants
are not subscribed. So now and then the agent scans what the broker retains, and has to place what
it finds (``on_found``):

- as known: nothing to do;
- different, and our broker held the known state before: a client changed it unseen. It counts as
  made right after the value that it replaced (``Version.successor``), so it wins over that one, and
  loses to whatever was seen being set later;
- different, after the broker restarted: nobody can say whether it is new or came out of an old
  file. It is the oldest version possible: any known version, ours or anybody's, replaces it.

Source: docs/protocol.md 13.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import msgspec

from federator.protocol.filters import matches
from federator.protocol.retained.places import TOPICS_MAX, Places, SortedNames
from federator.protocol.retained.versions import NEVER, Version
from federator.protocol.types import BrokerId

BUCKETS = 64

Buckets = dict[int, int]
"""The digest of the entries of each bucket; empty buckets are left out."""


class Verdict(Enum):
    """What to do with a value that arrives."""

    NEWER = "newer"
    SAME = "same"
    OLDER = "older"


class Entry(NamedTuple):
    """What is known of one topic."""

    version: Version  # of the newest state known
    digest: int  # of its payload
    deleted: bool  # it is a tombstone
    here: bool  # our broker is known to be in this state
    bucket: int  # part of the digests that the topic belongs to
    mark: int  # a number for topic, version and payload, from which digests are made
    touched: int  # the number of the change that made this entry
    noted_us: int  # when we learnt of it, or its version's time when that is later


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
        topics_max: Entries held, tombstones included; see ``Places`` for whose.
        tombstone_keep_us: How long a delete is remembered.
        allows_export: Whether values of our own clients on a topic may leave our broker.
    """

    def __init__(
        self,
        self_id: BrokerId,
        *,
        topics_max: int = TOPICS_MAX,
        tombstone_keep_us: int,
        allows_export: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self.places = Places(self_id, topics_max=topics_max)
        self.touched = 0  # grows with every change
        self._self_id = self_id
        self._unknown = Version(0, 0, self_id)
        self._keep_us = tombstone_keep_us
        self._allows_export = allows_export
        self._entries: dict[str, Entry] = {}
        self._names = SortedNames()
        self._tombstones = 0
        self._changed: dict[str, None] = {}  # since take_changes

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tombstones(self) -> int:
        """How many entries are deletes."""
        return self._tombstones

    def newest(self) -> Version:
        """The newest version of all."""
        return max((entry.version for entry in self._entries.values()), default=NEVER)

    def get(self, topic: str) -> Entry | None:
        """What is known of ``topic``."""
        return self._entries.get(topic)

    def admit(
        self, topic: str, version: Version, digest: int, *, deleted: bool, now_us: int
    ) -> Verdict:
        """Judge a value that our broker is about to get; a newer one is noted."""
        entry = self._entries.get(topic)
        if entry is not None:
            if version < entry.version:
                return Verdict.OLDER
            if version == entry.version and entry.here:
                return Verdict.SAME
        self.put(topic, version, digest, deleted=deleted, now_us=now_us)
        return Verdict.NEWER

    def put(
        self,
        topic: str,
        version: Version,
        digest: int,
        *,
        deleted: bool,
        here: bool = True,
        now_us: int,
    ) -> None:
        """Note the state of ``topic``, whatever was known before."""
        before = self._entries.get(topic)
        if before is None:
            self._names.add(topic)
        else:
            self._tombstones -= before.deleted
        self.touched += 1
        self._tombstones += deleted
        mark, noted_us = _mark(topic, version, digest, deleted), max(version.time_us, now_us)
        self._entries[topic] = Entry(
            version, digest, deleted, here, bucket_of(topic), mark, self.touched, noted_us
        )
        gave_way, gone = self.places.take(topic, version.origin, found=version == self._unknown)
        self._note(topic)
        if gave_way is not None:
            self._changed[gave_way] = None
        if gone is not None:
            self._forget(gone)

    def doubt(self, topic: str) -> None:
        """Note that our broker is perhaps not in the known state of ``topic``."""
        entry = self._entries.get(topic)
        if entry is not None:
            self._know(topic, entry, here=False)

    def doubt_others(self, *, since_us: int) -> None:
        """Doubt what others set and we wrote after ``since_us``: it was perhaps lost on the way.

        What our own clients set came from our broker, so it is there.
        """
        for topic, entry in list(self._entries.items()):
            if entry.noted_us >= since_us and entry.version.origin != self._self_id:
                self._know(topic, entry, here=False)

    def broker_restarted(self) -> None:
        """Doubt everything: what our broker holds after a restart is not known."""
        for topic, entry in list(self._entries.items()):
            self._know(topic, entry, here=False)

    def on_found(self, found: Mapping[str, int], *, since: int, now_us: int) -> list[str]:
        """Place values that our broker holds.

        Args:
            found: The digest of each payload, by topic: all that a scan found, or some.
            since: ``touched`` when the scan began: entries changed later are not judged.
            now_us: Wall clock.

        Returns:
            Topics that were deleted elsewhere and must be deleted on our broker.
        """
        return [
            topic
            for topic, digest in found.items()
            if self._place(topic, digest, since=since, now_us=now_us)
        ]

    def on_scanned(
        self, filters: Iterable[str], found: Collection[str], *, since: int, now_us: int
    ) -> None:
        """Place what our broker does not hold any more.

        Args:
            filters: What was scanned, in whole.
            found: Every topic with a value.
            since: As for ``on_found``.
            now_us: Wall clock, for tombstones' age.
        """
        missing = {t for f in filters for t, e in self.entries(f) if e.touched <= since}
        for topic in sorted(missing.difference(found)):
            entry = self._entries[topic]
            if entry.deleted:
                self._know(topic, entry, here=True)
            elif entry.here:  # a client deleted it unseen
                version = entry.version.successor(self._self_id)
                self.put(topic, version, 0, deleted=True, now_us=now_us)
            else:
                self._forget(topic)
        self.expire(now_us)

    def _place(self, topic: str, digest: int, *, since: int, now_us: int) -> bool:
        """Place one value that was found; ``True`` when it must be deleted."""
        entry = self._entries.get(topic)
        if entry is None:
            if self._allows_export(topic):
                self._put_found(topic, self._unknown, digest, now_us)
            return False
        if entry.touched > since:
            return False  # it changed while the scan was under way
        if entry.digest == digest and not entry.deleted:
            self._know(topic, entry, here=True)
        elif entry.here:
            self._put_found(topic, entry.version.successor(self._self_id), digest, now_us)
        elif entry.deleted:
            return True  # it was deleted elsewhere while our broker's state was not known
        else:
            self._put_found(topic, self._unknown, digest, now_us)
        return False

    def _put_found(self, topic: str, version: Version, digest: int, now_us: int) -> None:
        self.put(topic, version, digest, deleted=False, now_us=now_us)

    def entries(self, filter: str, *, after: str = "") -> Iterator[tuple[str, Entry]]:
        """The entries that ``filter`` matches, by topic, behind the topic ``after``."""
        beginning = filter.partition("+")[0].partition("#")[0]
        if beginning == filter:
            entry = self._entries.get(filter)
            if entry is not None and filter > after:
                yield filter, entry
            return
        whole = filter == beginning + "#" and len(beginning) > 1  # all that begin so match
        beginning = beginning.removesuffix("/")
        with_slash = beginning + "/"
        for topic in self._names.beginning(beginning, after=after):
            if (whole and topic.startswith(with_slash)) or matches(filter, topic):
                yield topic, self._entries[topic]

    def buckets(self, filter: str) -> Buckets:
        """The digests of what ``filter`` matches: equal ones hold the same."""
        digests = [0] * BUCKETS
        for _, entry in self.entries(filter):
            digests[entry.bucket] ^= entry.mark
        return {bucket: digest for bucket, digest in enumerate(digests) if digest}

    def page(
        self, filter: str, *, mask: int, after: str, count: int, chars: int
    ) -> tuple[list[tuple[str, Entry]], bool]:
        """A page of entries behind topic ``after``, and whether these are the last.

        Args:
            filter: Matches their topics.
            mask: Bit ``i``: those of bucket ``i``.
            after: Where the page before ended.
            count: At most so many,
            chars: and topics of so many characters in all, but at least one.
        """
        found: list[tuple[str, Entry]] = []
        for topic, entry in self.entries(filter, after=after):
            if mask >> entry.bucket & 1:
                chars -= len(topic)
                if len(found) == count or (found and chars < 0):
                    return found, False
                found.append((topic, entry))
        return found, True

    def is_expired(self, version: Version, now_us: int) -> bool:
        """Whether a tombstone of ``version`` is too old to be taken up by who knows nothing of its
        topic: it would be handed round for ever.
        """
        return version.time_us + self._keep_us < now_us

    def expire(self, now_us: int) -> None:
        """Forget tombstones that were kept for long enough."""
        if self._tombstones:
            old = [
                topic
                for topic, entry in self._entries.items()
                if entry.deleted and entry.noted_us + self._keep_us < now_us
            ]
            for topic in old:
                self._forget(topic)

    def save(self) -> Callable[[], list[Saved | str]]:
        """Return a function that lists everything as it is now; another thread may call it."""
        self._changed.clear()
        entries = [(t, e) for t, e in self._entries.items() if not self.places.is_guest(t)]
        return lambda: [_saved(topic, entry) for topic, entry in entries]

    def take_changes(self, count: int) -> list[Saved | str]:
        """What changed since this was last asked: entries, and topics without a lasting one.

        Args:
            count: At most so many; the others stay for the next time.
        """
        changed, entries = self._changed, self._entries
        topics = list(islice(changed, count))
        for topic in topics:
            del changed[topic]
        lasting = [t in entries and not self.places.is_guest(t) for t in topics]
        return [
            _saved(topic, entries[topic]) if lasts else topic
            for topic, lasts in zip(topics, lasting, strict=True)
        ]

    def load(self, saved: Iterable[Saved | str]) -> None:
        """Take up what the last incarnation saved, in the order in which it did."""
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
        """Note whether our broker is in the known state."""
        if entry.here != here:
            self._entries[topic] = entry._replace(here=here)
            self._note(topic)

    def _note(self, topic: str) -> None:
        """What is known of ``topic`` changed: to be saved, unless it is a guest."""
        if not self.places.is_guest(topic):
            self._changed[topic] = None

    def _forget(self, topic: str) -> None:
        self._note(topic)
        entry = self._entries.pop(topic)
        self._tombstones -= entry.deleted
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


def _saved(topic: str, entry: Entry) -> Saved:
    return Saved(topic, *entry.version, entry.digest, entry.deleted, entry.here, entry.noted_us)


def _mark(topic: str, version: Version, digest: int, deleted: bool) -> int:
    text = f"{topic}\0{version.time_us}\0{version.number}\0{version.origin}\0{digest}\0{deleted}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
