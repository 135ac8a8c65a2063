"""Two pairs of signed agents, one with direct links and one with datagrams, and a machine on each
path between two agents. Their brokers are reached without harm, so nothing may be lost.

Source: docs/direct.md, "Threats"; docs/udp-fec.md, "Threats".
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
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
class Settings:
    """How long harm is done, and to how fast a traffic.

    ``moods``: what is done first, one after the other; then it is left to chance.
    """

    minutes: float = setting(10.0, "Of harm.", 0.1, 1_440)
    rate_hz: float = setting(50.0, "msg/s, QoS 1.", 1, 2_000, option="--rate")
    seed: int = setting(1, "Of what is done, and when.")
    moods: tuple[Mood, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What streams and connections suffered.

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
        return sum(each.lost for each in self.arrivals.values())

    @property
    def held(self) -> bool:
        return self.lost == 0 and self.longest_s <= SILENCE_S_MAX

    @property
    def longest_s(self) -> float:
        return max(self.given_up_s, default=0.0)

    def lines(self) -> Iterator[str]:
        yield "| what is done | direct links | datagrams |"
        yield "| -- | -- | -- |"
        harm = self.harm
        for mood in Mood:
            if mood is not Mood.HONEST:
                yield f"| {mood} | {harm['direct'][mood]:,} | {harm['udp-fec'][mood]:,} |"
        yield ""
        for topic, each in self.arrivals.items():
            worst = f"p99 {each.delay_ms_p99:.0f} ms, worst {each.delay_ms_max:.0f} ms"
            yield f"{topic}: {each.sent:,} sent, {each}, {worst}"
        count, longest_s = len(self.given_up_s), self.longest_s
        yield f"{count} connections were swallowed; the last to be left stood {longest_s:.2f} s"


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
        _, page = KEYS[self.transport]
        for id, status in pages.items():
            if not any(link[page] and link[page]["used"] for link in status["links"]):
                return f"agent {id} does not go past the brokers"
        return None


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Put a machine on the path of direct links and of datagrams that does all it can.

    It drops, delays, repeats, changes, swaps and makes up packets and confirmations; the brokers
    are reached without harm.

    Exits 0 when every publication arrived and each connection that was swallowed was given up
    within 2 s; 1 otherwise.
    """
    minutes, rate_hz = settings.minutes, settings.rate_hz
    async with contextlib.AsyncExitStack() as stack:
        pairs = [
            await stack.enter_async_context(_Pair(each, folder / each, settings.seed + 10 * i))
            for i, each in enumerate(KEYS)
        ]
        streams = [stream for pair in pairs for stream in pair.streams]
        async with flowing(streams):
            ended = asyncio.Event()
            publications_max = round(minutes * 60 * rate_hz * 1.5)
            counting = asyncio.gather(
                *(stream.until(ended, rate_hz, publications_max) for stream in streams)
            )
            men = [man for pair in pairs for man in pair.men.values()]
            async with running(*(man.wander(settings.moods) for man in men)):
                for minute in range(max(1, round(minutes))):
                    await asyncio.sleep(60 * minutes / max(1, round(minutes)))
                    tell(f"{minute + 1} of {minutes:g} minutes")
            ended.set()
            arrivals = await counting
    return Outcome(
        {stream.topic: each for stream, each in zip(streams, arrivals, strict=True)},
        {
            pair.transport: {m: sum(man.harm[m] for man in pair.men.values()) for m in Mood}
            for pair in pairs
        },
        [seconds for man in men if isinstance(man, StraightMan) for seconds in man.given_up_s],
    )


command = experiment("on-path", Settings, run)
