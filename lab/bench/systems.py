"""What the bench puts load on: a broker, a gateway, a chain of bridges or of our agents, an echo.

Each takes publications in at one end and hands them out at the other, ``hops`` links away, and
says which processes belong to its brokers and which to its agents. Brokers keep Mosquitto's
default limits everywhere. A bridge chain gets what a user would write for the same job in one
direction, ``topic # out 1``, which is also the least work a bridge can have; our brokers get the
log topics that our agents need, and a Unix socket each for the agent beside it.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final, Protocol

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench.generator import Ends
from lab.grid.processes.agent import AgentConfig, AgentProcess, KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import Helper, python
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.relay_process import RelayProcess

FEDERATION: Final = "bench"
SECURED: Final = ("signed", "sealed")
AGENTS: Final = ("federator", "polling", "metrics", *SECURED)
"""Names of ``AgentLine``s."""

POLLING_US: Final = 2_000
"""Twice the time between publications where the bench measures delays."""

STAND_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.1

BRIDGE_LINES: Final = (
    "connection onward",
    "address {host}:{port}",
    "topic # out 1",
    "cleansession true",
)
"""All of a bridge's configuration; protocol, queues and socket options are the defaults."""


class System(Protocol):
    """Something that carries publications from one end to the other."""

    name: str
    hops: int

    async def start(self) -> Ends:
        """Start all processes; returns when each answers.

        Raises:
            LinkError: One does not.
        """

    async def stands(self, filter: str) -> None:
        """Wait until the subscription of ``filter`` at the far end is known at the near end.

        Raises:
            LinkError: It is not in time.
        """

    def broker_pids(self) -> list[int]:
        """Processes of the brokers."""

    def agent_pids(self) -> list[int]:
        """Processes of our agents."""

    async def stop(self) -> None:
        """End everything that was started."""


class Links:
    """The links of a line: loopback as it is, or through relays that delay.

    Args:
        folder: For the relays' log.
        delay_ms: Each way; 0 for no relay.
    """

    def __init__(self, folder: Path, *, delay_ms: float) -> None:
        self._folder = folder
        self._delay_ms = delay_ms
        self._relays: RelayProcess | None = None  # since the first link that delays

    async def to(self, broker: BrokerProcess, *, name: str) -> int:
        """The port by which ``broker`` is reached over the link ``name``."""
        if not self._delay_ms:
            return broker.port
        if self._relays is None:
            relays = RelayProcess(self._folder)
            await relays.start()
            self._relays = relays
        return await self._relays.add(
            name, host=broker.host, port=broker.port, delay_ms=self._delay_ms
        )

    async def stop(self) -> None:
        """End the relays."""
        if self._relays is not None:
            await self._relays.stop()


