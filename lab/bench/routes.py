"""What two agents take for a publication: with one prefix filter, or with thousands of single ones.

A client at one broker subscribes ``site/#``, or each ``site/N`` by itself; a client at the other
publishes on these topics in random order, at a steady rate. With single filters each topic has a
route of its own, so nearly every publication is a frame of its own, in bundles.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtt5 import TopicFilter

from federator.errors import LinkError
from federator.protocol.data.ports import Inbound
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from lab.bench.processor import processor_s
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid

STEP: Final = 200
TICK_S: Final = 0.002
ARRIVES_S: Final = 60.0
PAYLOAD: Final = b"x" * 64
BROKER_OPTIONS: Final = ("sys_interval 1", "max_queued_messages 0")


@dataclass(frozen=True, slots=True)
class RouteCost:
    """What one run took."""

    filters: int  # 1: one prefix filter
    qos: int
    agents_us: float  # processor time of both agents for one publication
    missing: int  # publications that did not arrive


class _Counting(LinkObserver):
    def __init__(self) -> None:
        self.came = 0

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        self.came += len(publishes)


async def measure_routes(
    folder: Path, *, topics: int, single: bool, rate_hz: int, seconds: float
) -> list[RouteCost]:
    """Measure both qualities of service. Raises ``LinkError``: something did not start."""
    grid = RunningGrid(Grid(1, 2, 0), folder, link_delay_ms=0, broker_options=BROKER_OPTIONS)
    counting = _Counting()
    try:
        await grid.start()
        publisher, subscriber = (
            MqttLink(Endpoint("127.0.0.1", grid.brokers[BrokerId(id)].port), by, client_id=name)
            for id, by, name in ((0, _Counting(), "publisher"), (1, counting, "subscriber"))
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(subscriber.run())
            filters = [f"site/{number}" for number in range(topics)] if single else ["site/#"]
            for at in range(0, len(filters), STEP):
                subscriber.subscribe(TopicFilter(each) for each in filters[at : at + STEP])
                await asyncio.sleep(TICK_S)
            await _all_arrive(publisher, counting, topics)
            pids = [agent.pid for agent in grid.agents.values()]
            costs = []
            for qos in (0, 1):
                before_s, counting.came = processor_s(pids), 0
                sent = await _publish(publisher, topics, qos, rate_hz=rate_hz, seconds=seconds)
                await _until_came(counting, sent)
                each_us = (processor_s(pids) - before_s) / sent * 1e6
                costs.append(RouteCost(len(filters), qos, each_us, sent - counting.came))
            await publisher.close()
            await subscriber.close()
    finally:
        await grid.stop()
    return costs


async def _publish(
    publisher: MqttLink, topics: int, qos: int, *, rate_hz: int, seconds: float
) -> int:
    """Publish at a steady rate; how many."""
    chance, began_s, sent = random.Random(topics), time.monotonic(), 0
    total = int(rate_hz * seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - began_s) * rate_hz))
        while sent < due:
            publisher.publish(f"site/{chance.randrange(topics)}", PAYLOAD, qos=qos)
            sent += 1
        await asyncio.sleep(TICK_S)
    return sent


async def _all_arrive(publisher: MqttLink, counting: _Counting, topics: int) -> None:
    """Publish on every topic until everything arrives: routes stand and are remembered."""
    deadline_s = time.monotonic() + ARRIVES_S
    while True:
        counting.came = 0
        for number in range(topics):
            publisher.publish(f"site/{number}", PAYLOAD)
            if number % STEP == 0:
                await asyncio.sleep(10 * TICK_S)
        await _until_came(counting, topics, within_s=2.0)
        if counting.came >= topics:
            return
        if time.monotonic() > deadline_s:
            raise LinkError(f"{counting.came} of {topics} topics arrive")


async def _until_came(counting: _Counting, count: int, *, within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while counting.came < count and time.monotonic() < deadline_s:  # noqa: ASYNC110
        await asyncio.sleep(TICK_S)
