"""Three hubs and twelve leaves, each with a hub in reserve: what leaves' clients feel of a death.

Real brokers and agents on loopback. First how soon a subscription counts; then streams at QoS 1
from leaf to leaf, of which one end or both hang on the hub that dies, machine and all, and later
comes back; then a leaf that is cut off from both its hubs for a while.

Source: docs/hubs.md, "A hub in reserve".
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, MqttLink
from lab.grid.clients import Arrivals
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.relay_process import RelayProcess
from lab.grid.streams import Client, Stream, running
from lab.leaves.stage import Stage, told

HUBS: Final = tuple(map(BrokerId, (1, 2, 3)))
LEAVES: Final = {BrokerId(11 + n): (HUBS[n % 3], HUBS[(n + 1) % 3]) for n in range(12)}
"""Each leaf's preferred hub, and the one in reserve."""

DIES: Final = HUBS[0]
CUT_OFF: Final = BrokerId(12)
WAYS: Final = ((11, 12), (12, 11), (14, 13), (16, 17), (18, 15), (13, 12))
"""From leaf to leaf: 11, 14 and 17 prefer the hub that dies, and 13, 16 have it in reserve."""

READY_S: Final = 60.0
FLOWS_S: Final = 8.0
"""Before anything goes wrong; longer than what is looked back upon."""

RETURN_AFTER_S: Final = 5
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


class _Stage(Stage):
    """Hubs, leaves, and the relays between them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.brokers: dict[BrokerId, BrokerProcess] = {}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self.relays = RelayProcess(folder)

    async def start(self) -> None:
        """Start all, and wait until each leaf is served by the hub it prefers."""
        for id in (*HUBS, *LEAVES):
            self.brokers[id] = await self.broker(f"broker-{id}")
        await self.enter_async_context(self.relays)
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
        self.agents[config.id] = await self.agent(f"agent-{config.id}", config)

    async def _relayed(self, leaf: BrokerId, hub: BrokerId) -> str:
        port = await self.relays.add(f"{leaf}>{hub}", self.brokers[hub].place, delay_ms=0)
        return f"mqtt://127.0.0.1:{port}"

    async def served(self, leaf: BrokerId, hub: BrokerId) -> None:
        """Wait until ``hub`` serves ``leaf``. Raises ``LinkError``: it does not."""

        def holds(now: dict[str, Any]) -> bool:
            known = now["ready"] and not now["discovery"]["widened"]
            return known and bool(now["hubs"]["served_by"] == hub)

        await told(self.agents[leaf], holds, f"hub {hub} serves leaf {leaf}", within_s=READY_S)

    def kill(self, hub: BrokerId) -> None:
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

    def endpoint(self, id: BrokerId) -> Endpoint:
        """Where clients of a broker connect."""
        return Endpoint(*self.brokers[id].place)

    def stream(self, way: tuple[int, int]) -> Stream:
        """A stream from one leaf to another, of which silences are noted."""
        source, target = map(BrokerId, way)
        names = (f"leaf-{source}", f"leaf-{target}")
        stream = Stream(names, self.endpoint(source), self.endpoint(target))
        stream.subscriber.came_s = []
        return stream


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``, which exists.

    Raises:
        LinkError: Something did not start, or a leaf was not served.
    """
    async with _Stage(folder) as stage:
        await stage.start()
        progress(f"{len(HUBS)} hubs and {len(LEAVES)} leaves stand")
        first_ms = await _first_publications(stage, plan.fresh)
        progress(f"first publication after a SUBSCRIBE: {first_ms:.1f} ms (median of {plan.fresh})")
        streams = {way: stage.stream(way) for way in WAYS}
        clients = [c for s in streams.values() for c in (s.publisher, s.subscriber)]
        for client in clients:
            await stage.run(client.link.run())
            await client.subscribed.wait()
        await asyncio.sleep(3.0)  # all want it
        ended = asyncio.Event()
        rate_hz = plan.rate_hz / len(streams)
        most = int(rate_hz * (plan.away_s + plan.cut_s + 120))
        counting = asyncio.gather(*(s.until(ended, rate_hz, most) for s in streams.values()))
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
    stage: _Stage, streams: Sequence[Stream], plan: Plan, progress: Callable[[str], None]
) -> float:
    killed_s = time.monotonic()
    stage.kill(DIES)
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
    source, target = map(stage.endpoint, map(BrokerId, (11, 12)))
    found: list[float] = []
    for number in range(count):
        topic = f"fresh/{number}"
        publisher, subscriber = Client(source, "fresh-p", None), Client(target, "fresh-s", topic)
        came_s = subscriber.came_s = []
        async with running(publisher.link.run(), _publish(publisher.link, topic)):
            await asyncio.sleep(0.2)
            async with running(subscriber.link.run()):
                await subscriber.subscribed.wait()
                granted_s = time.monotonic()
                while not came_s:
                    if time.monotonic() > granted_s + READY_S:
                        raise LinkError(f"{topic}: nothing came within {READY_S:.0f} s")
                    await asyncio.sleep(0.001)
                found.append(1_000 * (came_s[0] - granted_s))
    return median(found) if found else 0.0


async def _publish(link: MqttLink, topic: str) -> None:
    while True:
        await asyncio.sleep(1 / FRESH_HZ)
        if link.connected:
            link.publish(topic, b"0", qos=0)
