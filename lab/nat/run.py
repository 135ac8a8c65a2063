"""What crosses NAT, counted: streams both ways over both links while the router's address changes.

Each of the two links, the site's that only dials and the open host's that is dialled back, carries
a stream each way, at a steady rate and at QoS 1. Before that each carries bursts, in turns, to
compare how fast they are.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.frame.experiment import Result, Tell, experiment
from lab.frame.printing import fields_of
from lab.frame.settings import setting
from lab.grid.clients import Arrivals
from lab.grid.streams import bursts, flowing, running
from lab.nat.network import HUB, OPEN, SITE, Network
from lab.nat.stage import BROKERS, NatStage

WAYS: Final = ((SITE, HUB), (HUB, SITE), (OPEN, HUB), (HUB, OPEN))
BESIDE: Final = {"to the hub": WAYS[::2], "from the hub": WAYS[1::2]}
"""By direction: the site's link, and the open one that it is held against."""

THROUGHPUT_MIN: Final = 0.9
DELAY_MAX: Final = 1.2


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how fast, and how often the router's address changes."""

    seconds: float = setting(600.0, "Of steady streams.", 1, 86_400)
    rate_hz: float = setting(300.0, "msg/s, QoS 1.", 1, 2_000, option="--rate")
    move_every_s: float = setting(
        60.0,
        "Seconds between two changes of the router's address; 0: none.",
        least=0,
        most=86_400,
        option="--move-every",
    )
    burst: int = setting(20_000, "Publications; 0: none.", 0, 1_000_000)
    rounds: int = setting(3, "Bursts of each way.", 1, 100)


@dataclass(frozen=True, slots=True)
class Beside:
    """The site's link in one direction, as a part of the two-way link's."""

    direction: str
    median_delay: float
    throughput: float | None  # without bursts none

    @property
    def held(self) -> bool:
        fast = self.throughput is None or self.throughput >= THROUGHPUT_MIN
        return fast and self.median_delay <= DELAY_MAX


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What each way carried."""

    arrivals: dict[tuple[str, str], Arrivals]
    rates_hz: dict[tuple[str, str], float]  # msg/s of a burst, the median; empty without bursts
    moves: int

    @property
    def exact(self) -> bool:
        return all(each.exact for each in self.arrivals.values())

    @property
    def held(self) -> bool:
        return self.exact and all(each.held for each in self.beside())

    def beside(self) -> Iterator[Beside]:
        for direction, (one, other) in BESIDE.items():
            delay = self.arrivals[one].delay_ms_p50 / self.arrivals[other].delay_ms_p50
            rates = self.rates_hz
            yield Beside(direction, delay, rates[one] / rates[other] if rates else None)

    def lines(self) -> Iterator[str]:
        yield f"the router's address changed {self.moves} times"
        for way in WAYS:
            got = self.arrivals[way]
            yield (
                f"{way[0]:>4} to {way[1]:<4}  {got.sent:,} sent: {got}; ms: "
                f"{got.delay_ms_p50:.2f} median, {got.delay_ms_p99:.1f} p99, "
                f"{got.delay_ms_max:.0f} max"
            )
        for each in self.beside():
            delay = f"median delay {each.median_delay:.2f} of the two-way link's"
            rate = "" if each.throughput is None else f", throughput {each.throughput:.2f}"
            yield f"{each.direction}: {delay}{rate}"

    def record(self) -> dict[str, object]:
        return {**fields_of(self), "beside_two_way": [*self.beside()]}


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Run a site that only dials, behind NAT whose address changes, beside one that is dialled.

    Needs root, iptables and conntrack: it makes network namespaces.

    Exits 0 when every publication arrived once and in order, and the site's link has 0.9 of the
    other's throughput and at most 1.2 times its median delay; 1 otherwise.
    """
    seconds, rate_hz, burst = settings.seconds, settings.rate_hz, settings.burst
    network = Network()
    async with NatStage(folder, network) as stage:
        streams = {way: stage.stream(*((host, BROKERS[host]) for host in way)) for way in WAYS}
        each = list(streams.values())
        async with flowing(each):
            rates = await bursts(each, burst, settings.rounds, tell) if burst else {}
            tell(f"{seconds:g} s of {rate_hz:g} msg/s on each of {len(WAYS)} ways")
            async with running(_move(network, settings.move_every_s, tell)):
                came = await asyncio.gather(*(s.steady(seconds, rate_hz) for s in each))
        by_way = {way: rates[stream] for way, stream in streams.items() if rates}
        return Outcome(dict(zip(streams, came, strict=True)), by_way, network.moves)


async def _move(network: Network, every_s: float, tell: Tell) -> None:
    while every_s:
        await asyncio.sleep(every_s)
        silently = bool(network.moves % 2)
        address = await asyncio.to_thread(network.move, silently=silently)
        how = "drops what it no longer knows" if silently else "lets the hub reset what was"
        tell(f"the router is {address} now, and {how}")


command = experiment("nat", Settings, run)
