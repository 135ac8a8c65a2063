"""A line of agents in simulated time, without a machine in the way: what the scheme alone costs.

The link machines of the daemon stand at both ends of every road; between them each datagram steps
a chain of Gilbert and Elliott, as in ``roads``. What the links give back crosses by the broker, in
the time a road takes, and is never lost there.

Source: docs/udp-fec.md, "Measured".
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from federator.protocol.datagrams.link import DatagramLink
from federator.protocol.datagrams.sender import Limits, Outcome
from federator.protocol.types import Millis
from federator.runtime.datagrams.raptor import RaptorCoder
from lab.bench.lossy.roads import Losses

FRAME_BYTES: Final = 150
NUMBER_BYTES: Final = 4
SETTLE_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """What is simulated: roads one behind the other, and a flow over all of them."""

    hops: int = 3
    delay_ms: int = 50
    plr: float = 0.02
    abl: float = 2.0
    rate_hz: float = 100.0
    count: int = 2_000
    learning_s: float = 10.0
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class Passed:
    """What became of a flow."""

    delays_ms: list[int]  # of all that arrived, from the shortest
    spent: Counter[str]  # what ``SenderCounters`` count, of all links

    def quantile_ms(self, share: float) -> int:
        return self.delays_ms[min(len(self.delays_ms) - 1, int(len(self.delays_ms) * share))]


def together(worlds: Iterable[Passed]) -> Passed:
    delays: list[int] = []
    spent: Counter[str] = Counter()
    for world in worlds:
        delays += world.delays_ms
        spent += world.spent
    return Passed(sorted(delays), spent)


class World:
    """One line at work, whose roads lose what ``seed`` says."""

    def __init__(self, line: Line, seed: int) -> None:
        self._line = line
        self._now = 1_000
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._tick = itertools.count()
        coder = RaptorCoder()
        self._roads: list[Losses] = []  # as the links, from their end on
        self._links: list[DatagramLink] = []  # 2 i: from i to i + 1; 2 i + 1: its other end
        for end in range(2 * line.hops):
            rng = random.Random(f"{seed} {end}")
            self._roads.append(Losses(rng, plr=line.plr, abl=line.abl))
            link = DatagramLink(line.limits, coder, stream=end + 1, now_ms=Millis(self._now))
            self._links.append(link)
        self._offered_ms: dict[int, int] = {}
        self._came: dict[int, int] = {}

    def run(self) -> Passed:
        line = self._line
        first = round(line.learning_s * line.rate_hz)
        self._advance(SETTLE_MS)
        self._flow(0, first)
        before = self._spent()
        self._flow(first, first + line.count)
        self._advance(SETTLE_MS)
        spent = self._spent()
        spent.subtract(before)
        delays = [self._came[n] - self._offered_ms[n] for n in self._came if n >= first]
        return Passed(sorted(delays), spent)

    def _flow(self, first: int, end: int) -> None:
        begun = self._now
        for n in range(first, end):
            self._advance(begun + round((n - first) * 1000 / self._line.rate_hz) - self._now)
            self._offered_ms[n] = self._now
            self._carry(0, n.to_bytes(NUMBER_BYTES, "big").ljust(FRAME_BYTES, b"\0"))

    def _spent(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for link in self._links[::2]:
            counters = link.sender.counters
            total.update({name: getattr(counters, name) for name in counters.__slots__})
        return total

    def _carry(self, node: int, frame: bytes) -> None:
        if node == self._line.hops:
            self._came.setdefault(int.from_bytes(frame[:NUMBER_BYTES], "big"), self._now)
            return
        datagrams = self._links[2 * node].offer(frame, now_ms=Millis(self._now))
        if datagrams is None:
            self._by_broker(node, frame)
        else:
            self._send(2 * node, datagrams)

    def _by_broker(self, node: int, frame: bytes) -> None:
        self._later(self._line.delay_ms, partial(self._carry, node + 1, frame))

    def _send(self, end: int, datagrams: list[bytes]) -> None:
        road = self._roads[end]
        for datagram in datagrams:
            if not road.take_next():
                self._later(self._line.delay_ms, partial(self._hear, end ^ 1, datagram))

    def _hear(self, end: int, datagram: bytes) -> None:
        self._told(end, self._links[end].on_datagram(datagram, now_ms=Millis(self._now)))

    def _told(self, end: int, outcome: Outcome) -> None:
        self._send(end, outcome.datagrams)
        node = end // 2 + end % 2
        for frame in outcome.given_back:
            self._by_broker(node, frame)
        for frame in outcome.frames:
            self._carry(node, frame)

    def _later(self, delay_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self._now + delay_ms, next(self._tick), do))

    def _advance(self, ms: int) -> None:
        until = self._now + ms
        while True:
            due = min(link.next_deadline_ms() for link in self._links)
            arrival = self._agenda[0][0] if self._agenda else until + 1
            at = min(due, arrival)
            if at > until:
                self._now = until
                return
            self._now = max(self._now, at)
            if arrival <= self._now:
                heapq.heappop(self._agenda)[2]()
                continue
            for end, link in enumerate(self._links):
                if link.next_deadline_ms() <= self._now:
                    self._told(end, link.on_deadline(now_ms=Millis(self._now)))
