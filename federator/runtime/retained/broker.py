"""What our own broker retains: read, corrected and filled, at a bounded pace.

Fetched values go through the data connection, where No Local keeps them from returning as
publications of clients. None of them waits in its queue: a newer value could overtake it there.

Source: docs/protocol.md 13.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from mqtt5 import PublishPacket

from federator.errors import DecodeError, LinkError
from federator.protocol.bounded_cache import Recent
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.publications import RunChecker, qos_of
from federator.protocol.messages.control import RetainedEntry
from federator.protocol.retained.packets import RetainedPacket, retained_in
from federator.protocol.retained.round import version_of
from federator.protocol.retained.store import Buckets, RetainedStore
from federator.protocol.retained.versions import HybridClock, Version
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.wire import packet_id_at
from federator.runtime.process.clocks import wall_clock_us
from federator.runtime.retained.scanner import RetainedScanner, Scan

SCAN_VALID_S = 1.0
IN_FLIGHT_MAX = 16  # of the 20 that Mosquitto takes at once
POLL_S = 0.002
STUCK_S = 10.0
PLACED_AT_ONCE_MAX = 500
WRITTEN_AT_ONCE_MAX = 32
REPEATED_AT_ONCE_MAX = 32

LARGE_VALUES = 10_000
"""A filter with more values takes long to compare: others do not wait for it."""

SEEN_FILTERS_MAX = 4_096
"""Filters with a remembered time of their last scan."""

LARGE_FILTERS_MAX = 1_024
"""Filters remembered as large; the oldest are forgotten first."""


@dataclass(slots=True)
class RetainedCounters:
    """Counters of retained values since the start."""

    rounds: int = 0
    failed: int = 0
    unread: int = 0
    values_fetched: int = 0
    values_given: int = 0
    erased: int = 0
    adopted: int = 0
    outdated: int = 0
    repeated: int = 0
    malformed: int = 0
    clock_refused: int = 0
    too_long: int = 0


@dataclass(eq=False, repr=False)
class RetainedBroker:
    """The broker's retained values: scans and writes them."""

    store: RetainedStore
    clock: HybridClock  # kept later than every version that is published here
    scanner: RetainedScanner
    local: MqttLink  # the data connection
    to_local_names: Callable[[bytes], bytes]  # a run as it is published on our broker
    values_per_s: int  # bound of the values published
    counters: RetainedCounters
    share_of_turn: Callable[[Sequence[str]], int]  # how many of some topics a turn may process

    def __post_init__(self) -> None:
        self._checker = RunChecker()
        # Filters that had many values when they were scanned.
        self._large: Recent[str, None] = Recent(LARGE_FILTERS_MAX)
        self._last: dict[bool, tuple[float, frozenset[str], Scan]] = {}  # by whether large ones
        self._pace = asyncio.Lock()
        # By filter: the wall clock of its last complete scan.
        self._whole_us: Recent[str, int] = Recent(SEEN_FILTERS_MAX)

    async def scan(self, filters: Collection[str], *, keep: Collection[str] | None = None) -> Scan:
        """Read what our broker retains below ``filters``, and update the store.

        Raises:
            LinkError: Our broker does not answer.
        """
        since, began_us = self.store.touched, wall_clock_us()
        scan = await self.scanner.scan(filters, keep=keep)
        seen_us = min((self._whole_us.get(filter, 0) for filter in filters), default=0)
        topics = iter(scan.found)
        sizes: Counter[str] = Counter()
        if len(scan.found) > min(LARGE_VALUES, self.store.places.guests_max):
            topics, sizes = await _few_last(scan.found, filters)
        self._note_sizes(filters, sizes)
        while some := list(islice(topics, PLACED_AT_ONCE_MAX)):
            while some:
                share = self.share_of_turn(some)
                placed = {topic: scan.found[topic].digest for topic in some[:share]}
                del some[:share]
                now_us = wall_clock_us()
                for topic in self.store.on_found(
                    placed, since=since, now_us=now_us, seen_us=seen_us
                ):
                    self.erase(topic)
                await asyncio.sleep(0)
        found = scan.found.keys()
        now_us = wall_clock_us()
        for _ in self.store.on_scanned(
            scan.whole, found, since=since, now_us=now_us, seen_us=seen_us
        ):
            await asyncio.sleep(0)
        for filter in scan.whole:
            self._whole_us.put(filter, began_us)
        return scan

    def forget_times(self) -> None:
        """Forget the scan times: the broker's content, or what may leave it, changed since."""
        self._whole_us.clear()

    async def digests(self, filters: Collection[str]) -> dict[str, Buckets]:
        """The store's digests below each of ``filters``."""
        digests: dict[str, Buckets] = {}
        for so_far in self.store.digests(filters):
            digests = so_far
            await asyncio.sleep(0)
        return digests

    async def recent_scan(self, filters: Collection[str], *, valid_s: float = SCAN_VALID_S) -> Scan:
        """A scan of ``filters`` that is not older than ``valid_s``.

        Raises:
            LinkError: Our broker does not answer.
        """
        now_s = time.monotonic()
        large = any(map(self.is_large, filters))
        last = self._last.get(large)
        if last is not None and now_s - last[0] < valid_s and last[1].issuperset(filters):
            return last[2]
        scan = await self.scan(filters)
        self._last[large] = (now_s, frozenset(filters), scan)
        return scan

    def forget_scan(self, *, older_than_s: float = 0.0) -> None:
        """Free the memory of the last scans if they are that old."""
        now_s = time.monotonic()
        for large, (at_s, _, _) in list(self._last.items()):
            if now_s - at_s >= older_than_s:
                del self._last[large]

    def is_large(self, filter: str) -> bool:
        """Whether ``filter`` has so many values that small filters must not wait for it.

        Its last scan showed that, or the store does: clients may have set them since.
        """
        return filter in self._large or self.store.has_many(filter, LARGE_VALUES)

    def _note_sizes(self, filters: Iterable[str], sizes: Mapping[str, int]) -> None:
        for filter in filters:
            if sizes.get(filter, 0) > LARGE_VALUES:
                self._large.put(filter, None)
            else:
                self._large.pop(filter, None)

    async def publish(self, values: Iterable[tuple[RetainedEntry, bytes]]) -> None:
        """Publish values on our broker, each if it matches its entry and is still the newest.

        Raises:
            LinkError: Our broker accepts none.
        """
        batch = 0
        for entry, packet in values:
            await self._room()
            batch += self._publish(entry, packet)
            if batch == WRITTEN_AT_ONCE_MAX:
                await self._rest(batch)
                batch = 0
        await self._rest(batch)

    async def repeat(self, topics: Sequence[str]) -> None:
        """Publish again what our broker retains on ``topics``: subscribers received older values.

        Raises:
            LinkError: Our broker does not answer, or accepts none.
        """
        for at in range(0, len(topics), REPEATED_AT_ONCE_MAX):
            some = topics[at : at + REPEATED_AT_ONCE_MAX]
            scan = await self.scan(some)
            for topic in some:
                entry = self.store.get(topic)
                if entry is None or not entry.here:
                    continue
                await self._room()
                if entry.deleted:
                    self.erase(topic)
                elif (packet := scan.packet(topic, entry.digest)) is not None:
                    self._write(packet)
            await self._rest(len(some))

    async def _rest(self, written: int) -> None:
        """Keep to the pace, in turns with concurrent writers."""
        async with self._pace:
            await asyncio.sleep(written / self.values_per_s)

    async def _room(self) -> None:
        """Wait until our broker acknowledged enough: a value that waits could be overtaken."""
        local, stuck_s = self.local, time.monotonic() + STUCK_S
        while local.unacknowledged >= IN_FLIGHT_MAX:
            if time.monotonic() > stuck_s:
                raise LinkError(f"our broker took no value for {STUCK_S:g} s")
            await asyncio.sleep(POLL_S)

    def _publish(self, entry: RetainedEntry, packet: bytes) -> bool:
        version, own = version_of(entry), self.store.get(entry.topic)
        if own is not None and own.version >= version:
            return False
        value = self._value(entry, packet)
        if value is None:
            self.counters.malformed += 1
            return False
        if not self.clock.observe(version, wall_clock_us()):
            self.counters.clock_refused += 1
            return False
        if not self._write(packet):
            return False
        self.counters.values_fetched += 1
        digest, here, now_us = entry.digest, not value.may_vanish, wall_clock_us()
        self.store.put(entry.topic, version, digest, deleted=False, here=here, now_us=now_us)
        return True

    def _value(self, entry: RetainedEntry, packet: bytes) -> RetainedPacket | None:
        try:
            acknowledged = bool(packet) and qos_of(packet) > 0
            self._checker.check(packet, acknowledged=acknowledged, publications=1)
            (value,) = retained_in(packet)
        except (DecodeError, ValueError):
            return None
        is_its = (value.topic, value.digest) == (entry.topic, entry.digest)
        return value if is_its and not value.deletes else None

    def delete(self, topic: str, version: Version) -> None:
        """Delete a value here because it was deleted elsewhere."""
        if self.clock.observe(version, wall_clock_us()) and self.erase(topic):
            self.store.put(topic, version, 0, deleted=True, now_us=wall_clock_us())

    def erase(self, topic: str) -> bool:
        """Delete a value on our broker; ``False`` when that could not be sent."""
        sent = self._write(PublishPacket(topic, b"", retain=True).write())
        self.counters.erased += sent
        return sent

    def _write(self, packet: bytes) -> bool:
        local = self.local
        packet = self.to_local_names(packet)
        if not packet:
            return False
        qos = qos_of(packet)
        if qos:
            return local.publish_packet(bytearray(packet), packet_id_at(packet), qos)
        return local.write_packets([packet], 1)


async def _few_last(
    found: Iterable[str], filters: Iterable[str]
) -> tuple[Iterator[str], Counter[str]]:
    """The topics ``found`` below ``filters``, those of filters with few topics last.

    The last ones put into a full store are still there when requested. The second result is the
    number of topics of each filter.
    """
    trie = FilterTrie()
    for filter in filters:
        trie.add(filter)
    groups: dict[tuple[str, ...], list[str]] = {}
    for number, topic in enumerate(found):
        groups.setdefault(tuple(trie.match(topic)), []).append(topic)
        if number % PLACED_AT_ONCE_MAX == 0:
            await asyncio.sleep(0)
    sizes: Counter[str] = Counter()
    for matching, topics in groups.items():
        sizes.update(dict.fromkeys(matching, len(topics)))
    ordered = sorted(groups.values(), key=len, reverse=True)
    return chain.from_iterable(ordered), sizes
