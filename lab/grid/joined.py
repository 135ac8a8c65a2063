"""Real brokers that join through one of them and arrange their links among themselves.

Nothing is told to an agent but its broker and the seed; keys it has, too, so that what it hears of
others' addresses is signed. What the graph is, everybody must say alike.

Source: docs/topology.md.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.topology.graph import Strength, near_of, strength_of
from federator.protocol.types import BrokerId
from lab.grid.processes.agent import AgentConfig, AgentProcess, KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.started import Started
from lab.grid.running import FEDERATION, start_each, told_of

SETTLE_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.5
QUICKLY: Final = {"settle_ms": 2_000, "patience_ms": 2_000, "measure_ms": 1_000}
"""A grid of an hour has other hurries than a federation of years."""


class JoinedGrid(Started):
    """Brokers 0 to ``count - 1``, of which 0 is the seed; an async context manager.

    Args:
        folder: For configurations, keys, state and logs; exists.
        neighbours: Links that each wants.
        signed: Whether agents have keys.
        progress: Told what was started.
    """

    def __init__(
        self,
        count: int,
        folder: Path,
        *,
        neighbours: int = 6,
        signed: bool = True,
        progress: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.brokers = {BrokerId(id): BrokerProcess(folder / f"broker-{id}") for id in range(count)}
        self.agents: dict[BrokerId, AgentProcess] = {}
        self.wanted = min(neighbours, count - 1)
        self._neighbours = neighbours
        self._folder = folder
        self._keys = KeyFolder(folder / "keys", FEDERATION) if signed else None
        self._progress = progress

    async def start(self) -> None:
        """Start all brokers, then all agents.

        Raises:
            LinkError: One did not start.
        """
        await start_each("broker", self.brokers, self._progress)
        for id in self.brokers:
            self.agents[id] = AgentProcess(self._folder / f"agent-{id}", self._config(id))
        await start_each("agent", self.agents, self._progress)

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

    async def settled(self, *, timeout_s: float = SETTLE_TIMEOUT_S) -> Strength:
        """Wait until all agree on a graph of all that is as promised.

        Raises:
            LinkError: They did not in time; the text says what was wrong.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = await self.strength()
            wrong = found if isinstance(found, str) else self.complaint(found)
            if not isinstance(found, str) and not wrong:
                return found
            if time.monotonic() > deadline_s:
                raise LinkError(f"not settled after {timeout_s:g} s: {wrong}")
            await asyncio.sleep(POLL_S)

    def complaint(self, found: Strength) -> str:
        """What is not as promised, if anything."""
        if found.brokers != len(self.agents):
            return f"{found.brokers} of {len(self.agents)} brokers are known"
        if not found.survives_any_death:
            return f"{len(found.parts)} parts, held together by {found.weak.brokers}"
        least, most = min(self._neighbours, found.brokers - 1) - 1, self._neighbours + 1
        if not least <= found.degree_min <= found.degree_max <= most:
            return f"{found.degree_min} to {found.degree_max} links, {least} to {most} wanted"
        return ""

    def state(self) -> dict[str, Any]:
        """Where everything is, for other programs; as ``RunningGrid`` says it."""
        return {"brokers": told_of(self.brokers, self.agents), "links": []}

    def _config(self, id: BrokerId) -> AgentConfig:
        seed = self.brokers[BrokerId(0)].url
        topology = {"mode": "auto", "seeds": [seed], "neighbours": self._neighbours, **QUICKLY}
        more: dict[str, dict[str, Any]] = {"topology": topology}
        if self._keys is not None:
            more["keys"] = self._keys.section(id)
        return AgentConfig(
            id=id,
            broker_url=self.brokers[id].url,
            neighbours={},
            more=more,
            security="open" if self._keys is None else "signed",
        )
