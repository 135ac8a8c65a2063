"""Comparisons with other agents, a bounded number of filters each, in two lanes.

In the quick lane one comparison follows the other, and none is long: a filter with much to read or
to fetch moves to the slow lane, where such filters are compared one at a time. So a request for a
few values never waits for one for very many.

Values are requested in small parts, each after the last was received and published: however many
values differ, few are in flight at once. ``protocol.retained.round`` decides what to compare, which
version wins and which agent to ask.

Source: docs/protocol.md 13.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import structlog

from federator.errors import LinkError
from federator.protocol.messages.control import (
    RETAINED_WANTS_MAX,
    RetainedBody,
    RetainedEntry,
    RetainedNews,
    RetainedOffer,
    RetainedPage,
    RetainedValues,
    RetainedWant,
)
from federator.protocol.retained.round import Post, Round, Way
from federator.protocol.retained.store import digest_of_buckets
from federator.runtime.process.clocks import wall_clock_us
from federator.runtime.retained.broker import RetainedBroker
from federator.runtime.retained.scanner import NOTHING

QUICK_S = 1.0
QUICK_LETTERS = 4
"""In a comparison that lasts longer, a filter with more letters than this leaves the quick lane as
soon as another filter waits there."""

SLOW_REST = 4
"""After a long scan we leave our broker alone for so many times as long."""

GATHER_S = 0.03
"""Filters that come within so long are compared together."""

OFFER_WAIT_S = 0.15
"""How long we wait for offers before deciding. Later ones make another comparison."""

SILENCE_MAX_S = 3.0
"""After so long without an answer, we give up a peer in this comparison."""

HEARD_WAITING_MAX = 1_024
RETRY_S = 1.0
UNFINISHED_GAP_S = 1.0

_log = structlog.get_logger()

Write = Callable[[Way, RetainedBody], None]
"""Sends a letter."""

Flood = Callable[[tuple[RetainedWant, ...], bool], None]
"""Asks all agents for their state of these filters; and to compare theirs, if the flag is set."""


@dataclass(eq=False, repr=False)
class RetainedRounds:
    """Compares our values with the other agents' when there is a reason."""

    broker: RetainedBroker
    wanted: Callable[[str], bool]  # whether our broker should have a topic
    write: Write
    flood: Flood

    def __post_init__(self) -> None:
        common = (self.broker, self.wanted, self.write, self.flood)
        self._slow = _Lane(*common, None, 1)
        self._quick = _Lane(
            *common, lambda filter: self._slow.compare([filter]), RETAINED_WANTS_MAX
        )

    def compare(self, filters: Iterable[str] = (), *, rally: bool = False) -> None:
        """Compare ``filters`` soon; with ``rally``, have all agents compare theirs, too."""
        lanes: dict[bool, list[str]] = {False: [], True: []}
        for filter in filters:
            lanes[self._is_slow(filter)].append(filter)
        self._quick.compare(lanes[False], rally=rally)
        if lanes[True]:
            self._slow.compare(lanes[True])

    def repeat(self, topics: Iterable[str]) -> None:
        """Publish once more what our broker retains on ``topics``: older values came later."""
        self._quick.repeat(topics)

    def forget(self, filters: Iterable[str]) -> None:
        """Stop comparing ``filters``: no client here wants them."""
        filters = list(filters)
        self._quick.forget(filters)
        self._slow.forget(filters)

    def on_letter(self, way: Way, body: RetainedBody) -> None:
        """Handle a letter of a comparison, received by ``way``."""
        lane = self._slow if self._is_slow(body.filter) else self._quick
        lane.on_letter(way, body)

    def _is_slow(self, filter: str) -> bool:
        if self._slow.is_about(filter):
            return True
        return not self._quick.is_about(filter) and self.broker.is_large(filter)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quick.run(), name="retained comparisons, quick")
            tasks.create_task(self._slow.run(), name="retained comparisons, slow")


