"""Two pairs of signed agents, one with direct links and one with datagrams, and a machine on each
path between two agents. Their brokers are reached without harm, so nothing may be lost.

Source: docs/direct.md, "Threats"; docs/udp-fec.md, "Threats".
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Arrivals
from lab.grid.processes.agent import AgentConfig, AgentProcess, KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import spawn
from lab.grid.streams import Stream, running
from lab.on_path.datagrams import DatagramMan
from lab.on_path.moods import Mood
from lab.on_path.straight import StraightMan

SECTIONS: Final = {"direct": "direct", "udp-fec": "udp"}
"""By transport: the section that says where its port is."""

BROKER_LINES: Final = ("max_queued_messages 0",)
USED_S: Final = 60.0
CHECK_S: Final = 0.2
SILENCE_S_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        rate_hz: Publications of QoS 1 a second, of each of four streams.
        moods: What is done first, one after the other; then it is left to chance.
    """

    minutes: float
    rate_hz: float
    seed: int
    moods: tuple[Mood, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        arrivals: By stream.
        harm: What was done, by transport.
        given_up_s: How long each direct connection stood whose frames were swallowed.
    """

    arrivals: dict[str, Arrivals]
    harm: dict[str, dict[Mood, int]]
    given_up_s: Sequence[float]

    @property
    def lost(self) -> int:
        """Publications that never arrived."""
        return sum(each.lost for each in self.arrivals.values())


class _Pair:
    """Two brokers and their agents; whoever goes to agent ``i`` meets ``men[i]``."""

    def __init__(self, transport: str, folder: Path, seed: int) -> None:
        man = StraightMan if transport == "direct" else DatagramMan
        self.transport, self._folder = transport, folder
        self.men: list[StraightMan | DatagramMan] = [man(seed + i) for i in range(2)]
        self.agents: list[AgentProcess] = []
        self.streams: list[Stream] = []

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start all, and wait until the brokers carry frames no more."""
        keys = KeyFolder(self._folder / "keys", self.transport)
        brokers = []
        for i in range(2):
            broker = BrokerProcess(self._folder / f"broker-{i}", extra_config=BROKER_LINES)
            brokers.append(await stack.enter_async_context(broker))
        for i, man in enumerate(self.men):
            stack.callback(man.close)
            id_ = BrokerId(i + 1)
            port = {"listen": "127.0.0.1:0", "advertise": f"127.0.0.1:{await man.listen()}"}
            more: dict[str, dict[str, Any]] = {
                "links": {"transport": self.transport, "dial_back": True},
                SECTIONS[self.transport]: port,
                "keys": keys.section(id_),
            }
            there = {BrokerId(1): brokers[0].url} if i else {}
            config = AgentConfig(
                id_, brokers[i].url, there, self.transport, more=more, security="signed"
            )
            agent = AgentProcess(self._folder / f"agent-{i}", config, spawn)
            self.agents.append(await stack.enter_async_context(agent))
            status = await agent.status()
            man.target = status["direct" if self.transport == "direct" else "datagrams"]["port"]
        one, two = (Endpoint(each.host, each.port) for each in brokers)
        name = self.transport
        self.streams = [
            Stream((f"{name}-1", f"{name}-2"), one, two),
            Stream((f"{name}-2", f"{name}-1"), two, one),
        ]
        async with asyncio.timeout(USED_S):
            for agent in self.agents:
                while not self._goes_past_brokers(await agent.status()):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(CHECK_S)

    def _goes_past_brokers(self, status: dict[str, list[dict[str, dict[str, bool]]]]) -> bool:
        key = "direct" if self.transport == "direct" else "datagrams"
        return any(link[key] and link[key]["used"] for link in status["links"])


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``.

    Raises:
        LinkError: Something did not start.
        TimeoutError: Agents did not go past the brokers, before anybody did any harm.
    """
    async with contextlib.AsyncExitStack() as stack:
        pairs = [_Pair(each, folder / each, plan.seed + 10 * i) for i, each in enumerate(SECTIONS)]
        for pair in pairs:
            await pair.start(stack)
        streams = [stream for pair in pairs for stream in pair.streams]
        clients = [client for each in streams for client in (each.publisher, each.subscriber)]
        async with running(*(client.link.run() for client in clients)):
            for client in clients:
                await client.subscribed.wait()
            for stream in streams:
                await stream.flows()
            ended = asyncio.Event()
            publications_max = round(plan.minutes * 60 * plan.rate_hz * 1.5)
            counts = [
                asyncio.create_task(stream.until(ended, plan.rate_hz, publications_max))
                for stream in streams
            ]
            async with running(*(man.wander(plan.moods) for pair in pairs for man in pair.men)):
                for minute in range(max(1, round(plan.minutes))):
                    await asyncio.sleep(60 * plan.minutes / max(1, round(plan.minutes)))
                    progress(f"{minute + 1} of {plan.minutes:g} minutes")
            ended.set()
            arrivals = await asyncio.gather(*counts)
    men = {pair.transport: pair.men for pair in pairs}
    return Outcome(
        {stream.topic: each for stream, each in zip(streams, arrivals, strict=True)},
        {name: {m: sum(man.harm[m] for man in both) for m in Mood} for name, both in men.items()},
        [s for man in men["direct"] if isinstance(man, StraightMan) for s in man.given_up_s],
    )
