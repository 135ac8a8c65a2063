"""Real brokers that join through one of them and arrange their links among themselves.

Nothing is told to an agent but its broker and the seed; keys it has, too, so that what it hears of
others' addresses is signed. What the graph is, everybody must say alike.

Source: docs/topology.md.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.topology.graph import Strength, near_of, strength_of
from federator.protocol.types import BrokerId
from lab.grid.processes.agent import AgentConfig, AgentProcess, KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.started import Started
from lab.grid.running import FEDERATION, start_each, told_of

NEIGHBOURS: Final = 6
"""Links that each wants."""

SETTLE_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.5
QUICKLY: Final = {"settle_ms": 2_000, "patience_ms": 2_000, "measure_ms": 1_000}
"""A grid of an hour has other hurries than a federation of years."""


class JoinedGrid(Started):
    """Brokers 0 to ``count - 1``, of which 0 is the seed; an async context manager.

    ``folder``, which exists, is for configurations, keys, state and logs.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self.brokers = {BrokerId(id): BrokerProcess(folder / f"broker-{id}") for id in range(count)}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self._folder = folder
        self._keys = KeyFolder(folder / "keys", FEDERATION)

    async def start(self) -> None:
        """Start all brokers, then all agents. Raises ``LinkError``: one did not start."""
        await start_each("broker", self.brokers)
        for id in self.brokers:
            self.agents[id] = AgentProcess(self._folder / f"agent-{id}", self._config(id))
        await start_each("agent", self.agents)

    async def stop(self) -> None:
        """End everything, agents first: they say goodbye."""
        await asyncio.gather(*(agent.stop() for agent in self.agents.values()))
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    def kill(self, id: BrokerId) -> None:
        """A broker and its agent die as in a power cut."""
        self.agents.pop(id).kill9()
        self.brokers.pop(id).kill9()

    async def strength(self) -> Strength | str:
        """The strength of the graph that all agents tell of, or why they do not tell of one.

        Raises:
            LinkError: An agent has ended.
        """
        for id, agent in self.agents.items():
            if not agent.running:
                raise LinkError(f"agent {id} ended:\n{agent.log_tail()}")
        try:
            pages = await asyncio.gather(*(a.page("/topology") for a in self.agents.values()))
        except LinkError as error:
            return str(error)
        graphs = {
            (
                tuple(BrokerId(broker["broker"]) for broker in page["brokers"]),
                tuple((BrokerId(a), BrokerId(b)) for a, b in page["links"]),
            )
            for page in pages
        }
        if len(graphs) > 1:
            return f"{len(graphs)} different graphs are told"
        brokers, links = graphs.pop()
        return strength_of(near_of(brokers, links))

    async def settled(self) -> Strength:
        """Wait until all agree on a graph of all that is as promised.

        Raises:
            LinkError: They did not in time; the text says what was wrong.
        """
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            found = await self.strength()
            wrong = found if isinstance(found, str) else self.complaint(found)
            if not isinstance(found, str) and not wrong:
                return found
            if time.monotonic() > deadline_s:
                raise LinkError(f"not settled after {SETTLE_TIMEOUT_S:g} s: {wrong}")
            await asyncio.sleep(POLL_S)

    def complaint(self, found: Strength) -> str:
        """What is not as promised, if anything."""
        if found.brokers != len(self.agents):
            return f"{found.brokers} of {len(self.agents)} brokers are known"
        if not found.survives_any_death:
            return f"{len(found.parts)} parts, held together by {found.weak.brokers}"
        least, most = min(NEIGHBOURS, found.brokers - 1) - 1, NEIGHBOURS + 1
        if not least <= found.degree_min <= found.degree_max <= most:
            return f"{found.degree_min} to {found.degree_max} links, {least} to {most} wanted"
        return ""

    def state(self) -> dict[str, Any]:
        """Where everything is, for other programs; as ``RunningGrid`` says it."""
        return {"brokers": told_of(self.brokers, self.agents), "links": []}

    def _config(self, id: BrokerId) -> AgentConfig:
        seed = self.brokers[BrokerId(0)].url
        topology = {"mode": "auto", "seeds": [seed], "neighbours": NEIGHBOURS, **QUICKLY}
        more = {"topology": topology, "keys": self._keys.section(id)}
        url = self.brokers[id].url
        return AgentConfig(id=id, broker_url=url, neighbours={}, more=more, security="signed")
