"""Clients that count: publishers without end, and subscribers that stay for a while.

What a subscriber is owed is plain: of each topic that matches its filter, the numbers that were
published after its subscription stood and before it went. What came besides is not counted.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiomqtt

from federator.protocol.filters import matches
from federator.protocol.types import BrokerId

STANDS_S: Final = 3.0
"""So long after SUBACK a subscription is known in a small federation, several times over."""

DRAIN_S: Final = 20.0
"""What is under way then is lost."""

TOPICS_EACH: Final = 3

Place = tuple[str, int]


def topics_of(broker: BrokerId) -> list[str]:
    """What clients of ``broker`` publish on."""
    return [f"mixed/{broker}/{number}" for number in range(TOPICS_EACH)]


def owed(filter_: str, before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, range]:
    """The numbers of each topic that a subscriber of ``filter_`` is owed.

    ``before`` and ``after`` are how many each topic had when it began and when it ended.
    """
    return {
        topic: range(before.get(topic, 0), count)
        for topic, count in after.items()
        if matches(filter_, topic)
    }


@dataclass(eq=False)
class Publishing:
    """All publishers: how many publications each topic has, all of them acknowledged."""

    places: Mapping[BrokerId, Place]
    rate: float  # per second of all together
    qos: int = 1
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Publish at every broker. Ends by cancellation."""
        async with asyncio.TaskGroup() as tasks:
            for broker in self.places:
                tasks.create_task(self._publish_at(broker), name=f"publisher {broker}")

    async def _publish_at(self, broker: BrokerId) -> None:
        host, port = self.places[broker]
        gap_s, topics = len(self.places) / self.rate, topics_of(broker)
        name = f"mixed-publisher-{broker}"
        async with aiomqtt.Client(host, port, identifier=name) as client:
            due_s = time.monotonic()
            while True:
                for topic in topics:
                    await client.publish(topic, b"%d" % self.counts[topic], qos=self.qos)
                    self.counts[topic] += 1
                    due_s += gap_s
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))


@dataclass(eq=False)
class Tally:
    """What subscribers were owed, and what of it never came."""

    visits: int = 0
    owed: int = 0
    missing: int = 0
    again: int = 0  # came twice
    examples: list[str] = field(default_factory=list)

    def settle(
        self, who: str, wanted: Mapping[str, Sequence[int]], came: Counter[tuple[str, int]]
    ) -> None:
        """Judge one visit."""
        self.visits += 1
        for topic, numbers in wanted.items():
            self.owed += len(numbers)
            lost = [number for number in numbers if not came[topic, number]]
            self.missing += len(lost)
            self.again += sum(max(0, came[topic, number] - 1) for number in numbers)
            if lost:
                self.examples.append(f"{who}: {topic} {lost[0]} to {lost[-1]}, {len(lost)}")


@dataclass(eq=False)
class Visit:
    """One subscriber that stays a while: ``subscribe``, ``begin``, ``leave``."""

    name: str
    place: Place
    filter: str
    publishing: Publishing
    came: Counter[tuple[str, int]] = field(default_factory=Counter)
    _awaited: set[tuple[str, int]] = field(default_factory=set)  # once it leaves
    _all_came: asyncio.Event = field(default_factory=asyncio.Event)

    async def subscribe(self, stack: contextlib.AsyncExitStack) -> None:
        """Connect, for as long as ``stack`` stands, and subscribe."""
        host, port = self.place
        client = aiomqtt.Client(host, port, identifier=self.name)
        self._client = await stack.enter_async_context(client)
        reading = asyncio.create_task(self._read(), name=self.name)
        stack.callback(reading.cancel)
        await self._client.subscribe(self.filter, qos=1)

    async def begin(self) -> None:
        """Wait until the subscription stands; from now on it is owed."""
        await asyncio.sleep(STANDS_S)
        self._before = dict(self.publishing.counts)

    async def leave(self, tally: Tally) -> None:
        """Wait for what is owed, and settle."""
        wanted = owed(self.filter, self._before, dict(self.publishing.counts))
        self._all_came.clear()
        self._awaited = {(topic, n) for topic, numbers in wanted.items() for n in numbers}
        self._awaited -= self.came.keys()
        if not self._awaited:
            self._all_came.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._all_came.wait()
        tally.settle(f"{self.name} of {self.filter}", wanted, self.came)

    async def _read(self) -> None:
        async for message in self._client.messages:
            payload = message.payload
            assert isinstance(payload, bytes)
            each = str(message.topic), int(payload)
            self.came[each] += 1
            self._awaited.discard(each)
            if not self._awaited:
                self._all_came.set()
