"""One stream between two brokers, publication by publication: at a rate, or as fast as it goes."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Coroutine
from itertools import pairwise
from typing import Final

from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.runtime.mqtt.link import Endpoint, Inbound, MqttLink
from lab.grid.clients import Arrivals, Counting, Tally, stamped

PAYLOAD_BYTES: Final = 64
SILENCE_S: Final = 20.0
"""After the last publication: what has not arrived when nothing came for so long is lost."""

LINGER_S: Final = 2.0
SUBSCRIBE_S: Final = 30.0
POLL_S: Final = 0.01
AHEAD: Final = 400
"""Of a burst, unacknowledged by the publisher's broker: the link is what is measured."""


class Client(Counting):
    """A client whose session outlasts a connection.

    Attributes:
        came_s: Monotonic times at which publications came, noted where there is a list.
    """

    def __init__(self, endpoint: Endpoint, name: str, topic: str | None) -> None:
        super().__init__()
        self.came_s: list[float] | None = None
        self.link = MqttLink(endpoint, self, client_id=name, session_expiry_s=600)
        if topic is not None:
            self.link.subscribe([TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE)])

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Count what one socket read brought."""
        super().on_publishes(link, chunk, publishes)
        if self.came_s is not None:
            self.came_s.append(time.monotonic())

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """The longest silence between these two moments."""
        ends = [since_s, *(at for at in self.came_s or () if since_s < at < until_s), until_s]
        return max(after - before for before, after in pairwise(ends))


class Stream:
    """Publications from one broker to another, run after run.

    Args:
        names: Of the two.
    """

    def __init__(self, names: tuple[str, str], source: Endpoint, target: Endpoint) -> None:
        here, there = names
        self.topic = f"from/{here}/to/{there}"
        self.publisher = Client(source, f"{here}-to-{there}", None)
        self.subscriber = Client(target, f"{there}-of-{here}", self.topic)
        self.run_number = 0

    def begin(self, publications: int) -> Tally:
        """Count from now on what arrives of a new run."""
        self.run_number += 1
        tally = Tally(self.run_number, publications, payload_bytes=PAYLOAD_BYTES)
        self.subscriber.tally = tally
        return tally

    async def publish(self, number: int) -> None:
        """Publish a number, once there is room."""
        link = self.publisher.link
        while True:
            now_ns = time.monotonic_ns()
            payload = stamped(self.run_number, number, now_ns, payload_bytes=PAYLOAD_BYTES)
            if link.unacknowledged < AHEAD and link.publish(self.topic, payload, qos=1):
                return
            await asyncio.sleep(0.001)

    async def drain(self, tally: Tally, publications: int) -> None:
        """Wait until all arrived, or nothing comes any more."""
        received, since_s = -1, time.monotonic()
        while tally.received < publications and time.monotonic() - since_s < SILENCE_S:
            if tally.received != received:
                received, since_s = tally.received, time.monotonic()
            await asyncio.sleep(POLL_S)

    async def flows(self) -> None:
        """Return once what is published arrives. Raises ``LinkError``: it does not."""
        tally = self.begin(10_000)
        end_s = time.monotonic() + SUBSCRIBE_S
        number = 0
        while not tally.received:
            if time.monotonic() > end_s:
                raise LinkError(f"{self.topic}: nothing arrives")
            await self.publish(number)
            number += 1
            await asyncio.sleep(0.1)
        await self.drain(tally, number)

    async def steady(self, seconds: float, rate_hz: float) -> Arrivals:
        """Publish at a rate, and count."""
        publications = round(seconds * rate_hz)
        tally = self.begin(publications)
        loop, rng = asyncio.get_running_loop(), random.Random(self.topic)
        due_s = loop.time()
        for number in range(publications):
            await self.publish(number)
            due_s += rng.uniform(0.5, 1.5) / rate_hz
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        return await self._counted(tally, publications)

    async def until(self, ended: asyncio.Event, rate_hz: float, publications_max: int) -> Arrivals:
        """Publish at a steady rate until ``ended``, so many at most, and count."""
        tally = self.begin(publications_max)
        loop = asyncio.get_running_loop()
        due_s, sent = loop.time(), 0
        while not ended.is_set() and sent < publications_max:
            await self.publish(sent)
            sent += 1
            due_s += 1 / rate_hz
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        return await self._counted(tally, sent)

    async def _counted(self, tally: Tally, sent: int) -> Arrivals:
        await self.drain(tally, sent)
        await asyncio.sleep(LINGER_S)
        return tally.arrivals(sent)

    async def burst(self, publications: int) -> float:
        """Publish as fast as the link goes; msg/s."""
        tally = self.begin(publications)
        begun_s = time.monotonic()
        for number in range(publications):
            await self.publish(number)
        await self.drain(tally, publications)
        if tally.received < publications:
            raise LinkError(f"{self.topic}: {publications - tally.received} of a burst are lost")
        return publications / (time.monotonic() - begun_s)


@contextlib.asynccontextmanager
async def running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Do all ``work`` meanwhile."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
