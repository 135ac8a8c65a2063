"""One leaf on one hub, and a world of clients at the hub that want so many filters and change.

What the leaf's agent pays for them is read from the process itself: resident memory, and the bytes
on its link. To a leaf the hub is the whole rest of the world, so clients at the hub stand for all
that any number of brokers want: the leaf hears the same of either.

Source: docs/hubs.md, "What it costs".
"""

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from lab.bench.processor import resident_bytes
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import get, spawn

HUB, LEAF = BrokerId(1), BrokerId(417)
FILTERS_PER_CLIENT: Final = 1_000
READY_S: Final = 300.0
POLL_S: Final = 0.2
SETTLE_S: Final = 10.0
BROKER_LINES: Final = ("max_queued_messages 0", "sys_interval 1")
_TABLE: Final = re.compile(r"federator_link_(?:sent|received)_bytes_total\{.*\} (\S+)")


class _Silent(LinkObserver):
    """Takes what comes, and does nothing about it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a leaf's agent paid beside a world that wants so many filters."""

    filters: int
    told: int  # filters that the hub told the leaf
    resident_bytes: int
    bytes_per_s: float  # on its link, both ways, while nothing is published


async def cost(folder: Path, *, filters: int, changes_per_s: float, seconds: float) -> Cost:
    """Measure it, with processes in ``folder``.

    Args:
        changes_per_s: How often a client elsewhere wants one filter more, or one less.

    Raises ``LinkError``: the leaf, or what it is told, was not there in time.
    """
    async with contextlib.AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(BrokerProcess(folder / name, extra_config=BROKER_LINES))
            for name in ("hub-broker", "leaf-broker")
        ]
        urls = [f"mqtt://127.0.0.1:{broker.port}" for broker in brokers]
        hub = AgentProcess(folder / "hub", AgentConfig(HUB, urls[0], {}, leaves=(LEAF,)), spawn)
        config = AgentConfig(LEAF, urls[1], {HUB: urls[0]}, role="leaf")
        leaf = AgentProcess(folder / "leaf", config, spawn)
        for agent in (hub, leaf):
            await stack.enter_async_context(agent)
        client = await stack.enter_async_context(_client(brokers[1].port, "leaf-client"))
        client.subscribe([_wanted(f"site/{LEAF}/#")])
        changing = None
        for at in range(0, filters, FILTERS_PER_CLIENT):
            changing = await stack.enter_async_context(_client(brokers[0].port, f"world-{at}"))
            until = min(at + FILTERS_PER_CLIENT, filters)
            changing.subscribe(_wanted(_name(number)) for number in range(at, until))
        await _steady(hub, filters)
        if changing is not None and changes_per_s:
            change = _keep_changing(changing, filters, changes_per_s)
            await stack.enter_async_context(_running(change))
        return await _measured(hub, leaf, filters, seconds)


async def _measured(hub: AgentProcess, leaf: AgentProcess, filters: int, seconds: float) -> Cost:
    await asyncio.sleep(SETTLE_S)
    before, since_s = await _link_bytes(leaf), time.monotonic()
    await asyncio.sleep(seconds)
    grown, passed_s = await _link_bytes(leaf) - before, time.monotonic() - since_s
    (told,) = (await hub.status())["leaves"]
    return Cost(filters, told["filters_told"], resident_bytes(leaf.pid), grown / passed_s)


async def _steady(hub: AgentProcess, filters: int) -> None:
    """Wait until the hub knows what its clients want, and its leaf wants nothing in doubt."""
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        told = await hub.status()
        known = told["discovery"]["wanted"] >= filters and not told["discovery"]["widened"]
        if known and told["leaves"][0]["up"] and told["leaves"][0]["filters_wanted"] <= 1:
            return
        await asyncio.sleep(POLL_S)
    raise LinkError(f"the hub did not learn {filters} filters within {READY_S:.0f} s")


async def _keep_changing(client: MqttLink, filters: int, per_s: float) -> None:
    for number in itertools.count(filters):
        await asyncio.sleep(2 / per_s)
        client.subscribe([_wanted(_name(number))])
        client.unsubscribe([_name(number - FILTERS_PER_CLIENT // 2)])


async def _link_bytes(agent: AgentProcess) -> float:
    port = int(agent.http.rpartition(":")[2])
    _, page = await get(port, "/metrics", who="the leaf's agent")
    return sum(map(float, _TABLE.findall(page.decode())))


def _name(number: int) -> str:
    """A usual name: a hundred devices a site, ten values each."""
    return f"site/{number // 1_000}/device/{number // 10 % 100}/value-{number % 10}"


def _wanted(filter: str) -> TopicFilter:
    return TopicFilter(filter, max_qos=QoS.AT_LEAST_ONCE)


@contextlib.asynccontextmanager
async def _client(port: int, client_id: str) -> AsyncIterator[MqttLink]:
    link = MqttLink(Endpoint("127.0.0.1", port), _Silent(), client_id=client_id)
    async with _running(link.run()):
        yield link


@contextlib.asynccontextmanager
async def _running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def flat(costs: list[Cost], *, memory_bytes_max: int, traffic_max: float) -> bool:
    """Whether the first and the last world cost a leaf about as much."""
    first, last = costs[0], costs[-1]
    memory = abs(last.resident_bytes - first.resident_bytes) <= memory_bytes_max
    return memory and last.bytes_per_s <= traffic_max * first.bytes_per_s


def table(costs: list[Cost]) -> Iterator[str]:
    """The costs, for people."""
    yield "filters elsewhere  told to the leaf  resident MB  link bytes/s"
    for each in costs:
        yield (
            f"{each.filters:>17,}  {each.told:>16,}  {each.resident_bytes / 1e6:>11.1f}  "
            f"{each.bytes_per_s:>12.0f}"
        )
