"""What crosses NAT, counted: streams both ways over both links while the router's address changes.

Each of the two links, the site's that only dials and the open host's that is dialled back, carries
a stream each way, at a steady rate and at QoS 1. Before that each carries bursts, in turns, to
compare how fast they are.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.runtime.mqtt.link import Endpoint, MqttLink
from lab.grid.clients import Arrivals, Counting, Tally, stamped
from lab.nat.network import HUB, OPEN, SITE, Network
from lab.nat.stage import Stage

PAYLOAD_BYTES: Final = 64
SILENCE_S: Final = 20.0
"""After the last publication: what has not arrived when nothing came for so long is lost."""

LINGER_S: Final = 2.0
SUBSCRIBE_S: Final = 30.0
POLL_S: Final = 0.01
AHEAD: Final = 400
"""Of a burst, unacknowledged by the publisher's broker: the link is what is measured."""

WAYS: Final = ((SITE, HUB), (HUB, SITE), (OPEN, HUB), (HUB, OPEN))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        seconds: Of the steady streams.
        rate_hz: Of each of them.
        move_every_s: Between two changes of the router's address; 0: none.
        burst: Publications of one burst; 0: none.
        rounds: Bursts of each way.
    """

    seconds: float = 600.0
    rate_hz: float = 300.0
    move_every_s: float = 60.0
    burst: int = 20_000
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    arrivals: dict[tuple[str, str], Arrivals]
    rates: dict[tuple[str, str], float]  # msg/s of a burst, the median; empty without bursts
    moves: int

    @property
    def exact(self) -> bool:
        """Whether each publication arrived once and in order."""
        return all(each.exact for each in self.arrivals.values())

    def throughput(self, *, out: bool) -> float:
        """Of the site's link beside the open one's, from the hub (``out``: to it)."""
        one, other = _both(out=out)
        return self.rates[one] / self.rates[other]

    def median_delay(self, *, out: bool) -> float:
        """The same of the steady streams' median delays."""
        one, other = _both(out=out)
        return self.arrivals[one].delay_ms_p50 / self.arrivals[other].delay_ms_p50


def _both(*, out: bool) -> tuple[tuple[str, str], tuple[str, str]]:
    return ((SITE, HUB), (OPEN, HUB)) if out else ((HUB, SITE), (HUB, OPEN))


class _Client(Counting):
    def __init__(self, socket: str, name: str, topic: str | None) -> None:
        super().__init__()
        endpoint = Endpoint("", 0, socket=socket)
        self.link = MqttLink(endpoint, self, client_id=name, session_expiry_s=600)
        if topic is not None:
            self.link.subscribe([TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE)])


class _Stream:
    """Publications from one host to another, run after run."""

    def __init__(self, stage: Stage, way: tuple[str, str]) -> None:
        source, target = way
        self.topic = f"from/{source}/to/{target}"
        self.publisher = _Client(stage.socket(source), f"{source}-to-{target}", None)
        self.subscriber = _Client(stage.socket(target), f"{target}-of-{source}", self.topic)
        self.run_number = 0

    def begin(self, publications: int) -> Tally:
        self.run_number += 1
        tally = Tally(self.run_number, publications, payload_bytes=PAYLOAD_BYTES)
        self.subscriber.tally = tally
        return tally

    async def publish(self, number: int) -> None:
        link = self.publisher.link
        while True:
            now_ns = time.monotonic_ns()
            payload = stamped(self.run_number, number, now_ns, payload_bytes=PAYLOAD_BYTES)
            if link.unacknowledged < AHEAD and link.publish(self.topic, payload, qos=1):
                return
            await asyncio.sleep(0.001)

    async def drain(self, tally: Tally, publications: int) -> None:
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

    async def steady(self, plan: Plan) -> Arrivals:
        """Publish at the plan's rate, and count."""
        publications = round(plan.seconds * plan.rate_hz)
        tally = self.begin(publications)
        loop, rng = asyncio.get_running_loop(), random.Random(self.topic)
        due_s = loop.time()
        for number in range(publications):
            await self.publish(number)
            due_s += rng.uniform(0.5, 1.5) / plan.rate_hz
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        await self.drain(tally, publications)
        await asyncio.sleep(LINGER_S)
        return tally.arrivals(publications)

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


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``, which exists.

    Raises:
        LinkError: Something did not start, or a burst got lost.
    """
    network = Network()
    async with Stage(folder, network) as stage, asyncio.TaskGroup() as tasks:
        streams = {way: _Stream(stage, way) for way in WAYS}
        clients = [c for s in streams.values() for c in (s.publisher, s.subscriber)]
        links = [tasks.create_task(each.link.run(), name=each.link.client_id) for each in clients]
        for client in clients:
            await client.subscribed.wait()
        for stream in streams.values():
            await stream.flows()
        rates = await _bursts(streams, plan, progress)
        progress(f"{plan.seconds:g} s of {plan.rate_hz:g} msg/s on each of {len(WAYS)} ways")
        mover = tasks.create_task(_move(network, plan, progress), name="moves")
        told = await asyncio.gather(*(stream.steady(plan) for stream in streams.values()))
        for task in (mover, *links):
            task.cancel()
        return Outcome(dict(zip(streams, told, strict=True)), rates, network.moves)


async def _bursts(
    streams: dict[tuple[str, str], _Stream], plan: Plan, progress: Callable[[str], None]
) -> dict[tuple[str, str], float]:
    if not plan.burst:
        return {}
    rates: dict[tuple[str, str], list[float]] = {way: [] for way in streams}
    for turn in range(plan.rounds):
        for way, stream in streams.items():
            rates[way].append(await stream.burst(plan.burst))
        told = ", ".join(f"{a} to {b} {rates[a, b][-1]:,.0f}" for a, b in streams)
        progress(f"burst {turn + 1} of {plan.rounds}, msg/s: {told}")
    return {way: median(each) for way, each in rates.items()}


async def _move(network: Network, plan: Plan, progress: Callable[[str], None]) -> None:
    """Change the router's address from time to time, until cancelled."""
    while plan.move_every_s:
        await asyncio.sleep(plan.move_every_s)
        silently = bool(network.moves % 2)
        address = await asyncio.to_thread(network.move, silently=silently)
        how = "drops what it no longer knows" if silently else "lets the hub reset what was"
        progress(f"the router is {address} now, and {how}")
