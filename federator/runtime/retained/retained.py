"""Retained values across brokers: when to compare them, and their part in the data path.

``protocol.retained`` decides what to compare and which version wins. This module has the occasions
(a new filter, a link that came up, a broker that restarted, time passing), the letters, and the
versions of what our clients set and of what arrives.

Source: docs/protocol.md 13.
"""

import asyncio
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from federator.config.sections import RetainedSettings
from federator.protocol.bounded_cache import Recent
from federator.protocol.discovery import LOG_TOPICS
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.keeping import Keeping
from federator.protocol.forwarding.publications import RETAIN_BIT
from federator.protocol.messages.control import (
    RETAINED_WANTS_MAX,
    RetainedAsk,
    RetainedBody,
    RetainedLetter,
    RetainedMessage,
    RetainedPull,
    RetainedRequest,
    RetainedWant,
)
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies, sift
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.retained.packets import retained_in
from federator.protocol.retained.post import RetainedPost, way_back, way_to_sender
from federator.protocol.retained.round import Way, answer_pull
from federator.protocol.retained.store import RetainedStore, Verdict
from federator.protocol.retained.versions import HybridClock, Version
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, monotonic_ms, wall_clock_us
from federator.runtime.retained.answers import RetainedAnswers
from federator.runtime.retained.broker import RetainedBroker, RetainedCounters
from federator.runtime.retained.file import RetainedFile
from federator.runtime.retained.rounds import RetainedRounds
from federator.runtime.retained.scanner import Outgoing, RetainedScanner

RESYNC_GAP_S = 1.0
"""Least time between two comparisons of all our filters."""

RESYNC_DELAY_S = 0.3
"""After a link came up. Custody's repairs come first: they have all values, in order."""

DOUBT_S = 5.0
"""How long a filter that is asked for out of doubt waits before its values are fetched. Most doubts
end before, with the broker's first counts: these come within 10 s, and values shall be there by
then, too."""

JITTER_S = 0.1
REPEAT_S = 0.5
OVERTAKEN_MAX = 65_536
CROSSED_US = 1_000_000
"""A value that our clients set so soon after we published one may have crossed it."""

LEFT_S = 1.0
FORMER_MAX = 64
"""Unsubscribed filters that are still compared: leaving clients may have changed values."""

RECHECK_S = 1.0
RECHECKED_MAX = 1_024
LOST_US = 5_000_000
"""What we wrote so shortly before the data connection broke may be lost."""

COMPLAINT_GAP_MS = Millis(600_000)
ALARM_S = 1.0

_log = structlog.get_logger()


