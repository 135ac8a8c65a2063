"""Answers to other agents' requests about retained values, one at a time.

A request is answered only when everything our clients set from now on is sure to be forwarded: the
requester gets earlier values from this answer, and later ones through its mesh.

Source: docs/protocol.md 13.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from federator.errors import LinkError
from federator.protocol.forwarding.keeping import Keeping
from federator.protocol.messages.codec import CONTROL_BYTES_MAX
from federator.protocol.messages.control import (
    RetainedAsk,
    RetainedEntry,
    RetainedRequest,
    RetainedValues,
)
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.retained.long_values import PART_BYTES
from federator.protocol.retained.round import Way, as_entry, make_offer
from federator.protocol.retained.store import digest_of_buckets
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.retained.broker import SCAN_VALID_S, RetainedBroker
from federator.runtime.retained.rounds import Write
from federator.runtime.retained.scanner import Scan

COVERED_POLL_S = 0.01
COVERED_POLLS_MAX = 100
QUESTIONS_WAITING_MAX = 256
REQUESTS_AT_ONCE_MAX = 16
SCAN_KEPT_S = 20.0
COMPLAINT_GAP_MS = Millis(600_000)
COMPLAINTS_MAX = 256
VALUE_BYTES_MAX = CONTROL_BYTES_MAX - 1_024
"""The longest packet with its topic and filter once more, for agents of earlier releases, which do
not support parts: the rest of a letter needs room, too."""

_log = structlog.get_logger()


class _Questions:
    """Requests of other agents that are not answered yet, in the order received."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Way, RetainedRequest | RetainedAsk]] = deque(
            maxlen=QUESTIONS_WAITING_MAX
        )
        self.came = asyncio.Event()

    def put(self, way: Way, about: RetainedRequest | RetainedAsk) -> None:
        self.waiting.append((way, about))
        self.came.set()

    def next_requests(self) -> list[tuple[Way, RetainedRequest]]:
        """The first requests, as many as one scan shall answer."""
        requests: list[tuple[Way, RetainedRequest]] = []
        while self.waiting and len(requests) < REQUESTS_AT_ONCE_MAX:
            way, about = self.waiting[0]
            if isinstance(about, RetainedAsk):
                break
            requests.append((way, about))
            self.waiting.popleft()
        return requests


@dataclass(eq=False, repr=False)
class RetainedAnswers:
    """Answers requests and asks of other agents in their order; those about large filters apart."""

    broker: RetainedBroker
    covered: Callable[[str], bool]  # whether we receive what our clients publish below a filter
    write: Write
    keeping: Keeping

    def __post_init__(self) -> None:
        self._quick, self._slow = _Questions(), _Questions()
        self._complaints: RateLimiter[str] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=COMPLAINTS_MAX
        )

    def ask(self, way: Way, about: RetainedRequest | RetainedAsk) -> None:
        """Answer ``about``, received by ``way``, when its turn comes; large filters apart."""
        if isinstance(about, RetainedAsk):
            self._queue(about.filter).put(way, about)
            return
        for questions in (self._quick, self._slow):
            wants = tuple(want for want in about.wants if self._queue(want.filter) is questions)
            if wants:
                questions.put(way, msgspec.structs.replace(about, wants=wants))

    def _queue(self, filter: str) -> "_Questions":
        return self._slow if self.broker.is_large(filter) else self._quick

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._answer(self._quick), name="retained answers, quick")
            tasks.create_task(self._answer(self._slow), name="retained answers, slow")

    async def _answer(self, questions: "_Questions") -> None:
        while True:
            if not questions.waiting:
                questions.came.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_KEPT_S):
                        await questions.came.wait()
                self.broker.forget_scan(older_than_s=SCAN_KEPT_S)
                continue
            try:
                if requests := questions.next_requests():
                    await self._answer_requests(requests)
                else:
                    way, about = questions.waiting.popleft()
                    assert isinstance(about, RetainedAsk), "requests come first"
                    await self._answer_ask(way, about)
            except LinkError as error:
                self.broker.counters.failed += 1
                _log.warning("retained.failed", reason=str(error))

    async def _answer_requests(self, requests: list[tuple[Way, RetainedRequest]]) -> None:
        """Offer digests of what differs from the requesters' values."""
        wants = [(way, want) for way, request in requests for want in request.wants]
        filters = sorted({want.filter for _, want in wants})
        # Otherwise values set between the scan and the first forwarding would be missed.
        for _ in range(COVERED_POLLS_MAX):
            if all(map(self.covered, filters)):
                break
            await asyncio.sleep(COVERED_POLL_S)
        # An earlier scan skipped what was kept here until a moment ago.
        valid_s = SCAN_VALID_S if self.keeping.policy is None else 0.0
        await self.broker.recent_scan(filters, valid_s=valid_s)
        digests = await self.broker.digests(filters)
        for way, want in wants:
            buckets = digests[want.filter]
            if buckets and digest_of_buckets(buckets) != want.digest:
                self.write(way, make_offer(want.filter, buckets))

    async def _answer_ask(self, way: Way, ask: RetainedAsk) -> None:
        filters = [ask.filter]
        # Since a scan of the longer one much may have changed.
        for valid_s in (SCAN_KEPT_S, SCAN_VALID_S):
            scan = await self.broker.recent_scan(filters, valid_s=valid_s)
            if (reply := self._values(ask, scan)).entries:
                break
        else:  # changed since, or there was no room to keep the packet
            reply = self._values(ask, await self.broker.scan(filters, keep=frozenset(ask.topics)))
        if reply.at + PART_BYTES >= reply.size:  # not a part that is continued
            self.broker.counters.values_given += len(reply.entries)
        self.write(way, reply)

    def _values(self, ask: RetainedAsk, scan: Scan) -> RetainedValues:
        entries: list[RetainedEntry] = []
        packets: list[bytes] = []
        size = 0
        for topic in ask.topics:
            entry = self.broker.store.get(topic)
            packet = None if entry is None else scan.packet(topic, entry.digest)
            if entry is None or entry.deleted or packet is None:
                continue
            if ask.at >= 0 and len(packet) > PART_BYTES:
                if entries:
                    break
                at = ask.at if topic == ask.topics[0] else 0
                part = packet[at : at + PART_BYTES]
                return RetainedValues(
                    ask.filter, (as_entry(topic, entry),), (part,), at, len(packet)
                )
            if len(packet) + len(topic.encode()) + len(ask.filter.encode()) > VALUE_BYTES_MAX:
                self.broker.counters.too_long += 1
                if self._complaints.allow(topic, monotonic_ms()):
                    size, most = len(packet), VALUE_BYTES_MAX
                    _log.warning("retained.too_long", topic=topic[:200], bytes=size, bytes_max=most)
                continue
            size += len(packet)
            if entries and size > PART_BYTES:
                break
            entries.append(as_entry(topic, entry))
            packets.append(packet)
        return RetainedValues(ask.filter, tuple(entries), tuple(packets))
