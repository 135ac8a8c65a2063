"""What crosses NAT, counted: streams both ways over both links while the router's address changes.

Each of the two links, the site's that only dials and the open host's that is dialled back, carries
a stream each way, at a steady rate and at QoS 1. Before that each carries bursts, in turns, to
compare how fast they are.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Arrivals
from lab.grid.streams import Stream
from lab.nat.network import HUB, OPEN, SITE, Network
from lab.nat.stage import Stage

WAYS: Final = ((SITE, HUB), (HUB, SITE), (OPEN, HUB), (HUB, OPEN))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        seconds: Of the steady streams.
        rate_hz: Of each of them.
        move_every_s: Between two changes of the router's address; 0: none.
        burst: Publications of one burst; 0: none.
        rounds: Bursts of each way.
    """

    seconds: float = 600.0
    rate_hz: float = 300.0
    move_every_s: float = 60.0
    burst: int = 20_000
    rounds: int = 3


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


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``, which exists.

    Raises:
        LinkError: Something did not start, or a burst got lost.
    """
    network = Network()
    async with Stage(folder, network) as stage, asyncio.TaskGroup() as tasks:
        streams = {
            way: Stream(way, *(Endpoint("", 0, socket=stage.socket(host)) for host in way))
            for way in WAYS
        }
        clients = [c for s in streams.values() for c in (s.publisher, s.subscriber)]
        links = [tasks.create_task(each.link.run(), name=each.link.client_id) for each in clients]
        for client in clients:
            await client.subscribed.wait()
        for stream in streams.values():
            await stream.flows()
        rates = await _bursts(streams, plan, progress)
        progress(f"{plan.seconds:g} s of {plan.rate_hz:g} msg/s on each of {len(WAYS)} ways")
        mover = tasks.create_task(_move(network, plan, progress), name="moves")
        told = await asyncio.gather(
            *(stream.steady(plan.seconds, plan.rate_hz) for stream in streams.values())
        )
        for task in (mover, *links):
            task.cancel()
        return Outcome(dict(zip(streams, told, strict=True)), rates, network.moves)


async def _bursts(
    streams: dict[tuple[str, str], Stream], plan: Plan, progress: Callable[[str], None]
) -> dict[tuple[str, str], float]:
    if not plan.burst:
        return {}
    rates: dict[tuple[str, str], list[float]] = {way: [] for way in streams}
    for turn in range(plan.rounds):
        for way, stream in streams.items():
            rates[way].append(await stream.burst(plan.burst))
        told = ", ".join(f"{a} to {b} {rates[a, b][-1]:,.0f}" for a, b in streams)
        progress(f"burst {turn + 1} of {plan.rounds}, msg/s: {told}")
    return {way: median(each) for way, each in rates.items()}


async def _move(network: Network, plan: Plan, progress: Callable[[str], None]) -> None:
    """Change the router's address from time to time, until cancelled."""
    while plan.move_every_s:
        await asyncio.sleep(plan.move_every_s)
        silently = bool(network.moves % 2)
        address = await asyncio.to_thread(network.move, silently=silently)
        how = "drops what it no longer knows" if silently else "lets the hub reset what was"
        progress(f"the router is {address} now, and {how}")
