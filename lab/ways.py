"""Links by several ways at one hub, in one run: bursts in turns, then steady streams.

Each site has a broker of its own. To one the link is plain TCP both ways, to one WebSockets both
ways, and one dials alone, in WebSockets, so what is said to it is heard in them.

Source: docs/topology.md, "Behind NAT".
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.clients import Arrivals
from lab.grid.processes.children import spawn
from lab.grid.processes.ports import free_ports
from lab.grid.stage import Stage
from lab.grid.streams import bursts, flowing

HUB: Final = BrokerId(1)
PLAIN, WEBSOCKETS, ALONE = "TCP", "WebSockets", "WebSockets, dialled alone"
SITES: Final = {PLAIN: BrokerId(2), WEBSOCKETS: BrokerId(3), ALONE: BrokerId(4)}
BROKER_LINES: Final = ("max_queued_messages 0", "set_tcp_nodelay true")
NOWHERE: Final = "mqtt://127.0.0.1:1"
"""What a site says of itself that nobody can dial."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What one way carried in one direction."""

    rate_hz: float  # msg/s of a burst, the median
    arrivals: Arrivals  # of the steady stream


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how fast."""

    burst: int = setting(20_000, "Publications, QoS 1.", 1, 1_000_000)
    rounds: int = setting(3, "Bursts of each way.", 1, 100)
    seconds: float = setting(20.0, "Of steady streams.", 1, 86_400)
    rate_hz: float = setting(100.0, "msg/s, QoS 1.", 1, 2_000, option="--rate")


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What each way carried, to the hub and from it."""

    ways: dict[str, tuple[Carried, Carried]]

    @property
    def held(self) -> bool:
        return all(each.arrivals.exact for both in self.ways.values() for each in both)

    def lines(self) -> Iterator[str]:
        yield "| link | to the hub, msg/s | from it | median delay, ms, to it | from it |"
        yield "| -- | -- | -- | -- | -- |"
        for name, both in self.ways.items():
            rates = [
                f"{each.rate_hz:,.0f} ({each.rate_hz / plain.rate_hz:.2f})"
                for each, plain in zip(both, self.ways[PLAIN], strict=True)
            ]
            delays = [f"{each.arrivals.delay_ms_p50:.1f}" for each in both]
            yield f"| {' | '.join([name, *rates, *delays])} |"

    def record(self) -> dict[str, object]:
        both = self.ways.items()
        return {"ways": {name: {"to_hub": to, "from_hub": back} for name, (to, back) in both}}


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Run links by TCP, in WebSockets, and in WebSockets that one end dials, beside each other.

    Exits 0 when every publication arrived once and in order; 1 otherwise.
    """
    async with Stage(folder, broker_options=BROKER_LINES, spawn=spawn) as stage:
        await _start(stage)
        both = {
            name: (
                stage.stream((f"site-{id}", id), ("hub", HUB)),
                stage.stream(("hub", HUB), (f"site-{id}", id)),
            )
            for name, id in SITES.items()
        }
        streams = [stream for pair in both.values() for stream in pair]
        async with flowing(streams):
            rates = await bursts(streams, settings.burst, settings.rounds, tell)
            steady = (stream.steady(settings.seconds, settings.rate_hz) for stream in streams)
            came = dict(zip(streams, await asyncio.gather(*steady), strict=True))
        return Outcome({
            name: (Carried(rates[to], came[to]), Carried(rates[back], came[back]))
            for name, (to, back) in both.items()
        })  # fmt: skip


async def _start(stage: Stage) -> None:
    """Start all. Brokers listen for WebSockets, too; the hub dials back the sites that listen."""
    websockets = {}
    for id in (HUB, *SITES.values()):
        (port,) = free_ports(1)
        await stage.broker(id, f"listener {port} 127.0.0.1", "protocol websockets")
        websockets[id] = f"ws://127.0.0.1:{port}"
    await stage.agent(HUB, more={"links": {"dial_back": True}})
    for name, id in SITES.items():
        more: dict[str, dict[str, str]] = {}
        if name == WEBSOCKETS:
            more["broker"] = {"advertise": websockets[id]}
        if name == ALONE:
            more["broker"], more["links"] = {"advertise": NOWHERE}, {"dial": "out"}
        there = stage.brokers[HUB].url if name == PLAIN else websockets[HUB]
        await stage.agent(id, {HUB: there}, more=more)


command = experiment("ways", Settings, run)
