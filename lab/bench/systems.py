"""What the bench puts load on: a broker, a gateway, a chain of bridges or of our agents, a limit.

Each takes publications in at one end and hands them out at the other, ``hops`` links away, and
says which processes belong to its brokers and which to its agents. Brokers keep Mosquitto's
default limits everywhere. A bridge chain gets what a user would write for the same job in one
direction, ``topic # out 1``, which is also the least work a bridge can have; our brokers get the
log topics that our agents need, and a Unix socket each for the agent beside it.
"""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench.generator import Ends
from lab.grid.processes.agent import AgentConfig, AgentProcess, KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import Child, Helper, python, spawn
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from lab.grid.processes.relay_process import RelayProcess

FEDERATION: Final = "bench"
LIMIT_DIRECT: Final = "limit-direct"
SECURED: Final = ("signed", "sealed", "proven")
AGENTS: Final = ("federator", "direct", "polling", "metrics", *SECURED)
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


class System(ABC):
    """Something that carries publications from one end to the other.

    Its ``hops`` links are loopback as it is, or lead through relays that delay ``link_delay_ms``,
    each way. ``brokers`` are processes that are no agents, as far as they were started, ``agents``
    those of ours. What is in ``folder``, made when missing, are configurations, state and logs.
    """

    name: str

    def __init__(self, folder: Path, *, hops: int = 0, link_delay_ms: float = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.hops = hops
        self.brokers: list[Child | Helper] = []
        self.agents: list[Child | Helper] = []
        self._folder = folder
        self._link_delay_ms = link_delay_ms
        self._relays: RelayProcess | None = None  # since the first link that delays

    @abstractmethod
    async def start(self) -> Ends:
        """Start all processes, the far end first; returns when each answers.

        Raises ``LinkError``: one does not.
        """

    async def stands(self, filter: str) -> None:  # noqa: B027 - probes or SUBACK tell of most
        """Wait until the subscription of ``filter`` at the far end is known at the near end.

        Raises ``LinkError``: it is not in time.
        """

    async def stop(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self.agents))
        await asyncio.gather(*(broker.stop() for broker in self.brokers))
        if self._relays is not None:
            await self._relays.stop()

    async def _port_of(self, broker: BrokerProcess, *, link: str) -> int:
        if not self._link_delay_ms:
            return broker.port
        if self._relays is None:
            self._relays = RelayProcess(self._folder)
            await self._relays.start()
        return await self._relays.add(link, broker.place, delay_ms=self._link_delay_ms)


class BrokerLine(System):
    """Brokers in a row, each with a bridge to the next: none at all when there is one broker."""

    def __init__(self, folder: Path, *, hops: int, link_delay_ms: float = 0) -> None:
        super().__init__(folder, hops=hops, link_delay_ms=link_delay_ms)
        self.name = "bridge" if hops else "broker"

    async def start(self) -> Ends:
        line: list[BrokerProcess] = []
        for number in range(self.hops, -1, -1):
            bridge: tuple[str, ...] = ()
            if line:
                port = await self._port_of(line[0], link=f"{number}>{number + 1}")
                values = {"host": line[0].host, "port": port}
                bridge = tuple(text.format(**values) for text in BRIDGE_LINES)
            place = self._folder / f"broker-{number}"
            line.insert(0, BrokerProcess(place, extra_config=bridge, log_topics=False))
            self.brokers.append(line[0])
            await line[0].start()
        return _ends(line)


class GatewayFront(System):
    """A gateway before one broker."""

    name = "gateway"

    async def start(self) -> Ends:
        broker = BrokerProcess(self._folder / "broker", log_topics=False)
        self.brokers.append(broker)
        await broker.start()
        config = GatewayConfig("bench", {BrokerId(1): broker.url}, federation="bench")
        gateway = GatewayProcess(self._folder / "gateway", config, spawn)
        self.agents.append(gateway)
        await gateway.start()
        place = (gateway.host, gateway.port)
        return Ends(place, place)


