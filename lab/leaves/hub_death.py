"""Three hubs and twelve leaves, each with a hub in reserve: what leaves' clients feel of a death.

Real brokers and agents on loopback. First how soon a subscription counts; then streams at QoS 1
from leaf to leaf, of which one end or both hang on the hub that dies, machine and all, and later
comes back; then a leaf that is cut off from both its hubs for a while.

Source: docs/hubs.md, "A hub in reserve".
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, Inbound, MqttLink
from lab.grid.clients import Arrivals, Counting, Tally, stamped
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import spawn
from lab.grid.processes.relay_process import RelayProcess

HUBS: Final = tuple(map(BrokerId, (1, 2, 3)))
LEAVES: Final = {BrokerId(11 + n): (HUBS[n % 3], HUBS[(n + 1) % 3]) for n in range(12)}
"""Each leaf's preferred hub, and the one in reserve."""

DIES: Final = HUBS[0]
CUT_OFF: Final = BrokerId(12)
WAYS: Final = ((11, 12), (12, 11), (14, 13), (16, 17), (18, 15), (13, 12))
"""From leaf to leaf: 11, 14 and 17 prefer the hub that dies, and 13, 16 have it in reserve."""

BROKER_LINES: Final = ("max_queued_messages 0", "sys_interval 1")
PAYLOAD_BYTES: Final = 64
READY_S: Final = 60.0
FLOWS_S: Final = 8.0
"""Before anything goes wrong; longer than what is looked back upon."""

RETURN_AFTER_S: Final = 5
SILENCE_S: Final = 20.0
POLL_S: Final = 0.1
FRESH_HZ: Final = 500.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        rate_hz: Of all streams together.
        away_s: How long the hub is dead.
        cut_s: How long the leaf is cut off.
        fresh: Subscriptions whose first publication is waited for.
    """

    rate_hz: float = 300.0
    away_s: float = 15.0
    cut_s: float = 60.0
    fresh: int = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    first_ms: float  # from SUBACK to the first publication, the median
    gap_s: float  # the longest silence of any stream around the death
    arrivals: dict[tuple[int, int], Arrivals]

    @property
    def exact(self) -> bool:
        """Whether each publication arrived once and in order."""
        return all(each.exact for each in self.arrivals.values())


class _Client(Counting):
    """A client of one leaf, which notes when publications come."""

    def __init__(self, port: int, name: str, topic: str | None = None, *, qos: int = 1) -> None:
        super().__init__()
        self.came_s: list[float] = []
        self.link = MqttLink(
            Endpoint("127.0.0.1", port), self, client_id=name, session_expiry_s=600
        )
        if topic is not None:
            self.link.subscribe([TopicFilter(topic, max_qos=QoS(qos))])

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Count what one socket read brought."""
        super().on_publishes(link, chunk, publishes)
        self.came_s.append(time.monotonic())

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """The longest silence between these two moments."""
        ends = [since_s, *(at for at in self.came_s if since_s < at < until_s), until_s]
        return max(after - before for before, after in pairwise(ends))