class BrokerLine:
    """Brokers in a row, each with a bridge to the next: none at all when there is one broker."""

    def __init__(self, folder: Path, *, hops: int, link_delay_ms: float = 0) -> None:
        self.name = "bridge" if hops else "broker"
        self.hops = hops
        self._folder = folder
        self._links = Links(folder, delay_ms=link_delay_ms)
        self._brokers: list[BrokerProcess] = []

    async def start(self) -> Ends:
        """Start all processes, the far end first."""
        for number in range(self.hops, -1, -1):  # from the far end: a bridge wants a port
            bridge: tuple[str, ...] = ()
            if self._brokers:
                onward = self._brokers[0]
                port = await self._links.to(onward, name=f"{number}>{number + 1}")
                values = {"host": onward.host, "port": port}
                bridge = tuple(line.format(**values) for line in BRIDGE_LINES)
            broker = BrokerProcess(
                self._folder / f"broker-{number}", extra_config=bridge, log_topics=False
            )
            self._brokers.insert(0, broker)
            await broker.start()
        return _ends(self._brokers)

    async def stands(self, filter: str) -> None:
        """Bridges are static: probes tell when the last one is connected."""

    def broker_pids(self) -> list[int]:
        """Processes of the brokers."""
        return [broker.pid for broker in self._brokers]

    def agent_pids(self) -> list[int]:
        """Processes of our agents."""
        return []

    async def stop(self) -> None:
        """End everything that was started."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        await self._links.stop()


class GatewayFront:
    """A gateway before one broker."""

    name = "gateway"
    hops = 0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = BrokerProcess(folder / "broker", log_topics=False)
        self._gateway: GatewayProcess | None = None

    async def start(self) -> Ends:
        """Start all processes, the far end first."""
        await self._broker.start()
        config = GatewayConfig("bench", {BrokerId(1): self._broker.url}, federation="bench")
        self._gateway = GatewayProcess(self._folder / "gateway", config)
        await self._gateway.start()
        return Ends(self.place, self.place)

    @property
    def place(self) -> tuple[str, int]:
        """Where clients connect, since ``start`` returned."""
        assert self._gateway is not None
        return self._gateway.host, self._gateway.port

    async def stands(self, filter: str) -> None:
        """Whether the system is up: SUBACK said so."""

    def broker_pids(self) -> list[int]:
        """Processes of the brokers."""
        return [self._broker.pid]

    def agent_pids(self) -> list[int]:
        """The gateway: what is ours here."""
        return [self._gateway.pid] if self._gateway is not None else []

    async def stop(self) -> None:
        """End everything that was started."""
        if self._gateway is not None:
            await self._gateway.stop()
        await self._broker.stop()


class AgentLine:
    """Brokers in a row, each with an agent that knows its neighbours.

    Args:
        folder: For configurations, state and logs.
        hops: Links from end to end.
        link_delay_ms: Of each, each way.
        name: ``federator``; ``polling``: polls while data flows; ``metrics``: with the whole
            metrics stream on; ``signed``, ``sealed``: with such security.
    """

    def __init__(
        self, folder: Path, *, hops: int, link_delay_ms: float = 0, name: str = "federator"
    ) -> None:
        self.name = name
        self.hops = hops
        self._keys = KeyFolder(folder / "keys", FEDERATION) if name in SECURED else None
        self._folder = folder
        self._links = Links(folder, delay_ms=link_delay_ms)
        ids = [BrokerId(number) for number in range(1, hops + 2)]
        self._sockets = {i: str(folder.resolve() / f"{i}.sock") for i in ids}
        self._brokers = {
            i: BrokerProcess(folder / f"broker-{i}", extra_config=(f"listener 0 {socket}",))
            for i, socket in self._sockets.items()
        }
        self._agents: dict[BrokerId, AgentProcess] = {}

    async def start(self) -> Ends:
        """Start all processes, the far end first."""
        await asyncio.gather(*(broker.start() for broker in self._brokers.values()))
        for here, broker in self._brokers.items():
            urls = {}
            for there in (BrokerId(here - 1), BrokerId(here + 1)):
                if there in self._brokers:
                    port = await self._links.to(self._brokers[there], name=f"{here}>{there}")
                    urls[there] = f"mqtt://127.0.0.1:{port}"
            more: dict[str, dict[str, Any]] = {"broker": {"socket": self._sockets[here]}}
            if self.name == "polling":
                more["data"] = {"busy_poll_us": POLLING_US}
            if self.name == "metrics":
                more["metrics"] = {"enabled": True}
            if self._keys is not None:
                more["keys"] = self._keys.section(here)
            config = AgentConfig(
                id=here,
                broker_url=broker.url,
                neighbours=urls,
                federation=FEDERATION,
                more=more,
                security="open" if self._keys is None else self.name,
            )
            self._agents[here] = AgentProcess(self._folder / f"agent-{here}", config)
        await asyncio.gather(*(agent.start() for agent in self._agents.values()))
        return _ends(list(self._brokers.values()))

    async def stands(self, filter: str) -> None:
        """Wait until every agent leads publications on by a route made for ``filter``."""
        deadline = time.monotonic() + STAND_TIMEOUT_S
        while (missing := await self._missing(filter)) is not None:
            if time.monotonic() > deadline:
                raise LinkError(f"not settled after {STAND_TIMEOUT_S:g} s: {missing}")
            await asyncio.sleep(POLL_S)

    async def _missing(self, filter: str) -> str | None:
        """What keeps publications from reaching the far end by a route made for them."""
        for here, agent in self._agents.items():
            if not agent.running:
                raise LinkError(f"agent {here} ended:\n{agent.log_tail()}")
            status = await agent.status()
            if not status["ready"]:
                return f"agent {here} is not ready: {status['ready_reason']}"
            if status["discovery"]["widened"]:
                return f"agent {here} asks for everything: {status['discovery']['reason']}"
            if not _leads_on(status, filter, last=here == len(self._agents)):
                return f"agent {here} has no route for {filter}"
        return None

    def broker_pids(self) -> list[int]:
        """Processes of the brokers."""
        return [broker.pid for broker in self._brokers.values()]

    def agent_pids(self) -> list[int]:
        """Processes of our agents."""
        return [agent.pid for agent in self._agents.values()]

    async def stop(self) -> None:
        """End everything that was started."""
        await asyncio.gather(*(agent.stop() for agent in self._agents.values()))
        await asyncio.gather(*(broker.stop() for broker in self._brokers.values()))
        await self._links.stop()


class Echo:
    """No broker at all: the load generator's own limit."""

    name = "echo"
    hops = 0

    def __init__(self, folder: Path) -> None:
        self._helper = Helper(python("lab.bench.echo"), log=folder / "echo.log")

    async def start(self) -> Ends:
        """Start all processes, the far end first."""
        await self._helper.start()
        place = ("127.0.0.1", int((await self._helper.hear())["port"]))
        return Ends(place, place)

    async def stands(self, filter: str) -> None:
        """Whether the system is up: this one always is."""

    def broker_pids(self) -> list[int]:
        """Processes of the brokers."""
        return [self._helper.pid]

    def agent_pids(self) -> list[int]:
        """Processes of our agents."""
        return []

    async def stop(self) -> None:
        """End everything that was started."""
        await self._helper.stop()


def _ends(line: list[BrokerProcess]) -> Ends:
    return Ends((line[0].host, line[0].port), (line[-1].host, line[-1].port))


def _leads_on(status: dict[str, Any], filter: str, *, last: bool) -> bool:
    """Whether an agent's table has the filter: wanted by its own client, or with a next hop."""
    return any(
        mesh["filter"] == filter and (mesh["local"] if last else bool(mesh["next_hops"]))
        for mesh in status["meshes"]
    )
