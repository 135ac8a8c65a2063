"""Nine real brokers with names, an agent beside each, some clients, and a console: to be looked at.

The agents are those of a 3 x 3 grid. Links have a capacity, so that the console knows how full they
are; the clients of a congested federation publish more than that.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mqtt5 import QoS, TopicFilter

from federator.console.operators import hashed
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.console import ConsoleProcess
from lab.grid.topology import Grid

FEDERATION: Final = "works"
NAMES: Final = (*("gate", "press-1", "press-2", "paint", "hall", "store", "lab", "dock", "office"),)
OPERATOR, PASSWORD = "ada", "a long enough password"
"""Who may sign in at the console of a stage."""

CAPACITY: Final = 200_000
"""bit/s of each link, as its agents are told."""

Ids = Sequence[BrokerId]


class _Deaf(LinkObserver):
    """Takes what comes, and does nothing with it."""


class Stage:
    """Brokers, agents and a console; use ``standing``.

    Attributes:
        brokers: By id.
        agents: By id.
    """

    def __init__(self, folder: Path, near: Mapping[BrokerId, Ids], *, history: str = "") -> None:
        self._folder, self._near, self._history = folder, near, history
        self._clients = contextlib.AsyncExitStack()
        self.brokers = {id_: BrokerProcess(folder / f"broker-{id_}") for id_ in near}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self.console: ConsoleProcess

    async def start(self) -> None:
        """Start everything; the console knows of one broker."""
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))
        for id_, others in self._near.items():
            config = AgentConfig(
                id=id_,
                broker_url=self.brokers[id_].url,
                neighbours={other: self.brokers[other].url for other in others},
                federation=FEDERATION,
                capacity=CAPACITY,
                more={
                    "broker": {"name": NAMES[id_ % 9], "advertise": self.brokers[id_].url},
                    "metrics": {"enabled": True, "live": True},
                },
            )
            self.agents[id_] = AgentProcess(self._folder / f"agent-{id_}", config)
        await asyncio.gather(*(agent.start() for agent in self.agents.values()))
        operators = self._folder / "operators"
        operators.touch(mode=0o600)
        operators.write_text(f"{OPERATOR}:{hashed(PASSWORD)}\n")
        keys = f'federation = "{FEDERATION}"\nhistory = "{self._history}"'
        self.console = ConsoleProcess(
            self._folder / "console",
            next(iter(self.brokers.values())).url,
            keys=keys,
            sections=f'[operators]\nfile = "{operators}"\n',
        )
        await self.console.start()

    async def stop(self) -> None:
        """End everything, clients first."""
        await self._clients.aclose()
        await self.console.stop()
        await asyncio.gather(*(agent.stop() for agent in self.agents.values()))
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    async def subscribe(self, at: int, topic: str, *, client_id: str) -> None:
        """Have a client subscribe ``topic`` at broker ``at`` from now on."""
        link = self._client(at, client_id)
        link.subscribe([TopicFilter(topic, max_qos=QoS.AT_MOST_ONCE)])

    async def publish(
        self, at: int, topic: str, *, client_id: str, per_s: float, size: int = 200
    ) -> None:
        """Have a client publish on ``topic`` at broker ``at`` from now on."""
        link = self._client(at, client_id)

        async def go_on() -> None:
            while True:
                link.publish(topic, bytes(size))
                await asyncio.sleep(1 / per_s)

        self._last(asyncio.create_task(go_on(), name=client_id))

    def _client(self, at: int, client_id: str) -> MqttLink:
        port = self.brokers[BrokerId(at)].port
        link = MqttLink(Endpoint("127.0.0.1", port), _Deaf(), client_id=client_id)
        self._last(asyncio.create_task(link.run(), name=client_id))
        return link

    def _last(self, task: asyncio.Task[None]) -> None:
        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._clients.push_async_callback(end)


@contextlib.asynccontextmanager
async def standing(folder: Path, *, side: int = 3, history: str = "") -> AsyncIterator[Stage]:
    """A stage of ``side`` times ``side`` brokers, whose console answers."""
    stage = Stage(folder, Grid(side, side).neighbours, history=history)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(stage.stop)
        await stage.start()
        yield stage