class _Stage:
    """Brokers and agents, and the relays between leaves and hubs."""

    def __init__(self, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.brokers: dict[BrokerId, BrokerProcess] = {}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self.relays = RelayProcess(folder)

    async def start(self) -> None:
        """Start all, and wait until each leaf is served by the hub it prefers."""
        for id in (*HUBS, *LEAVES):
            broker = BrokerProcess(self._folder / f"broker-{id}", extra_config=BROKER_LINES)
            self.brokers[id] = await self._stack.enter_async_context(broker)
        await self._stack.enter_async_context(self.relays)
        for hub in HUBS:
            near = {other: self.brokers[other].url for other in HUBS if other != hub}
            leaves = tuple(leaf for leaf, hubs in LEAVES.items() if hub in hubs)
            await self._agent(AgentConfig(hub, self.brokers[hub].url, near, leaves=leaves))
        for leaf, hubs in LEAVES.items():
            near = {hub: await self._relayed(leaf, hub) for hub in hubs}
            more = {"links": {"return_after_s": RETURN_AFTER_S}}
            url = self.brokers[leaf].url
            await self._agent(AgentConfig(leaf, url, near, role="leaf", more=more))
        for leaf, hubs in LEAVES.items():
            await self.served(leaf, hubs[0])

    async def _agent(self, config: AgentConfig) -> None:
        agent = AgentProcess(self._folder / f"agent-{config.id}", config, spawn)
        self.agents[config.id] = await self._stack.enter_async_context(agent)

    async def _relayed(self, leaf: BrokerId, hub: BrokerId) -> str:
        port = await self.relays.add(f"{leaf}>{hub}", self.brokers[hub].place, delay_ms=0)
        return f"mqtt://127.0.0.1:{port}"

    async def served(self, leaf: BrokerId, hub: BrokerId) -> None:
        """Wait until ``hub`` serves ``leaf``. Raises ``LinkError``: it does not."""
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            told = await self.agents[leaf].status()
            widened = told["discovery"]["widened"]
            if told["hubs"]["served_by"] == hub and told["ready"] and not widened:
                return
            await asyncio.sleep(POLL_S)
        raise LinkError(f"hub {hub} does not serve leaf {leaf} within {READY_S:.0f} s")

    async def kill(self, hub: BrokerId) -> None:
        """What happens to a hub's broker and agent when the machine dies."""
        self.agents[hub].kill9()
        self.brokers[hub].kill9()

    async def revive(self, hub: BrokerId) -> None:
        """The machine is back."""
        await self.brokers[hub].start()
        await self.agents[hub].start()

    async def cut(self, leaf: BrokerId, seconds: float) -> None:
        """Cut a leaf off from both its hubs for a while."""
        for act in ("cut", "heal"):
            for hub in LEAVES[leaf]:
                await self.relays.order(act, f"{leaf}>{hub}")
            await asyncio.sleep(seconds if act == "cut" else 0)


class _Stream:
    """Numbered publications at QoS 1 from one leaf to another."""

    def __init__(self, stage: _Stage, way: tuple[int, int]) -> None:
        source, target = map(BrokerId, way)
        self._topic = f"site/{source}/to/{target}"
        self.publisher = _Client(stage.brokers[source].port, f"p-{source}-{target}")
        port = stage.brokers[target].port
        self.subscriber = _Client(port, f"s-{source}-{target}", self._topic)
        self._sent = 0
        self._first = 0

    async def run(self, rate_hz: float, ended: asyncio.Event, publications_max: int) -> Arrivals:
        """Publish until ``ended``, and count what comes of all from ``begin`` on."""
        tally = self.subscriber.tally = Tally(1, publications_max, payload_bytes=PAYLOAD_BYTES)
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not ended.is_set() and self._sent < publications_max:
            now_ns = time.monotonic_ns()
            payload = stamped(1, self._sent, now_ns, payload_bytes=PAYLOAD_BYTES)
            self._sent += self.publisher.link.publish(self._topic, payload, qos=1)
            due_s += 1 / rate_hz
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        received, since_s = -1, time.monotonic()
        while tally.received < self._sent and time.monotonic() - since_s < SILENCE_S:
            if tally.received != received:
                received, since_s = tally.received, time.monotonic()
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(1.0)  # for what comes twice
        return tally.arrivals(self._sent)


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``, which exists.

    Raises:
        LinkError: Something did not start, or a leaf was not served.
    """
    async with contextlib.AsyncExitStack() as stack:
        stage = _Stage(folder, stack)
        await stage.start()
        progress(f"{len(HUBS)} hubs and {len(LEAVES)} leaves stand")
        first_ms = await _first_publications(stage, plan.fresh)
        progress(f"first publication after a SUBSCRIBE: {first_ms:.1f} ms (median of {plan.fresh})")
        streams = {way: _Stream(stage, way) for way in WAYS}
        clients = [c for s in streams.values() for c in (s.publisher, s.subscriber)]
        await stack.enter_async_context(_running([client.link.run() for client in clients]))
        for client in clients:
            await client.subscribed.wait()
        await asyncio.sleep(3.0)  # all want it
        ended = asyncio.Event()
        rate_hz = plan.rate_hz / len(streams)
        most = int(rate_hz * (plan.away_s + plan.cut_s + 120))
        counting = asyncio.gather(*(s.run(rate_hz, ended, most) for s in streams.values()))
        await asyncio.sleep(FLOWS_S)
        gap_s = await _death(stage, list(streams.values()), plan, progress)
        if plan.cut_s:
            progress(f"leaf {CUT_OFF} is cut off for {plan.cut_s:g} s")
            await stage.cut(CUT_OFF, plan.cut_s)
            await stage.served(CUT_OFF, LEAVES[CUT_OFF][0])
            await asyncio.sleep(FLOWS_S)
        ended.set()
        return Outcome(first_ms, gap_s, dict(zip(streams, await counting, strict=True)))


async def _death(
    stage: _Stage, streams: Sequence[_Stream], plan: Plan, progress: Callable[[str], None]
) -> float:
    killed_s = time.monotonic()
    await stage.kill(DIES)
    await asyncio.sleep(plan.away_s)
    gaps = [s.subscriber.longest_gap_s(killed_s - 0.1, killed_s + plan.away_s) for s in streams]
    progress(f"hub {DIES} killed: the longest silence of a stream is {max(gaps):.2f} s")
    await stage.revive(DIES)
    for leaf, hubs in LEAVES.items():
        await stage.served(leaf, hubs[0])
    progress("it is back, and so are its leaves")
    await asyncio.sleep(FLOWS_S)
    return max(gaps)


async def _first_publications(stage: _Stage, count: int) -> float:
    """Milliseconds from a SUBACK to the first publication, across hubs; the median."""
    source, target = 11, 12
    found: list[float] = []
    for number in range(count):
        topic = f"fresh/{number}"
        publisher = _Client(stage.brokers[BrokerId(source)].port, "fresh-p")
        subscriber = _Client(stage.brokers[BrokerId(target)].port, "fresh-s", topic, qos=0)
        async with _running([publisher.link.run(), _publish(publisher.link, topic)]):
            await asyncio.sleep(0.2)
            async with _running([subscriber.link.run()]):
                await subscriber.subscribed.wait()
                granted_s = time.monotonic()
                while not subscriber.came_s:
                    if time.monotonic() > granted_s + READY_S:
                        raise LinkError(f"{topic}: nothing came within {READY_S:.0f} s")
                    await asyncio.sleep(0.001)
                found.append(1_000 * (subscriber.came_s[0] - granted_s))
    return median(found) if found else 0.0


async def _publish(link: MqttLink, topic: str) -> None:
    while True:
        await asyncio.sleep(1 / FRESH_HZ)
        if link.connected:
            link.publish(topic, b"0", qos=0)


@contextlib.asynccontextmanager
async def _running(work: Sequence[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