class AgentLine(System):
    """Brokers in a row, each with an agent that knows its neighbours.

    By its name: ``federator``; ``direct``: with links straight from agent to agent; ``polling``:
    polls while data flows; ``metrics``: with the whole metrics stream on; ``signed``, ``sealed``,
    ``proven``: with such security.
    """

    def __init__(
        self, folder: Path, *, hops: int, link_delay_ms: float = 0, name: str = "federator"
    ) -> None:
        super().__init__(folder, hops=hops, link_delay_ms=link_delay_ms)
        self.name = name
        self._keys = KeyFolder(folder / "keys", FEDERATION) if name in SECURED else None
        ids = [BrokerId(number) for number in range(1, hops + 2)]
        self._sockets = {i: str(folder.resolve() / f"{i}.sock") for i in ids}
        self._line = {
            i: BrokerProcess(folder / f"broker-{i}", extra_config=(f"listener 0 {socket}",))
            for i, socket in self._sockets.items()
        }
        self._agents: dict[BrokerId, AgentProcess] = {}

    async def start(self) -> Ends:
        self.brokers += self._line.values()
        await asyncio.gather(*(broker.start() for broker in self._line.values()))
        for here, broker in self._line.items():
            urls = {}
            for there in (BrokerId(here - 1), BrokerId(here + 1)):
                if there in self._line:
                    port = await self._port_of(self._line[there], link=f"{here}>{there}")
                    urls[there] = f"mqtt://127.0.0.1:{port}"
            more: dict[str, dict[str, Any]] = {"broker": {"socket": self._sockets[here]}}
            if self.name == "polling":
                more["data"] = {"busy_poll_us": POLLING_US}
            if self.name == "direct":
                more["links"] = {"transport": "direct"}
                more["direct"] = {"listen": "127.0.0.1:0", "folder": str(self._folder.resolve())}
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
            self._agents[here] = AgentProcess(self._folder / f"agent-{here}", config, spawn)
        self.agents += self._agents.values()
        await asyncio.gather(*(agent.start() for agent in self._agents.values()))
        return _ends(list(self._line.values()))

    async def stands(self, filter: str) -> None:
        deadline = time.monotonic() + STAND_TIMEOUT_S
        while (missing := await self._missing(filter)) is not None:
            if time.monotonic() > deadline:
                raise LinkError(f"not settled after {STAND_TIMEOUT_S:g} s: {missing}")
            await asyncio.sleep(POLL_S)

    async def _missing(self, filter: str) -> str | None:
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
            straight = [
                bool(link.get("direct")) and link["direct"]["used"] for link in status["links"]
            ]
            if self.name == "direct" and not all(straight):
                return f"agent {here} does not go straight to its neighbours"
        return None


class LimitLine(System):
    """Brokers in a row, and beside each what does the least that an agent can do (``limit.c``).

    ``limit`` hands on by the next broker, ``limit-direct`` from process to process.
    """

    def __init__(
        self, folder: Path, *, hops: int, link_delay_ms: float = 0, name: str = "limit"
    ) -> None:
        super().__init__(folder, hops=hops, link_delay_ms=link_delay_ms)
        self.name = name

    async def start(self) -> Ends:
        program = str(await self._compile())
        numbers = range(self.hops + 1)
        line = [BrokerProcess(self._folder / f"broker-{i}", log_topics=False) for i in numbers]
        self.brokers += line
        await asyncio.gather(*(broker.start() for broker in line))
        for words in await self._crossings(line):
            process = Helper([program, *words], log=self._folder / "limit.log")
            self.agents.append(process)
            await process.start()
        return _ends(line)

    async def _compile(self) -> Path:
        compiler = shutil.which("cc")
        if compiler is None:
            raise LinkError("the limit is a C program, and no compiler is here: install gcc")
        program = self._folder / "limit"
        source = Path(__file__).with_name("limit.c")
        made = await asyncio.create_subprocess_exec(compiler, "-O2", "-o", program, source)
        if await made.wait():
            raise LinkError(f"{compiler} does not compile {source}")
        return program

    async def _crossings(self, line: list[BrokerProcess]) -> list[list[str]]:
        words = [["sub", str(line[0].port), "bench/#"]]
        between = free_ports(self.hops) if self.name == LIMIT_DIRECT else []
        for number, broker in enumerate(line[1:]):
            port = await self._port_of(broker, link=f"{number}>{number + 1}")
            if between:
                words[-1] += ["send", str(between[number])]
                words.append(["listen", str(between[number])])
            else:
                words[-1] += ["frame", str(port), "frames"]
                words.append(["frames", str(broker.port), "frames"])
        words[-1] += ["pub", str(line[-1].port)]
        return words


class Echo(System):
    """No broker at all: the load generator's own limit."""

    name = "echo"

    async def start(self) -> Ends:
        echo = Helper(python("lab.bench.echo"), log=self._folder / "echo.log")
        self.brokers.append(echo)
        await echo.start()
        place = ("127.0.0.1", int((await echo.hear())["port"]))
        return Ends(place, place)


def _ends(line: list[BrokerProcess]) -> Ends:
    return Ends(line[0].place, line[-1].place)


def _leads_on(status: dict[str, Any], filter: str, *, last: bool) -> bool:
    """Whether an agent's table has the filter: wanted by its own client, or with a next hop."""
    return any(
        mesh["filter"] == filter and (mesh["local"] if last else bool(mesh["next_hops"]))
        for mesh in status["meshes"]
    )
