"""Scans our own broker's retained messages over a connection of its own: subscribe, read, leave.

A subscriber that asks for Retain As Published cannot distinguish a stored value from one that is
published right now. So the data connection never asks for stored ones, and this one asks for
nothing else. It subscribes at QoS 0 first: a broker queues only a thousand messages of QoS 1 or 2
for one client and drops the rest silently, while QoS 0 goes straight into the socket. If few values
came it asks again at QoS 2, to learn the QoS they are stored with.

Two marks fence a scan. One goes through the data connection before: when it comes, what we
published there is stored. The other follows the values and ends them. When they exceed what the
socket takes, Mosquitto drops even QoS 0, and logs that once per connection. So we also wait for the
second mark on the control connection, behind any such line, and renew the connection after one.

Source: docs/protocol.md 13.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.errors import LinkError
from federator.protocol.filters import FilterTrie
from federator.protocol.messages.topics import retained_mark_topic
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.retained.packets import as_stored, at_least_once, payload_digest
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.own_marks import OwnMarks
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms

QOS_ASKED_MAX = 500
"""Up to so many values are requested again, to learn their QoS: less than the broker's 1,000."""

PACKETS_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of packets kept of one scan."""

SILENCE_MAX_S = 5.0
"""How long our broker may send none of the messages we wait for."""

FENCE_MAX_S = 30.0
"""How long a mark may wait in the data connection, behind a flood from clients."""

UPTIME_TIMEOUT_S = 2.0
UPTIME_TOPIC = "$SYS/broker/uptime"
COMPLAINT_GAP_MS = Millis(600_000)

_log = structlog.get_logger()

Outgoing = Callable[[memoryview, Sequence[Inbound]], tuple[memoryview, Sequence[Inbound]]]
"""Gives publications of our broker the federation's names; ``None`` without renames."""


@dataclass(frozen=True, slots=True)
class Found:
    """One retained value."""

    digest: int  # of its payload
    packet: bytes | None  # as stored; ``None`` if it was not requested or there was no room


@dataclass(frozen=True, slots=True)
class Scan:
    """Our broker's retained values, by topic."""

    found: dict[str, Found]
    qos_known: bool  # the packets have the right QoS; otherwise all have 0
    whole: frozenset[str] = frozenset()  # filters without dropped values or refusals

    def digest(self, topic: str) -> int | None:
        """The digest of the value on ``topic``."""
        found = self.found.get(topic)
        return None if found is None else found.digest

    def packet(self, topic: str, digest: int) -> bytes | None:
        """The value of ``topic`` if the digest matches, at QoS 1 where its QoS is not known."""
        found = self.found.get(topic)
        if found is None or found.packet is None or found.digest != digest:
            return None
        return found.packet if self.qos_known else at_least_once(found.packet)


NOTHING = Scan({}, qos_known=True)


@dataclass(slots=True)
class _Mark:
    """A mark that we wait for on some of our connections."""

    number: int
    on_scanner: asyncio.Event
    on_control: asyncio.Event


