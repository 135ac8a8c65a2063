"""What two agents take for a publication: with one prefix filter, or with thousands of single ones.

A client at one broker subscribes ``site/#``, or each ``site/N`` by itself; a client at the other
publishes on these topics in random order, at a steady rate. With single filters each topic has a
route of its own, so nearly every publication is a frame of its own, in bundles.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from lab.bench.processor import processor_s
from lab.frame.settings import setting
from lab.grid.clients import Client
from lab.grid.running import RunningGrid
from lab.grid.stage import DEEP
from lab.grid.topology import Grid
from lab.grid.waiting import until

STEP: Final = 200
TICK_S: Final = 0.002
PAYLOAD: Final = b"x" * 64


@dataclass(frozen=True, slots=True)
class Settings:
    """How many topics, and how fast a traffic."""

    topics: int = setting(10_000, "That are published on.", 10, 50_000)
    rate_hz: int = setting(5_000, "Messages/s.", 1, 50_000, option="--rate")
    seconds: float = setting(5.0, "Of every run.", 1, 600)
    repetitions: int = setting(3, "Of both, in turn.", 1, 100)


@dataclass(frozen=True, slots=True)
class RouteCost:
    """What one run took."""

    filters: int  # 1: one prefix filter
    qos: int
    agents_us: float  # processor time of both agents for one publication
    missing: int  # publications that did not arrive


async def measure_routes(settings: Settings, folder: Path, *, single: bool) -> list[RouteCost]:
    """Measure both qualities of service. Raises ``LinkError``: something did not start."""
    topics = settings.topics
    grid = RunningGrid(Grid(1, 2, 0), folder, link_delay_ms=0, broker_options=DEEP)
    async with grid:
        publisher = (await grid.client(BrokerId(0), "publisher")).link
        filters = [f"site/{number}" for number in range(topics)] if single else ["site/#"]
        subscriber = await grid.client(BrokerId(1), "subscriber", *filters, qos=0)
        await _all_arrive(publisher, subscriber, topics)
        pids = [agent.pid for agent in grid.agents.values()]
        costs = []
        for qos in (0, 1):
            before_s, subscriber.received = processor_s(pids), 0
            sent = await _publish(publisher, settings, qos)
            await _came(subscriber, sent)
            each_us = (processor_s(pids) - before_s) / sent * 1e6
            costs.append(RouteCost(len(filters), qos, each_us, sent - subscriber.received))
    return costs


async def _publish(publisher: MqttLink, settings: Settings, qos: int) -> int:
    topics, began_s, sent = settings.topics, time.monotonic(), 0
    chance = random.Random(topics)
    total = int(settings.rate_hz * settings.seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - began_s) * settings.rate_hz))
        while sent < due:
            publisher.publish(f"site/{chance.randrange(topics)}", PAYLOAD, qos=qos)
            sent += 1
        await asyncio.sleep(TICK_S)
    return sent


async def _all_arrive(publisher: MqttLink, subscriber: Client, topics: int) -> None:
    """Publish on every topic until everything arrives: routes stand and are remembered."""

    async def arrive() -> bool:
        subscriber.received = 0
        for number in range(topics):
            publisher.publish(f"site/{number}", PAYLOAD)
            if number % STEP == 0:
                await asyncio.sleep(10 * TICK_S)
        await _came(subscriber, topics, within_s=2.0)
        return subscriber.received >= topics

    await until(arrive, lambda: f"{subscriber.received} of {topics} topics arrive")


async def _came(subscriber: Client, count: int, *, within_s: float = 20.0) -> None:
    """Wait for ``count`` publications; what has not come in time is missing."""
    with contextlib.suppress(LinkError):
        await until(lambda: subscriber.received >= count, "all come", deadline_s=within_s)
