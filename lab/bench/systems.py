"""What the bench puts load on: a broker, a gateway, a chain of bridges or of our agents, a limit.

Each takes publications in at one end and hands them out at the other, ``hops`` links away, and
says which processes belong to its brokers and which to its agents. Brokers keep Mosquitto's
default limits everywhere. A bridge chain gets what a user would write for the same job in one
direction, ``topic # out 1``, which is also the least work a bridge can have; our brokers get the
log topics that our agents need, and a Unix socket each for the agent beside it.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench.generator import Ends
from lab.bench.processor import processor_s
from lab.grid.processes.agent import KeyFolder
from lab.grid.processes.children import Child, Helper, python, spawn
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from lab.grid.stage import Pages, Stage, widened

FEDERATION: Final = "bench"
LIMIT_DIRECT: Final = "limit-direct"
SECURED: Final = ("signed", "sealed", "proven")
AGENTS: Final = ("federator", "direct", "polling", "metrics", *SECURED)
"""Names of ``AgentLine``s."""

POLLING_US: Final = 2_000
"""Twice the time between publications where the bench measures delays."""

BRIDGE_LINES: Final = (
    "connection onward",
    "address {place}",
    "topic # out 1",
    "cleansession true",
)
"""All of a bridge's configuration; protocol, queues and socket options are the defaults."""


class System(Stage):
    """Something that carries publications from one end to the other.

    Its ``hops`` links are loopback as it is, or lead through relays that delay ``link_delay_ms``,
    each way.

    Attributes:
        ends: Where publications go in and come out, once it is started.
        line: The brokers in a row.
        at_work: Processes of ours that are no agents.
    """

    name: str
    ends: Ends

    def __init__(self, folder: Path, *, hops: int = 0, link_delay_ms: float = 0) -> None:
        super().__init__(folder.absolute(), spawn=spawn)
        self.hops = hops
        self.line = [BrokerId(number) for number in range(1, hops + 2)]
        self.at_work: list[Child | Helper] = []
        self._link_delay_ms = link_delay_ms

    def processor_s(self) -> tuple[float, float]:
        """Processor seconds of the brokers, and of what is ours."""
        ours = (*self.agents.values(), *self.at_work)
        both = ([child.pid for child in each] for each in (self.brokers.values(), ours))
        brokers_s, ours_s = map(processor_s, both)
        return brokers_s, ours_s

    async def stands(self, filter: str) -> None:
        """Wait until the subscription of ``filter`` at the far end is known at the near end.

        Probes or SUBACK tell of most. Raises ``LinkError``: it is not in time.
        """

    async def put_to_work(self, process: Child | Helper) -> None:
        self.at_work.append(process)
        await self.beside.enter_async_context(process)

    async def _brokers_in_a_row(self) -> None:
        for id in self.line:
            await self.broker(id, log_topics=False)
        self._end_at_both()

    def _end_at_both(self) -> None:
        first, last = (self.brokers[self.line[at]] for at in (0, -1))
        self.ends = Ends(first.place, last.place)

    async def _url_of(self, here: BrokerId, there: BrokerId) -> str:
        """Where ``there``'s broker is reached from ``here``."""
        if not self._link_delay_ms:
            return self.brokers[there].url
        return await self.relayed(f"{here}>{there}", there, delay_ms=self._link_delay_ms)


class BrokerLine(System):
    """Brokers in a row, each with a bridge to the next: none at all when there is one broker."""

    def __init__(self, folder: Path, *, hops: int, link_delay_ms: float = 0) -> None:
        super().__init__(folder, hops=hops, link_delay_ms=link_delay_ms)
        self.name = "bridge" if hops else "broker"

    async def start(self) -> None:
        """Start the brokers from the far end on: a bridge wants a port."""
        for id in reversed(self.line):
            bridge: tuple[str, ...] = ()
            if id != self.line[-1]:
                place = (await self._url_of(id, BrokerId(id + 1))).removeprefix("mqtt://")
                bridge = tuple(text.format(place=place) for text in BRIDGE_LINES)
            await self.broker(id, *bridge, log_topics=False)
        self._end_at_both()


