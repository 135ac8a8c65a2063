"""What crosses NAT, counted: streams both ways over both links while the router's address changes.

Each of the two links, the site's that only dials and the open host's that is dialled back, carries
a stream each way, at a steady rate and at QoS 1. Before that each carries bursts, in turns, to
compare how fast they are.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.grid.clients import Arrivals
from lab.grid.streams import bursts, flowing, running
from lab.nat.network import HUB, OPEN, SITE, Network
from lab.nat.stage import BROKERS, NatStage

WAYS: Final = ((SITE, HUB), (HUB, SITE), (OPEN, HUB), (HUB, OPEN))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    arrivals: dict[tuple[str, str], Arrivals]
    rates_hz: dict[tuple[str, str], float]  # msg/s of a burst, the median; empty without bursts
    moves: int

    @property
    def exact(self) -> bool:
        """Whether each publication arrived once and in order."""
        return all(each.exact for each in self.arrivals.values())

    def throughput(self, *, out: bool) -> float:
        """Of the site's link beside the open one's, from the hub (``out``: to it)."""
        one, other = _both(out=out)
        return self.rates_hz[one] / self.rates_hz[other]

    def median_delay(self, *, out: bool) -> float:
        """The same of the steady streams' median delays."""
        one, other = _both(out=out)
        return self.arrivals[one].delay_ms_p50 / self.arrivals[other].delay_ms_p50


def _both(*, out: bool) -> tuple[tuple[str, str], tuple[str, str]]:
    return ((SITE, HUB), (OPEN, HUB)) if out else ((HUB, SITE), (HUB, OPEN))


async def run(
    folder: Path,
    *,
    seconds: float,
    rate_hz: float,
    move_every_s: float,
    burst: int,
    rounds: int,
    progress: Callable[[str], None],
) -> Outcome:
    """Measure with configurations and logs in ``folder``, which exists.

    Args:
        seconds: Of the steady streams.
        rate_hz: Of each of them.
        move_every_s: Between two changes of the router's address; 0: none.
        burst: Publications of one burst; 0: none.
        rounds: Bursts of each way.

    Raises:
        LinkError: Something did not start, or a burst got lost.
    """
    network = Network()
    async with NatStage(folder, network) as stage:
        streams = {way: stage.stream(*((host, BROKERS[host]) for host in way)) for way in WAYS}
        each = list(streams.values())
        async with flowing(each):
            rates = await bursts(each, burst, rounds, progress) if burst else {}
            progress(f"{seconds:g} s of {rate_hz:g} msg/s on each of {len(WAYS)} ways")
            async with running(_move(network, move_every_s, progress)):
                told = await asyncio.gather(*(s.steady(seconds, rate_hz) for s in each))
        by_way = {way: rates[stream] for way, stream in streams.items() if rates}
        return Outcome(dict(zip(streams, told, strict=True)), by_way, network.moves)


async def _move(network: Network, every_s: float, progress: Callable[[str], None]) -> None:
    """Change the router's address from time to time, until cancelled."""
    while every_s:
        await asyncio.sleep(every_s)
        silently = bool(network.moves % 2)
        address = await asyncio.to_thread(network.move, silently=silently)
        how = "drops what it no longer knows" if silently else "lets the hub reset what was"
        progress(f"the router is {address} now, and {how}")
