"""Two pairs of signed agents, one with direct links and one with datagrams, and a machine on each
path between two agents. Their brokers are reached without harm, so nothing may be lost.

Source: docs/direct.md, "Threats"; docs/udp-fec.md, "Threats".
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.grid.clients import Arrivals
from lab.grid.processes.agent import KeyFolder
from lab.grid.processes.children import spawn
from lab.grid.stage import Pages, Stage
from lab.grid.streams import Stream, flowing, running
from lab.on_path.datagrams import DatagramMan
from lab.on_path.moods import Mood
from lab.on_path.straight import StraightMan

ONE, TWO = BrokerId(1), BrokerId(2)
KEYS: Final = {"direct": ("direct", "direct"), "udp-fec": ("udp", "datagrams")}
"""By transport: the section that says where its port is, and the part of a status about it."""

BROKER_LINES: Final = ("max_queued_messages 0",)
SILENCE_S_MAX: Final = 2.0


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


class _Pair(Stage):
    """Two brokers and their agents, with one of ``men`` on the path to each agent."""

    def __init__(self, transport: str, folder: Path, seed: int) -> None:
        super().__init__(folder, broker_options=BROKER_LINES, spawn=spawn)
        man = StraightMan if transport == "direct" else DatagramMan
        self.transport = transport
        self.men: dict[BrokerId, StraightMan | DatagramMan] = {
            id: man(seed + i) for i, id in enumerate((ONE, TWO))
        }
        self.streams: list[Stream] = []

    async def start(self) -> None:
        """Start all, and wait until the brokers carry frames no more."""
        keys, section, page = KeyFolder(self.folder / "keys", self.transport), *KEYS[self.transport]
        for id in self.men:
            await self.broker(id)
        for id, man in self.men.items():
            self.beside.callback(man.close)
            port = {"listen": "127.0.0.1:0", "advertise": f"127.0.0.1:{await man.listen()}"}
            more = {
                "links": {"transport": self.transport, "dial_back": True},
                section: port,
                "keys": keys.section(id),
            }
            there = {ONE: self.brokers[ONE].url} if id != ONE else {}
            how = {"federation": self.transport, "more": more, "security": "signed"}
            agent = await self.agent(id, there, **how)
            man.target = (await agent.status())[page]["port"]
        one, two = ((f"{self.transport}-{id}", id) for id in (ONE, TWO))
        self.streams = [self.stream(one, two), self.stream(two, one)]
        await self.until(self._by_brokers)

    def _by_brokers(self, pages: Pages) -> str | None:
        """Name an agent whose frames the brokers still carry."""
        _, page = KEYS[self.transport]
        for id, status in pages.items():
            if not any(link[page] and link[page]["used"] for link in status["links"]):
                return f"agent {id} does not go past the brokers"
        return None


async def run(
    folder: Path,
    *,
    minutes: float,
    rate_hz: float,
    seed: int,
    moods: tuple[Mood, ...] = (),
    progress: Callable[[str], None],
) -> Outcome:
    """Do harm, with configurations and logs in ``folder``.

    Args:
        rate_hz: Publications of QoS 1 a second, of each of four streams.
        moods: What is done first, one after the other; then it is left to chance.

    Raises:
        LinkError: Something did not start, or agents did not go past the brokers.
    """
    async with contextlib.AsyncExitStack() as stack:
        pairs = [
            await stack.enter_async_context(_Pair(each, folder / each, seed + 10 * i))
            for i, each in enumerate(KEYS)
        ]
        streams = [stream for pair in pairs for stream in pair.streams]
        async with flowing(streams):
            ended = asyncio.Event()
            publications_max = round(minutes * 60 * rate_hz * 1.5)
            counting = asyncio.gather(
                *(stream.until(ended, rate_hz, publications_max) for stream in streams)
            )
            async with running(*(m.wander(moods) for pair in pairs for m in pair.men.values())):
                for minute in range(max(1, round(minutes))):
                    await asyncio.sleep(60 * minutes / max(1, round(minutes)))
                    progress(f"{minute + 1} of {minutes:g} minutes")
            ended.set()
            arrivals = await counting
    men = {pair.transport: list(pair.men.values()) for pair in pairs}
    return Outcome(
        {stream.topic: each for stream, each in zip(streams, arrivals, strict=True)},
        {name: {m: sum(man.harm[m] for man in both) for m in Mood} for name, both in men.items()},
        [s for man in men["direct"] if isinstance(man, StraightMan) for s in man.given_up_s],
    )
