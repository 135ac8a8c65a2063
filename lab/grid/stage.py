"""The stage of experiments and of tests on real processes: what they start, ask, and end.

Brokers and agents by id, and beside them whatever an experiment wants: relays, clients, gateways.
All of it is ended with the stage, in the order in which nothing is lost: clients, agents, which say
goodbye, brokers, relays.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Client
from lab.grid.processes import warm
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import Spawn, Started
from lab.grid.processes.namespace import Namespace
from lab.grid.processes.relay_process import RelayProcess
from lab.grid.streams import Stream, running
from lab.grid.waiting import until

READY_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 300.0
POLL_S: Final = 0.1

DEEP: Final = ("max_queued_messages 0", "sys_interval 1")
"""For brokers: they drop nothing for a client that a busy machine keeps waiting, and count their
subscriptions every second."""

Pages = dict[BrokerId, dict[str, Any]]
"""What each agent says."""


def unlinked(
    pages: Pages,
    neighbours: Mapping[BrokerId, Iterable[BrokerId]],
    used: Callable[[dict[str, Any]], object] = lambda link: True,
) -> str | None:
    """Name an agent that is not ready, or lacks a link to a neighbour that is up and ``used``."""
    for here, status in pages.items():
        if not status["ready"]:
            return f"agent {here} is not ready: {status['ready_reason']}"
        up = {link["neighbour"] for link in status["links"] if link["state"] == "up" and used(link)}
        if missing := sorted({*neighbours[here]} - up):
            return f"agent {here} has no link to {missing}"
    return None


def widened(pages: Pages) -> str | None:
    """Name an agent that still asks for more than it knows to be needed, and why."""
    for here, status in pages.items():
        if status["discovery"]["widened"]:
            return f"agent {here} asks for everything: {status['discovery']['reason']}"
    return None


class Stage(Started):
    """Brokers, agents, and what else was started; an async context manager.

    Args:
        folder: For configurations, state and logs; made when missing.
        broker_options: Further lines of every broker's configuration.
        spawn: Starts the agents.
        hosts: Where brokers and agents are that are not on this host.
    """

    def __init__(
        self,
        folder: Path,
        *,
        broker_options: tuple[str, ...] = (),
        spawn: Spawn = warm.spawn,
        hosts: Mapping[BrokerId, Namespace] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.brokers: dict[BrokerId, BrokerProcess] = {}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self.relays = RelayProcess(folder)
        self.beside = contextlib.AsyncExitStack()
        """What is ended before the agents are."""
        self._broker_options = broker_options
        self._spawn = spawn
        self._hosts = hosts or {}

    async def start(self) -> None:
        """Start nothing: the experiment does, one by one."""

    async def stop(self) -> None:
        await self.beside.aclose()
        await asyncio.gather(*(agent.stop() for agent in self.agents.values()))
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))
        await self.relays.stop()

    async def broker(
        self,
        id: BrokerId,
        *more: str,
        **how: Any,  # noqa: ANN401  # of BrokerProcess
    ) -> BrokerProcess:
        """Start a broker; ``more``: further lines of its configuration."""
        if host := self._hosts.get(id):
            how |= {"spawn": host.spawn, "socket": self.folder / f"{id}.sock"}
        options, folder = (*self._broker_options, *more), self.folder / f"broker-{id}"
        self.brokers[id] = BrokerProcess(folder, extra_config=options, **how)
        await self.brokers[id].start()
        return self.brokers[id]

    async def agent(
        self,
        id: BrokerId,
        neighbours: Mapping[BrokerId, str] | None = None,
        **more: Any,  # noqa: ANN401  # fields of AgentConfig by name
    ) -> AgentProcess:
        """Start the agent of broker ``id``; ``neighbours`` are URLs of brokers."""
        agent = self.planned(id, self.brokers[id].url, neighbours, **more)
        await agent.start()
        return agent

    def planned(
        self,
        id: BrokerId,
        url: str,
        neighbours: Mapping[BrokerId, str] | None = None,
        **more: Any,  # noqa: ANN401  # fields of AgentConfig by name
    ) -> AgentProcess:
        """The agent of the broker at ``url``, not started yet."""
        config, folder = AgentConfig(id, url, dict(neighbours or {}), **more), f"agent-{id}"
        host = self._hosts.get(id)
        how = (self._spawn,) if host is None else (host.spawn, host.connect)
        self.agents[id] = AgentProcess(self.folder / folder, config, *how)
        return self.agents[id]

    async def relayed(self, name: str, there: BrokerId, *, delay_ms: float = 0.0) -> str:
        port = await self.relays.add(name, self.brokers[there].place, delay_ms=delay_ms)
        return f"mqtt://127.0.0.1:{port}"

    def kill(self, id: BrokerId) -> None:
        """A broker and its agent die as in a power cut."""
        self.agents[id].kill9()
        self.brokers[id].kill9()

    async def revive(self, id: BrokerId) -> None:
        """The machine is back."""
        await self.brokers[id].start()
        await self.agents[id].start()

    def endpoint(self, id: BrokerId) -> Endpoint:
        broker = self.brokers[id]
        return Endpoint(*broker.place, socket=str(broker.socket) if broker.socket else None)

    async def client(self, at: BrokerId, client_id: str, *filters: str, qos: int = 1) -> Client:
        """A client that is connected and subscribed, until the stage ends."""
        client = Client(self.endpoint(at), client_id, *filters, qos=qos)
        await self.run(client.link.run())
        await client.subscribed.wait()
        return client

    def stream(self, source: tuple[str, BrokerId], target: tuple[str, BrokerId]) -> Stream:
        (here, at), (there, to) = source, target
        return Stream((here, there), self.endpoint(at), self.endpoint(to))

    async def run(self, work: Coroutine[None, None, None]) -> None:
        await self.beside.enter_async_context(running(work))

    async def pages(self, path: str) -> Pages:
        """A page of every agent, asked at once. Raises ``LinkError``: one did not answer."""
        answers = await asyncio.gather(*(agent.page(path) for agent in self.agents.values()))
        return dict(zip(self.agents, answers, strict=True))

    async def until(
        self,
        fault: Callable[[Pages], str | None],
        *,
        path: str = "/status",
        within_s: float = READY_TIMEOUT_S,
        poll_s: float = POLL_S,
    ) -> Pages:
        """Ask every agent again and again until ``fault`` finds nothing; returns their pages.

        Raises:
            LinkError: It still found something after ``within_s``; the text says what.
        """
        found: str | None = None

        async def settled() -> tuple[Pages] | None:  # a stage without agents has no pages
            nonlocal found
            for here, agent in self.agents.items():
                if not agent.running:
                    raise LinkError(f"agent {here} ended:\n{agent.log_tail()}")
            try:
                pages = await self.pages(path)
                found = fault(pages)
            except LinkError as error:
                found = str(error)
            return (pages,) if found is None else None

        pages: tuple[Pages] = await until(
            settled, lambda: str(found), deadline_s=within_s, poll_s=poll_s
        )
        return pages[0]

    async def told(
        self,
        id: BrokerId,
        holds: Callable[[dict[str, Any]], object],
        what: str,
        *,
        within_s: float = PATIENCE_S,
    ) -> None:
        """Wait until ``holds`` of an agent's ``/status``. Raises ``LinkError``: not in time."""
        await self.until(
            lambda pages: None if holds(pages[id]) else what, within_s=within_s, poll_s=1.0
        )

    def state(self) -> dict[str, Any]:
        brokers = [
            {
                "id": here,
                "host": broker.host,
                "port": broker.port,
                "broker_pid": broker.pid,
                "agent_pid": self.agents[here].pid,
                "agent_http": self.agents[here].http,
            }
            for here, broker in self.brokers.items()
        ]
        return {"brokers": brokers, "links": []}