@dataclass(kw_only=True, eq=False, repr=False)
class Retained:
    """The retained values of one agent."""

    settings: RetainedSettings
    self_id: BrokerId
    epoch: Callable[[], Epoch]
    federation: str
    folder: Path  # where the versions are stored
    make_link: Callable[[LinkObserver], MqttLink]  # makes the connection that scans
    data_link: MqttLink
    outgoing: Outgoing | None
    hears_log: bool
    policy: BrokerPolicy  # topics are the federation's
    to_local_names: Callable[[bytes], bytes]  # a run as it is published on our broker
    link_policies: LinkPolicies
    covered: Callable[[str], bool]  # whether we receive what our clients publish below a filter
    send: Callable[[MqttLink, RetainedMessage], None]
    keeping: Keeping
    keeps: Callable[[str], bool]  # whether clients' publications on a topic stay here for now
    # How many of some topics a turn may process.
    share_of_turn: Callable[[Sequence[str]], int]
    wanted: FilterTrie  # what our clients want now

    def __post_init__(self) -> None:
        settings = self.settings
        self.counters = RetainedCounters()
        self.store = RetainedStore(
            self.self_id,
            topics_max=settings.topics_max,
            tombstone_keep_us=settings.tombstone_keep_s * 1_000_000,
            allows_export=self.policy.allows_export,
            kept=self.keeps,
            keeping=self.keeping,
        )
        self.scanner = RetainedScanner(
            federation=self.federation,
            make_link=self.make_link,
            data_link=self.data_link,
            outgoing=self.outgoing,
            came_up=self._broker_up,
            hears_log=self.hears_log,
            here=self.policy.renames.filter_inward,
        )
        self._clock = HybridClock()
        self.broker = RetainedBroker(
            self.store,
            self._clock,
            self.scanner,
            self.data_link,
            to_local_names=self.to_local_names,
            values_per_s=settings.values_per_s,
            counters=self.counters,
            share_of_turn=lambda topics: (
                len(topics) if self.keeping.policy is None else self.share_of_turn(topics)
            ),
        )
        self._rounds = RetainedRounds(
            self.broker, wanted=self._is_wanted, write=self._write, flood=self._flood
        )
        self._answers = RetainedAnswers(
            self.broker, covered=self.covered, write=self._write, keeping=self.keeping
        )
        self._file = RetainedFile(
            self.folder, self.store, contact_s=lambda: self.scanner.last_contact_s
        )
        self._post = RetainedPost(self.self_id)
        self._links: dict[BrokerId, MqttLink] = {}
        # The filters of ``wanted`` that are asked for only out of doubt.
        self._in_doubt: frozenset[str] = frozenset()
        # Those among them that are not in doubt for long enough yet.
        self._not_fetched: set[str] = set()
        # Filters formerly wanted, with values.
        self._former: Recent[str, None] = Recent(FORMER_MAX)
        self._doubt_timer: asyncio.TimerHandle | None = None
        self._number = 0
        self._resynced_s = -RESYNC_GAP_S
        self._resync_timer: asyncio.Handle | None = None
        self._left = _Soon(self._rounds.compare, delay_s=LEFT_S, topics_max=FORMER_MAX)
        self._recheck = _Soon(self._rounds.compare, delay_s=RECHECK_S, topics_max=RECHECKED_MAX)
        self._overtaken = _Soon(self._rounds.repeat, delay_s=REPEAT_S, topics_max=OVERTAKEN_MAX)
        self._complaints: RateLimiter[None] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1)

    def load(self) -> None:
        """Load the state of the process before this one."""
        self.scanner.last_contact_s = self._file.load()
        self._clock.observe(self.store.newest(), wall_clock_us())

    def part(self) -> Part:
        scanner = self.scanner
        return Part(
            subscriptions=[scanner.mark_filter()],
            topics=dict.fromkeys((*LOG_TOPICS, scanner.mark_topic), scanner.on_control),
            messages=dict.fromkeys((RetainedRequest, RetainedLetter), self.on_message),
            tasks={"retained connection": scanner.run, "retained values": self.run},
        )

    async def run(self) -> None:
        """Compare, answer and save until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._rounds.run(), name="retained comparisons")
            tasks.create_task(self._answers.run(), name="retained answers")
            tasks.create_task(self._file.save_for_ever(), name="retained versions")
            tasks.create_task(self._patrol(), name="retained patrol")
            tasks.create_task(self._warn(), name="retained alarm")

    # -- the data path ----------------------------------------------------------------------------

    def leave(self, run: bytes) -> int:
        """Note the versions of the retained publications in ``run``, which leaves in a frame.

        Returns:
            The frame's time, which makes their versions.
        """
        now_us = wall_clock_us()
        time_us = self._clock.read(now_us)
        for packet in retained_in(run):
            before = self.store.get(packet.topic)
            version = Version(time_us, packet.number, self.self_id)
            self.store.put(
                packet.topic, version, packet.digest, deleted=packet.deletes, now_us=now_us
            )
            crossed = before is not None and now_us - before.noted_us < CROSSED_US
            if crossed and before is not None and before.version.origin != self.self_id:
                # Our broker may have taken the two values in the other order: check.
                self._recheck.add(packet.topic)
        return time_us

    def arrive(self, run: bytes, *, time_us: int, origin: BrokerId) -> bytes:
        """The part of ``run`` that may be published here, and in which form.

        A value older than the one our broker has loses its retain flag; then the newest is
        published here once more, so that subscribers receive it last. One that a faster comparison
        already published is dropped. ``run`` itself is returned when nothing changes.
        """
        changed: bytearray | None = None
        cut: list[tuple[int, int]] = []
        now_us = wall_clock_us()
        for packet in retained_in(run):
            version = Version(time_us, packet.number, origin)
            verdict = Verdict.OLDER
            if self._clock.observe(version, now_us):
                verdict = self.store.admit(
                    packet.topic,
                    version,
                    packet.digest,
                    deleted=packet.deletes,
                    here=not packet.may_vanish,
                    now_us=now_us,
                )
            else:
                self._refuse_clock(origin, time_us - now_us)
            if verdict is Verdict.OLDER:
                self.counters.outdated += 1
                changed = bytearray(run) if changed is None else changed
                changed[packet.start] &= ~RETAIN_BIT
                self._overtaken.add(packet.topic)
            elif packet.topic in self._overtaken.topics:
                self._overtaken.topics.discard(packet.topic)
            elif verdict is Verdict.SAME:
                self.counters.repeated += 1
                cut.append((packet.start, packet.end))
        if changed is None and not cut:
            return run
        changed = bytearray(run) if changed is None else changed
        for start, end in reversed(cut):
            del changed[start:end]
        return bytes(changed)

    def missed(self, run: bytes) -> None:
        """Note that some of ``run`` could not be published here after all."""
        for packet in retained_in(run):
            self.store.doubt(packet.topic)

    def refused(self, packet: bytes | bytearray) -> None:
        """Our broker refused ``packet``: if the topic has no value there, no client deleted it."""
        for value in retained_in(bytes(packet)):
            topic = self.policy.renames.outward(value.topic)
            if topic is not None:
                self.store.refuse(topic, value.digest)

    def on_data_down(self) -> None:
        """Doubt what we wrote last: the data connection broke."""
        self.store.doubt_others(since_us=wall_clock_us() - LOST_US)

    def _refuse_clock(self, origin: BrokerId, ahead_us: int) -> None:
        self.counters.clock_refused += 1
        if self._complaints.allow(None, monotonic_ms()):
            ahead_s = ahead_us // 1_000_000
            _log.warning("retained.clock_ahead", origin=origin, ahead_s=ahead_s)

    # -- occasions --------------------------------------------------------------------------------

    def on_interest(
        self, added: Iterable[str], removed: Iterable[str], *, doubted: frozenset[str]
    ) -> None:
        """Our clients' interest changed; ``wanted`` has the new state already.

        Args:
            added: New filters.
            removed: Filters no longer wanted.
            doubted: Of all filters, those not known to be wanted. A short doubt, as at a start, is
                no reason to fetch everything; a lasting one is: a client subscribed unnoticed.
        """
        self._rounds.forget(removed)
        self._part(set(removed) - self._in_doubt)
        for filter in added:
            self._former.pop(filter, None)
        sure = self._not_fetched - doubted
        fresh = doubted - self._in_doubt
        self._in_doubt = doubted
        self._not_fetched = (self._not_fetched & doubted) | fresh
        if fresh:
            self._wait_in_doubt()
        new = sure.intersection(self.wanted).union(added).difference(self._not_fetched)
        if new:
            self._rounds.compare(sorted(new))

    def _part(self, removed: Iterable[str]) -> None:
        """Go on comparing what our clients wanted, if our broker has values of it."""
        for filter in sorted(removed):
            some, _ = self.store.page(filter, mask=-1, after="", count=1, chars=1)
            if some:
                self._former.put(filter, None)
                self._left.add(filter)

    def _wait_in_doubt(self) -> None:
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()
        loop = asyncio.get_running_loop()
        self._doubt_timer = loop.call_later(DOUBT_S, self._fetch_in_doubt)

    def _fetch_in_doubt(self) -> None:
        doubted, self._not_fetched = sorted(self._not_fetched), set()
        if doubted:
            self._rounds.compare(doubted)

    def on_neighbour(self, neighbour: BrokerId, link: MqttLink | None) -> None:
        """A link came up, perhaps joining two parts of the federation; or it was lost."""
        if link is None:
            self._links.pop(neighbour, None)
            return
        self._links[neighbour] = link
        self._rounds.compare(rally=True)
        self._resync_soon()

    def on_rules(self) -> None:
        """Exchange what rules separated until now, like two parts of the federation that meet."""
        self.broker.forget_times()
        self._rounds.compare(rally=True)
        self._resync_soon()

    def _broker_up(self, same: bool) -> None:
        if not same:
            self.store.broker_restarted()
            self.broker.forget_times()
            self._not_fetched = set(self._in_doubt)  # it has not counted anew yet
            self._wait_in_doubt()
        self.broker.forget_scan()
        self._resync_soon()

    def _resync_soon(self) -> None:
        """Compare all our filters: soon, but not again within ``RESYNC_GAP_S``."""
        now_s = asyncio.get_running_loop().time()
        soon_s = now_s + RESYNC_DELAY_S + random.uniform(0, JITTER_S)
        if self._resync_timer is None:
            at_s = max(soon_s, self._resynced_s + RESYNC_GAP_S)
            self._resync_timer = asyncio.get_running_loop().call_at(at_s, self._resync)

    def _resync(self) -> None:
        self._resynced_s = asyncio.get_running_loop().time()
        self._resync_timer = None
        self._rounds.compare(self._fetched())

    def _fetched(self) -> list[str]:
        """The filters on which our broker should have what others have, sorted."""
        return sorted(filter for filter in self.wanted if filter not in self._not_fetched)

    async def _patrol(self) -> None:
        """Compare all filters periodically, a bounded number at a time."""
        last = ""
        while True:
            await asyncio.sleep(self.settings.resync_s * random.uniform(0.8, 1.2))
            filters = self._fetched()
            at = bisect_right(filters, last)
            some = filters[at : at + RETAINED_WANTS_MAX] or filters[:RETAINED_WANTS_MAX]
            if some:
                last = some[-1]
                self._rounds.compare(some)
            self._rounds.compare(list(self._former))

    async def _warn(self) -> None:
        """Log when there are more topics than places, once until there is room again."""
        places, logged = self.store.places, False
        while True:
            await beat(ALARM_S)
            if places.crowded and not logged:
                origin, topics, below = places.culprit()
                room = self.settings.topics_max
                _log.error("retained.full", topics_max=room, origin=origin, of=topics, below=below)
            logged = places.crowded

    def _is_wanted(self, topic: str) -> bool:
        """Whether our broker must have ``topic``: for its clients, or to replace its version."""
        entry = self.store.get(topic)
        held = entry is not None and (entry.here or entry.deleted)
        return held or not self._not_fetched.issuperset(self.wanted.match(topic))

    # -- messages ---------------------------------------------------------------------------------

    def on_message(self, message: RetainedMessage) -> None:
        """Handle a request or a letter from a neighbour."""
        if message.sender not in self._links:
            return
        if isinstance(message, RetainedRequest):
            self._on_request(message)
            return
        message = sift(message, self.link_policies.rules_of(message.sender).allows_import)
        is_ours, onward = self._post.on_letter(message)
        if is_ours:
            self._on_letter(way_to_sender(message), message.body)
        elif onward is not None:
            self._send(onward.route[onward.at + 1], onward)

    def _on_request(self, request: RetainedRequest) -> None:
        new, onward, hops = self._post.on_request(request, self._links, now_ms=monotonic_ms())
        if not new:
            return
        if onward is not None:
            for hop in hops:
                self._send(hop, onward)
        if request.rally:
            self._resync_soon()
        if request.wants:
            self._answers.ask(way_back(request, self.self_id), request)

    def _on_letter(self, way: Way, body: RetainedBody) -> None:
        match body:
            case RetainedPull():
                self._write(way, answer_pull(self.store, body))
            case RetainedAsk():
                self._answers.ask(way, body)
            case _:
                self._rounds.on_letter(way, body)

    def _flood(self, wants: tuple[RetainedWant, ...], rally: bool) -> None:
        self._number += 1
        me = self.self_id
        request = RetainedRequest(me, self.epoch(), self._number, (me,), rally, wants)
        for neighbour in sorted(self._links):
            self._send(neighbour, request)

    def _write(self, way: Way, body: RetainedBody) -> None:
        self._send(way[1], self._post.write(body, way))

    def _send(self, neighbour: BrokerId, message: RetainedMessage) -> None:
        link = self._links.get(neighbour)
        if link is None:
            return
        if isinstance(message, RetainedLetter):
            message = sift(message, self.link_policies.rules_of(neighbour).allows_export)
        self.send(link, message)


@dataclass(eq=False, repr=False)
class _Soon:
    """Topics that are handed on together, a while after the first of them."""

    hand_on: Callable[[list[str]], None]  # gets them, sorted
    delay_s: float
    topics_max: int  # further topics are ignored
    topics: set[str] = field(default_factory=set)

    def add(self, topic: str) -> None:
        """Add ``topic`` to the next batch."""
        if not self.topics:
            asyncio.get_running_loop().call_later(self.delay_s, self._go)
        if len(self.topics) < self.topics_max:
            self.topics.add(topic)

    def _go(self) -> None:
        self.hand_on(sorted(self.topics))
        self.topics.clear()
