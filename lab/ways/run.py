"""Links by several ways at one hub, in one run: bursts in turns, then steady streams.

Each site has a broker of its own. To one the link is plain TCP both ways, to one WebSockets both
ways, and one dials alone, in WebSockets, so what is said to it is heard in them.

Source: docs/topology.md, "Behind NAT".
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Arrivals
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import spawn
from lab.grid.processes.ports import free_ports
from lab.grid.streams import Stream

HUB: Final = BrokerId(1)
PLAIN, WEBSOCKETS, ALONE = "TCP", "WebSockets", "WebSockets, dialled alone"
SITES: Final = {PLAIN: BrokerId(2), WEBSOCKETS: BrokerId(3), ALONE: BrokerId(4)}
BROKER_LINES: Final = ("max_queued_messages 0", "set_tcp_nodelay true")
NOWHERE: Final = "mqtt://127.0.0.1:1"
"""What a site says of itself that nobody can dial."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        burst: Publications of one burst.
        rounds: Bursts of each way.
        seconds: Of the steady streams.
        rate_hz: Of each of them.
    """

    burst: int = 20_000
    rounds: int = 3
    seconds: float = 20.0
    rate_hz: float = 100.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What one way carried in one direction."""

    rate_hz: float  # msg/s of a burst, the median
    arrivals: Arrivals  # of the steady stream


Outcome = dict[str, tuple[Carried, Carried]]
"""By way: to the hub, and from it."""


class _Place:
    """A broker with a listener for clients and one for WebSockets."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        lines = (*BROKER_LINES, f"listener {port} 127.0.0.1", "protocol websockets")
        self.broker = BrokerProcess(folder, extra_config=lines)
        self.websockets = f"ws://127.0.0.1:{port}"

    @property
    def endpoint(self) -> Endpoint:
        """Where clients connect."""
        return Endpoint(self.broker.host, self.broker.port)


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Outcome:
    """Carry out ``plan`` with configurations and logs in ``folder``.

    Raises:
        LinkError: Something did not start, or a burst got lost.
    """
    async with contextlib.AsyncExitStack() as stack:
        hub = _Place(folder / "hub-broker")
        sites = {name: _Place(folder / f"site-{id_}-broker") for name, id_ in SITES.items()}
        for place in (hub, *sites.values()):
            await stack.enter_async_context(place.broker)
        for config in _configs(hub, sites):
            agent = AgentProcess(folder / f"agent-{config.id}", config, spawn)
            await stack.enter_async_context(agent)
        both = {
            name: (
                Stream((f"site-{SITES[name]}", "hub"), site.endpoint, hub.endpoint),
                Stream(("hub", f"site-{SITES[name]}"), hub.endpoint, site.endpoint),
            )
            for name, site in sites.items()
        }
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        streams = [stream for pair in both.values() for stream in pair]
        clients = [client for each in streams for client in (each.publisher, each.subscriber)]
        links = [tasks.create_task(c.link.run(), name=c.link.client_id) for c in clients]
        for client in clients:
            await client.subscribed.wait()
        for stream in streams:
            await stream.flows()
        rates: dict[str, list[float]] = {stream.topic: [] for stream in streams}
        for turn in range(plan.rounds):
            for stream in streams:
                rates[stream.topic].append(await stream.burst(plan.burst))
            progress(f"burst {turn + 1} of {plan.rounds}: {_latest(rates)}")
        steady = (stream.steady(plan.seconds, plan.rate_hz) for stream in streams)
        told = dict(zip(streams, await asyncio.gather(*steady), strict=True))
        for link in links:
            link.cancel()
        return {
            name: (
                Carried(median(rates[to.topic]), told[to]),
                Carried(median(rates[back.topic]), told[back]),
            )
            for name, (to, back) in both.items()
        }


def _latest(rates: dict[str, list[float]]) -> str:
    return ", ".join(f"{topic} {each[-1]:,.0f} msg/s" for topic, each in rates.items())


def _configs(hub: _Place, sites: dict[str, _Place]) -> list[AgentConfig]:
    """The hub names nobody, and dials back who can be dialled."""
    configs = [AgentConfig(HUB, hub.broker.url, {}, more={"links": {"dial_back": True}})]
    for name, site in sites.items():
        more: dict[str, dict[str, str]] = {}
        if name == WEBSOCKETS:
            more["broker"] = {"advertise": site.websockets}
        if name == ALONE:
            more["broker"], more["links"] = {"advertise": NOWHERE}, {"dial": "out"}
        there = {HUB: hub.broker.url if name == PLAIN else hub.websockets}
        configs.append(AgentConfig(SITES[name], site.broker.url, there, more=more))
    return configs
