"""A simulated world in a child process: the neighbour of a real hub, on its broker and on its own.

The child takes one command per line on stdin and answers each on stdout: ``begin`` makes the world
and links its gate with the hub, ``change`` has somebody change what he wants so often from now on
(0: nobody). ``WorldProcess`` is the parent's side of it.
"""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any, Final

import structlog
from mqtt5 import PublishPacket, QoS

from federator.config.sections import CustodySettings
from federator.config.topology import HubSettings
from federator.errors import DecodeError
from federator.protocol.messages import codec
from federator.protocol.messages import control as c
from federator.protocol.messages.topics import control_topic
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms
from lab.grid.clients import Client
from lab.grid.processes.children import Helper, answer, orders, python
from lab.leaves.world import GATE, World

TICK_S: Final = 0.05
FEDERATION: Final = "grid"


class WorldProcess(Helper):
    """The world as a child; every command waits until it took effect."""

    def __init__(self, folder: Path) -> None:
        super().__init__(python("lab.leaves.world_process"), log=folder / "world.log")

    async def begin(self, **how: int) -> int:
        """Make it, and link it with the hub: ``_Driver.begin``; how many filters it announces."""
        return int((await self.ask({"do": "begin", **how}))["announced"])

    async def change(self, per_s: float) -> None:
        await self.ask({"do": "change", "per_s": per_s})


class _Gate(LinkObserver):
    """Hears what the hub says to the gate."""

    def __init__(self) -> None:
        self.world: World | None = None
        self._kinds = {control_topic(FEDERATION, kind): kind for kind in codec.CONTROL_KINDS}

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        for packet, _, _ in publishes:
            self._take(packet)

    def _take(self, packet: PublishPacket) -> None:
        with contextlib.suppress(DecodeError):
            message = codec.decode(self._kinds[packet.topic], packet.payload)
            if self.world is not None and isinstance(message, c.NodeMessage):
                self.world.hear(message, Millis(monotonic_ms()))

    def subscribe(self, link: MqttLink) -> None:
        link.subscribe(live_filter(topic, QoS.AT_MOST_ONCE) for topic in self._kinds)


class _Driver:
    """Runs one world."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._gap_s = 0.0

    async def change(self, per_s: float) -> dict[str, Any]:
        """Have so many changes a second from now on."""
        self._gap_s = 1 / per_s if per_s else 0.0
        return {}

    async def begin(
        self, own_port: int, hub_port: int, hub: int, brokers: int, filters: int
    ) -> dict[str, Any]:
        gate = _Gate()
        own = MqttLink(Endpoint("127.0.0.1", own_port), gate, client_id=f"federator-{GATE}-ctl")
        there = Endpoint("127.0.0.1", hub_port)
        to_hub = Client(there, f"federator-{GATE}-to-{hub}-ctl", session_expiry_s=0).link

        def say(message: c.Message) -> None:
            topic = control_topic(FEDERATION, codec.kind_of(message))
            to_hub.publish(topic, codec.encode(message))

        gate.world = World(
            brokers=brokers,
            filters=filters,
            filters_max=HubSettings().filters_max,
            linger_ms=CustodySettings().keep_s * 1_000,
            hub=BrokerId(hub),
            epoch=Epoch(int(time.time())),
            say=say,
            now_ms=Millis(monotonic_ms()),
        )
        gate.subscribe(own)
        self._tasks += [asyncio.create_task(link.run()) for link in (own, to_hub)]
        while not (own.subscribed and to_hub.connected):  # noqa: ASYNC110 - in another's hands
            await asyncio.sleep(TICK_S)
        self._tasks.append(asyncio.create_task(self._live(gate.world)))
        return {"announced": gate.world.announced}

    async def _live(self, world: World) -> None:
        loop = asyncio.get_running_loop()
        due_s = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            world.on_time(Millis(monotonic_ms()))
            if self._gap_s and loop.time() >= due_s:
                due_s = max(due_s + self._gap_s, loop.time())
                world.change(Millis(monotonic_ms()))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _serve() -> None:
    driver = _Driver()
    async for order in orders():
        answer(await getattr(driver, order.pop("do"))(**order))
    driver.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_serve())
