"""Links by several ways at one hub, in one run: bursts in turns, then steady streams.

Each site has a broker of its own. To one the link is plain TCP both ways, to one WebSockets both
ways, and one dials alone, in WebSockets, so what is said to it is heard in them.

Source: docs/topology.md, "Behind NAT".
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
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


Outcome = dict[str, tuple[Carried, Carried]]
"""By way: to the hub, and from it."""


async def run(
    folder: Path,
    *,
    burst: int,
    rounds: int,
    seconds: float,
    rate_hz: float,
    progress: Callable[[str], None],
) -> Outcome:
    """Measure with configurations and logs in ``folder``.

    Args:
        burst: Publications of one burst.
        rounds: Bursts of each way.
        seconds: Of the steady streams.
        rate_hz: Of each of them.

    Raises:
        LinkError: Something did not start, or a burst got lost.
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
            rates = await bursts(streams, burst, rounds, progress)
            steady = (stream.steady(seconds, rate_hz) for stream in streams)
            told = dict(zip(streams, await asyncio.gather(*steady), strict=True))
        return {
            name: (Carried(rates[to], told[to]), Carried(rates[back], told[back]))
            for name, (to, back) in both.items()
        }


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