class GatewayFront(System):
    """A gateway before one broker."""

    name = "gateway"

    async def start(self) -> None:
        await self._brokers_in_a_row()
        (id,) = self.line
        config = GatewayConfig("bench", {id: self.brokers[id].url}, federation="bench")
        gateway = GatewayProcess(self.folder / "gateway", config, spawn)
        await self.put_to_work(gateway)
        self.ends = Ends((gateway.host, gateway.port), (gateway.host, gateway.port))


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

    async def start(self) -> None:
        for id in self.line:
            await self.broker(id, f"listener 0 {self._socket(id)}")
        for id, broker in self.brokers.items():
            near = [BrokerId(other) for other in (id - 1, id + 1) if other in self.brokers]
            more: dict[str, dict[str, Any]] = {"broker": {"socket": self._socket(id)}}
            if self.name == "polling":
                more["data"] = {"busy_poll_us": POLLING_US}
            if self.name == "direct":
                more["links"] = {"transport": "direct"}
                more["direct"] = {"listen": "127.0.0.1:0", "folder": str(self.folder)}
            if self.name == "metrics":
                more["metrics"] = {"enabled": True}
            if self._keys is not None:
                more["keys"] = self._keys.section(id)
            self.planned(
                id,
                broker.url,
                {there: await self._url_of(id, there) for there in near},
                federation=FEDERATION,
                more=more,
                security="open" if self._keys is None else self.name,
            )
        await asyncio.gather(*(agent.start() for agent in self.agents.values()))
        self._end_at_both()

    def _socket(self, id: BrokerId) -> str:
        return str(self.folder / f"{id}.sock")

    async def stands(self, filter: str) -> None:
        """Wait until every agent leads publications on by a route made for ``filter``."""
        await self.until(lambda pages: self._missing(pages, filter))

    def _missing(self, pages: Pages, filter: str) -> str | None:
        if fault := widened(pages):
            return fault
        for here, status in pages.items():
            if not status["ready"]:
                return f"agent {here} is not ready: {status['ready_reason']}"
            if not _leads_on(status, filter, last=here == self.line[-1]):
                return f"agent {here} has no route for {filter}"
            straight = [link.get("direct") and link["direct"]["used"] for link in status["links"]]
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

    async def start(self) -> None:
        program = str(await self._compile())
        await self._brokers_in_a_row()
        for words in await self._crossings():
            await self.put_to_work(Helper([program, *words], log=self.folder / "limit.log"))

    async def _compile(self) -> Path:
        compiler = shutil.which("cc")
        if compiler is None:
            raise LinkError("the limit is a C program, and no compiler is here: install gcc")
        program = self.folder / "limit"
        source = Path(__file__).with_name("limit.c")
        made = await asyncio.create_subprocess_exec(compiler, "-O2", "-o", program, source)
        if await made.wait():
            raise LinkError(f"{compiler} does not compile {source}")
        return program

    async def _crossings(self) -> list[list[str]]:
        """What each process takes in and hands out, as its arguments."""
        first, *others = self.line
        words = [["sub", str(self.brokers[first].port), "bench/#"]]
        between = free_ports(self.hops) if self.name == LIMIT_DIRECT else []
        for number, id in enumerate(others):
            if between:
                words[-1] += ["send", str(between[number])]
                words.append(["listen", str(between[number])])
            else:
                port = (await self._url_of(BrokerId(id - 1), id)).rpartition(":")[2]
                words[-1] += ["frame", port, "frames"]
                words.append(["frames", str(self.brokers[id].port), "frames"])
        words[-1] += ["pub", str(self.brokers[self.line[-1]].port)]
        return words


class Echo(System):
    """No broker at all: the load generator's own limit."""

    name = "echo"

    async def start(self) -> None:
        echo = Helper(python("lab.bench.echo"), log=self.folder / "echo.log")
        await self.put_to_work(echo)
        place = ("127.0.0.1", int((await echo.hear())["port"]))
        self.ends = Ends(place, place)

    def processor_s(self) -> tuple[float, float]:
        """It is in the brokers' place."""
        none_s, echo_s = super().processor_s()
        return echo_s, none_s


def _leads_on(status: dict[str, Any], filter: str, *, last: bool) -> bool:
    """Whether an agent's table has the filter: wanted by its own client, or with a next hop."""
    return any(
        mesh["filter"] == filter and (mesh["local"] if last else bool(mesh["next_hops"]))
        for mesh in status["meshes"]
    )
