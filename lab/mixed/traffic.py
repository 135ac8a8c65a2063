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
from functools import partial
from typing import Final

from federator.errors import LinkError
from federator.protocol.filters import matches
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, Inbound, MqttLink
from lab.grid.clients import Client
from lab.grid.stage import Stage
from lab.grid.streams import linked
from lab.grid.waiting import until

STANDS_S: Final = 3.0
"""So long after SUBACK a subscription is known in a small federation, several times over."""

DRAIN_S: Final = 20.0
"""What is under way then is lost."""

TOPICS_EACH: Final = 3


def topics_of(broker: BrokerId) -> list[str]:
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

    stage: Stage
    rate: float  # per second of all together
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for broker in self.stage.brokers:
                tasks.create_task(self._publish_at(broker), name=f"publisher {broker}")

    async def _publish_at(self, broker: BrokerId) -> None:
        gap_s, topics = len(self.stage.brokers) / self.rate, topics_of(broker)
        client = Client(self.stage.endpoint(broker), f"mixed-publisher-{broker}")
        answers: asyncio.Queue[int] = asyncio.Queue()
        publish = partial(client.link.publish, qos=1, on_answer=answers.put_nowait)
        async with linked(client):
            due_s = time.monotonic()
            while True:
                for topic in topics:
                    if not publish(topic, b"%d" % self.counts[topic]):
                        raise LinkError(f"broker {broker} takes nothing")
                    await answers.get()
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
        self.visits += 1
        for topic, numbers in wanted.items():
            self.owed += len(numbers)
            lost = [number for number in numbers if not came[topic, number]]
            self.missing += len(lost)
            self.again += sum(max(0, came[topic, number] - 1) for number in numbers)
            if lost:
                self.examples.append(f"{who}: {topic} {lost[0]} to {lost[-1]}, {len(lost)}")


class Visit(Client):
    """One subscriber that stays a while: once it is subscribed, ``begin`` and ``leave``."""

    def __init__(self, at: Endpoint, name: str, filter_: str, publishing: Publishing) -> None:
        super().__init__(at, name, filter_, session_expiry_s=0)
        self._name, self._filter, self._counts = name, filter_, publishing.counts
        self._came: Counter[tuple[str, int]] = Counter()
        self._before: dict[str, int] = {}

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self._came.update((packet.topic, int(bytes(packet.payload))) for packet, _, _ in publishes)

    async def begin(self) -> None:
        await asyncio.sleep(STANDS_S)
        self._before = dict(self._counts)

    async def leave(self, tally: Tally) -> None:
        wanted = owed(self._filter, self._before, dict(self._counts))
        awaited = {(topic, number) for topic, numbers in wanted.items() for number in numbers}
        with contextlib.suppress(LinkError):
            await until(lambda: awaited <= self._came.keys(), "what is owed", deadline_s=DRAIN_S)
        tally.settle(f"{self._name} of {self._filter}", wanted, self._came)
