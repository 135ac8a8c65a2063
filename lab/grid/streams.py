"""One stream between two brokers, publication by publication: at a rate, or as fast as it goes."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from statistics import median
from typing import Final

from federator.errors import LinkError
from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Arrivals, Client, Tally, drain, stamped

PAYLOAD_BYTES: Final = 64
SILENCE_S: Final = 20.0
"""After the last publication: what has not arrived when nothing came for so long is lost."""

LINGER_S: Final = 2.0
SUBSCRIBE_S: Final = 30.0
AHEAD: Final = 400
"""Of a burst, unacknowledged by the publisher's broker: the link is what is measured."""


async def paced(count: int, rate_hz: float, rng: random.Random | None = None) -> AsyncIterator[int]:
    """Numbers from 0 on at a rate, evenly, or by chance up to a half apart from that."""
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for number in range(count):
        yield number
        due_s += (rng.uniform(0.5, 1.5) if rng else 1) / rate_hz
        await asyncio.sleep(max(0.0, due_s - loop.time()))


class Stream:
    """Publications from one broker to another, run after run.

    Args:
        names: Of the two.
    """

    def __init__(self, names: tuple[str, str], source: Endpoint, target: Endpoint) -> None:
        here, there = names
        self.name = f"{here} to {there}"
        self.topic = f"from/{here}/to/{there}"
        self.publisher = Client(source, f"{here}-to-{there}")
        self.subscriber = Client(target, f"{there}-of-{here}", self.topic)
        self.run_number = 0

    def begin(self, publications: int) -> Tally:
        self.run_number += 1
        tally = Tally(self.run_number, publications, payload_bytes=PAYLOAD_BYTES)
        self.subscriber.tally = tally
        return tally

    async def publish(self, number: int, *, qos: int = 1) -> None:
        link = self.publisher.link
        while True:
            now_ns = time.monotonic_ns()
            payload = stamped(self.run_number, number, now_ns, payload_bytes=PAYLOAD_BYTES)
            if link.unacknowledged < AHEAD and link.publish(self.topic, payload, qos=qos):
                return
            await asyncio.sleep(0.001)

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
        await drain([tally], number, silence_s=SILENCE_S)

    async def steady(self, seconds: float, rate_hz: float) -> Arrivals:
        """Publish at a rate, and count."""
        publications = round(seconds * rate_hz)
        tally = self.begin(publications)
        async for number in paced(publications, rate_hz, random.Random(self.topic)):
            await self.publish(number)
        return await self._counted(tally, publications)

    async def until(self, ended: asyncio.Event, rate_hz: float, publications_max: int) -> Arrivals:
        """Publish at a steady rate until ``ended``, so many at most, and count."""
        tally, sent = self.begin(publications_max), 0
        async for number in paced(publications_max, rate_hz):
            if ended.is_set():
                break
            await self.publish(number)
            sent += 1
        return await self._counted(tally, sent)

    async def evenly(
        self, publications: int, rate_hz: float, *, qos: int, silence_s: float
    ) -> Tally:
        """Publish at a steady rate; what has not come once it is silent for so long is lost."""
        tally = self.begin(publications)
        async for number in paced(publications, rate_hz):
            await self.publish(number, qos=qos)
        await drain([tally], publications, silence_s=silence_s)
        await asyncio.sleep(LINGER_S)
        return tally

    async def _counted(self, tally: Tally, sent: int) -> Arrivals:
        await drain([tally], sent, silence_s=SILENCE_S)
        await asyncio.sleep(LINGER_S)
        return tally.arrivals(sent)

    async def burst(self, publications: int) -> float:
        """Publish as fast as the link goes; msg/s."""
        tally = self.begin(publications)
        begun_s = time.monotonic()
        for number in range(publications):
            await self.publish(number)
        await drain([tally], publications, silence_s=SILENCE_S)
        if tally.received < publications:
            raise LinkError(f"{self.topic}: {publications - tally.received} of a burst are lost")
        return publications / (time.monotonic() - begun_s)


async def bursts(
    streams: Sequence[Stream], publications: int, rounds: int, progress: Callable[[str], None]
) -> dict[Stream, float]:
    """Bursts of each stream in turns; the median rates, msg/s. Raises as ``Stream.burst``."""
    rates: dict[Stream, list[float]] = {stream: [] for stream in streams}
    for turn in range(rounds):
        for stream in streams:
            rates[stream].append(await stream.burst(publications))
        told = ", ".join(f"{stream.name} {each[-1]:,.0f}" for stream, each in rates.items())
        progress(f"burst {turn + 1} of {rounds}, msg/s: {told}")
    return {stream: median(each) for stream, each in rates.items()}


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


@contextlib.asynccontextmanager
async def linked(*clients: Client) -> AsyncIterator[None]:
    """Keep ``clients`` connected meanwhile; begins once each was granted what it asked for."""
    async with running(*(client.link.run() for client in clients)):
        for client in clients:
            await client.subscribed.wait()
        yield


@contextlib.asynccontextmanager
async def flowing(streams: Sequence[Stream]) -> AsyncIterator[None]:
    """Connect all clients meanwhile; begins once what each stream publishes arrives.

    Raises ``LinkError``: it does not.
    """
    clients = [client for each in streams for client in (each.publisher, each.subscriber)]
    async with linked(*clients):
        for stream in streams:
            await stream.flows()
        yield