@dataclass(eq=False, repr=False)
class _Lane:
    """A sequence of comparisons."""

    broker: RetainedBroker
    wanted: Callable[[str], bool]
    write: Write
    flood: Flood
    set_aside: Callable[[str], None] | None  # takes a filter that is too long; ``None``: no limit
    filters_max: int  # compared together

    def __post_init__(self) -> None:
        self._began_s = self._scanned_s = 0.0  # when the last scan began, how long it took
        self._letters: Counter[str] = Counter()  # read in this comparison, by filter
        self._due: dict[str, None] = {}
        self._comparing: dict[str, None] = {}
        self._repeat: set[str] = set()
        self._rally = False
        self._received: deque[tuple[Way, RetainedOffer | RetainedNews]] = deque(
            maxlen=HEARD_WAITING_MAX
        )
        self._round: Round | None = None
        self._collecting = False
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._values: list[tuple[RetainedEntry, bytes]] | None = None

    def compare(self, filters: Iterable[str] = (), *, rally: bool = False) -> None:
        """Compare ``filters`` soon; with ``rally``, have all agents compare theirs, too."""
        self._due.update(dict.fromkeys(filters))
        self._rally |= rally
        self._work.set()

    def repeat(self, topics: Iterable[str]) -> None:
        """Publish once more what our broker retains on ``topics``: older values came later."""
        self._repeat.update(topics)
        self._work.set()

    def forget(self, filters: Iterable[str]) -> None:
        """Stop comparing ``filters``: no client here wants them."""
        for filter in filters:
            self._due.pop(filter, None)
            self._comparing.pop(filter, None)

    def is_about(self, filter: str) -> bool:
        """Whether ``filter`` is compared here, or waits for it."""
        own = self._round.own if self._round is not None else ()
        return filter in self._due or filter in self._comparing or filter in own

    def on_letter(self, way: Way, body: RetainedBody) -> None:
        """Handle a letter of a comparison, received by ``way``."""
        round_ = self._round
        match body:
            case RetainedOffer() if self._collecting and round_ and body.filter in round_.own:
                self._deliver(round_.on_offer(way, body))
            case RetainedOffer() | RetainedNews():  # too late for this round: kept for the next
                self._received.append((way, body))
                self._work.set()
                return
            case RetainedPage() if round_ is not None:
                self._deliver(round_.on_page(way, body))
            case RetainedValues() if round_ is not None:
                taken = round_.on_values(way, body)
                if taken is None:
                    return
                self._values = taken
            case _:
                return
        filter = body.filter
        self._letters[filter] += 1
        long = self._letters[filter] > QUICK_LETTERS and time.monotonic() - self._began_s > QUICK_S
        if long and self._due and self.set_aside is not None:
            self._deliver(round_.set_aside(filter))
            self._comparing.pop(filter, None)
            self._letters[filter] = 0
            self.set_aside(filter)
        self._progress.set()

    def _deliver(self, post: Post) -> None:
        for way, body in post:
            self.write(way, body)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(GATHER_S)
            self._work.clear()
            filters = list(islice(self._due, self.filters_max))
            for filter in filters:
                del self._due[filter]
            self._comparing = dict.fromkeys(filters)
            self._letters.clear()
            rally, self._rally = self._rally, False
            letters = list(self._received)
            self._received.clear()
            repeat, self._repeat = sorted(self._repeat), set()
            try:
                await self.broker.repeat(repeat)
                if not await self._compare(filters, letters, rally=rally):
                    await asyncio.sleep(UNFINISHED_GAP_S)
                    self.compare(self._comparing)
            except LinkError as error:
                self.broker.counters.failed += 1
                _log.warning("retained.failed", reason=str(error))
                await asyncio.sleep(RETRY_S)
                self.compare(self._comparing)
            finally:
                self._round = None
            if self._due or self._received:
                self._work.set()
            if self.set_aside is None:
                await asyncio.sleep(SLOW_REST * self._scanned_s)

    async def _compare(
        self,
        filters: list[str],
        received: list[tuple[Way, RetainedOffer | RetainedNews]],
        *,
        rally: bool,
    ) -> bool:
        """Scan, ask all agents, read their answers, fetch newer values; return whether all came."""
        below = sorted({*filters, *(letter_body.filter for _, letter_body in received)})
        self._began_s = time.monotonic()
        scan = await self.broker.scan(below) if below else NOTHING
        self._scanned_s = time.monotonic() - self._began_s
        if self.set_aside is not None:
            for filter in [f for f in below if self.broker.is_large(f)]:
                below.remove(filter)
                if filter in self._comparing:
                    filters.remove(filter)
                    del self._comparing[filter]
                self.set_aside(filter)
        own = await self.broker.digests(below)
        round_ = self._round = Round(self.broker.store, self.wanted, scan.digest, own)
        self._collecting = True
        self.broker.counters.rounds += 1
        for way, body in received:
            if body.filter not in own:
                continue  # it moved to the other lane
            if isinstance(body, RetainedOffer):
                self._deliver(round_.on_offer(way, body))
            else:
                round_.on_news(way, body)
        if filters or rally:
            digests = [digest_of_buckets(own[filter]) for filter in filters]
            self.flood(tuple(map(RetainedWant, filters, digests)), rally)
        if filters:
            # The agent with the newest version must have offered before we ask any for a value: so
            # a late joiner gets each value once.
            await asyncio.sleep(OFFER_WAIT_S)
        while round_.reading and await self._progressed():
            pass
        self._collecting = False
        unread = round_.give_up_reading()
        self.broker.counters.unread += unread
        fetched = await self._fetch(round_)
        for letter in round_.news():
            self._deliver([letter])
            await asyncio.sleep(0)
        return fetched and not unread

    async def _fetch(self, round_: Round) -> bool:
        """Update our broker; return whether everything requested came."""
        while round_.undecided:
            erase, adopted = round_.decide(wall_clock_us())
            self.broker.counters.adopted += adopted
            for topic, version in erase:
                self.broker.delete(topic, version)
            await asyncio.sleep(0)
        round_.few_first()
        while (ask := round_.next_ask()) is not None:
            self._values = None
            self.write(*ask)
            while self._values is None:
                if not await self._progressed():
                    return False
            await self.broker.publish(self._values)
        return True

    async def _progressed(self) -> bool:
        """Wait for a letter; ``False`` when none came for ``SILENCE_MAX_S``."""
        try:
            async with asyncio.timeout(SILENCE_MAX_S):
                await self._progress.wait()
        except TimeoutError:
            return False
        self._progress.clear()
        return True