@dataclass(kw_only=True, eq=False, repr=False)
class RetainedScanner(LinkObserver):
    """Reads what our broker retains, over a connection that it observes.

    Args:
        came_up: Called when the connection is up; whether the broker has run since
            ``last_contact_s``, as far as can be known.
    """

    federation: str
    make_link: Callable[[LinkObserver], MqttLink]
    data_link: MqttLink
    outgoing: Outgoing | None
    came_up: Callable[[bool], None]
    hears_log: bool  # the control connection brings log lines and marks
    here: Callable[[str], tuple[str, ...]]  # the local filters for a filter of the federation

    def __post_init__(self) -> None:
        self.link = self.make_link(self)
        self.last_contact_s = 0.0  # wall clock of this broker's last sign of life
        self.count = 0
        self.incomplete = 0  # scans without a complete answer
        self.mark_topic = retained_mark_topic(self.federation)
        client_id = self.link.client_id
        self._drop_line = f"Outgoing messages are being dropped for client {client_id}.".encode()
        self._ready = asyncio.Event()
        self._judging: asyncio.Handle | None = None
        self._decided = False
        self._busy = asyncio.Lock()
        self._number = 0
        self._own_marks = OwnMarks()
        self._mark: _Mark | None = None
        self._dropped = False  # on this connection
        self._renewing = False
        self._complaints: RateLimiter[None] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1)
        self._subscribed = asyncio.Event()
        self._broke = False
        self._found: dict[str, Found] | None = None
        self._keep: Collection[str] | None = None
        self._bytes = 0
        self._values_seen = 0  # count of values, to notice when our broker falls silent

    async def run(self) -> None:
        uptime = TopicFilter(UPTIME_TOPIC, max_qos=QoS.AT_MOST_ONCE)
        self.link.subscribe([self.mark_filter(), uptime])
        await self.link.run()

    def mark_filter(self) -> TopicFilter:
        """The subscription to marks, for the control connection, too."""
        return live_filter(self.mark_topic)

    async def scan(self, filters: Collection[str], *, keep: Collection[str] | None = None) -> Scan:
        """Everything retained on our broker that one of ``filters`` matches.

        Args:
            filters: Valid and allowed to travel; the federation's, as are all topics found.
            keep: Keep the packets of these topics only; ``None``: of all, as long as there is room.

        Raises:
            LinkError: The broker did not answer in time.
        """
        async with self._busy:
            named = {filter: self.here(filter) for filter in filters}
            names = set(chain.from_iterable(named.values()))
            asked = _broadest(names)
            self._found, self._keep, self._bytes = {}, keep, 0
            try:
                await self._await_event(self._ready)
                self._broke = False
                async with asyncio.timeout(FENCE_MAX_S):
                    await self._fence(self.data_link)
                while refused := await self._pass(asked, QoS.AT_MOST_ONCE):
                    names -= refused  # filters that these contain may still be allowed
                    asked = _broadest(names)
                few = len(self._found) <= QOS_ASKED_MAX
                if self._found and few:  # only QoS 2 shows the QoS that values are stored with
                    self._bytes = 0
                    await self._pass(asked, QoS.EXACTLY_ONCE)
                self.count += 1
                # Without its log, we cannot know whether the broker dropped any of many values.
                complete = not self._dropped and (few or self.hears_log)
                if not complete:
                    self.incomplete += 1
                    if self._complaints.allow(None, monotonic_ms()):
                        came, so_far = len(self._found), self.incomplete
                        _log.warning("retained.look_incomplete", came=came, so_far=so_far)
                if self._dropped:  # Mosquitto logs it once per connection
                    self._renewing = True
                    self.link.drop("our broker drops values")
                read = FilterTrie()
                for filter in asked:
                    read.add(filter)
                whole = (f for f, n in named.items() if all(map(read.containing, n)))
                return Scan(self._found, few, frozenset(whole if complete else ()))
            except TimeoutError as error:
                raise LinkError("our broker did not tell what it retains in time") from error
            finally:
                self._found = None
                self.link.unsubscribe(asked)

    async def _pass(self, filters: Collection[str], qos: QoS) -> set[str]:
        """Subscribe ``filters`` and read their values; return the refused filters."""
        link = self.link
        self._subscribed.clear()
        link.subscribe(
            TopicFilter(
                filter,
                max_qos=qos,
                retain_as_published=True,
                retain_handling=RetainHandling.SEND_ALWAYS,
            )
            for filter in filters
        )
        while not link.answered(filters):
            await self._await_event(self._subscribed)
            self._check_connection()
            self._subscribed.clear()
        if refused := set(link.refused_filters).intersection(filters):
            link.unsubscribe(filters)
        else:
            await self._fence(link)
        return refused

    async def _fence(self, link: MqttLink) -> None:
        """Wait until our broker handled what ``link`` sent, and we received what it sent back."""
        self._number += 1
        mark = self._mark = _Mark(self._number, asyncio.Event(), asyncio.Event())
        if not link.publish(self.mark_topic, self._own_marks.write(mark.number), qos=1):
            raise LinkError("no room to publish a mark")
        if link is not self.link:
            await mark.on_scanner.wait()
        else:
            await self._await_event(mark.on_scanner)
            if self.hears_log:
                await self._await_event(mark.on_control)
        self._check_connection()

    async def _await_event(self, event: asyncio.Event) -> None:
        """Wait for ``event``, as long as our broker goes on sending.

        Raises:
            TimeoutError: It fell silent.
        """
        count = -1
        while not event.is_set():
            if count == self._values_seen:
                raise TimeoutError
            count = self._values_seen
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_MAX_S):
                    await event.wait()

    def _check_connection(self) -> None:
        if self._broke:
            raise LinkError("the connection broke while we looked")

    # -- called for the control connection --------------------------------------------------------

    def on_control(self, packet: PublishPacket) -> None:
        """Handle a mark, or a line of the broker's log."""
        if packet.topic == self.mark_topic:
            if self._mark is not None and self._own_marks.read(packet) == self._mark.number:
                self._mark.on_control.set()
        elif packet.payload.endswith(self._drop_line):
            self._dropped = True

    # -- as a LinkObserver ------------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """Wait for the broker's uptime before the first scan."""
        self._decided = self._dropped = False
        loop = asyncio.get_running_loop()
        self._judging = loop.call_later(UPTIME_TIMEOUT_S, self._decide_restart, None)

    def on_subscribed(self, link: MqttLink) -> None:
        """Go on with a scan: the broker answered."""
        self._subscribed.set()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """Give up the current scan: the connection is lost."""
        self._ready.clear()
        self._broke = True
        self._subscribed.set()
        if self._mark is not None:
            self._mark.on_scanner.set()
            self._mark.on_control.set()
        if self._judging is not None:
            self._judging.cancel()

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Handle values, marks and the broker's uptime."""
        named: Sequence[Inbound] = publishes
        if self.outgoing is not None:
            chunk, named = self.outgoing(chunk, publishes)
        for packet, start, end in named:
            if packet.topic == self.mark_topic:
                if self._mark is not None and self._own_marks.read(packet) == self._mark.number:
                    self._mark.on_scanner.set()
            elif packet.topic == UPTIME_TOPIC:
                self._on_uptime(packet.payload)
            elif packet.retain and self._found is not None and not packet.topic.startswith("$"):
                self._take(packet.topic, packet.payload, chunk[start:end])
        if self._decided:
            self.last_contact_s = time.time()

    def _take(self, topic: str, payload: bytes, packet: memoryview) -> None:
        assert self._found is not None
        self._values_seen += 1
        if not payload:
            self._found.pop(topic, None)
            return
        kept = None
        size = len(packet)
        if self._bytes + size <= PACKETS_BYTES_MAX and (self._keep is None or topic in self._keep):
            self._bytes += size
            kept = as_stored(packet)
        self._found[topic] = Found(payload_digest(payload), kept)

    # -- which broker is this? --------------------------------------------------------------------

    def _on_uptime(self, payload: bytes) -> None:
        uptime_s: float | None = None
        with contextlib.suppress(ValueError, IndexError):
            uptime_s = float(payload.split()[0])
        if not self._decided:
            self._decide_restart(uptime_s)

    def _decide_restart(self, uptime_s: float | None) -> None:
        """Decide whether this is still the same broker."""
        self._decided = True
        if self._judging is not None:
            self._judging.cancel()
        now_s = time.time()
        same = uptime_s is not None and now_s - uptime_s < self.last_contact_s
        self.last_contact_s = now_s
        self._ready.set()
        expected, self._renewing = self._renewing, False
        if not (same and expected):  # a connection that we renewed ourselves changes nothing
            self.came_up(same)


def _broadest(filters: Collection[str]) -> list[str]:
    """Those of ``filters`` that no other one contains, sorted: each value comes once."""
    trie = FilterTrie()
    for filter in sorted(filters, key=lambda f: (f.count("/"), f)):
        trie.add(filter)
    for filter in filters:
        trie.discard(filter)
        if trie.containing(filter) is None:
            trie.add(filter)
    return sorted(trie)
