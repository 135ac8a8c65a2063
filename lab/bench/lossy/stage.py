"""Namespaces, roads, brokers and agents in a line; made for one run and taken down after it.

Broker i has the address 10.77.0.i in its namespace, and reaches its neighbours' over the roads.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.grid.processes.agent import KeyFolder
from lab.grid.processes.children import Helper, python
from lab.grid.processes.namespace import Namespace
from lab.grid.running import FEDERATION
from lab.grid.stage import Stage, unlinked

MQTT_PORT: Final = 1883
UDP_PORT: Final = 18_840


class Line(Stage):
    """A line of brokers.

    Args:
        folder: For configurations, state and logs; exists.
        hops: Roads between the first broker and the last.
        delay_ms: Of every road, each way.
        seed: Of what the roads lose.

    Raises ``LinkError``: there can be none on this machine.
    """

    def __init__(self, folder: Path, *, hops: int, delay_ms: float, seed: int) -> None:
        if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or shutil.which("ip") is None:
            raise LinkError("lossy roads need root, /dev/net/tun and iproute2")
        hosts = {BrokerId(i): Namespace(str(i)) for i in range(1, hops + 2)}
        super().__init__(folder.absolute(), broker_options=("set_tcp_nodelay true",), hosts=hosts)
        names = [host.name for host in hosts.values()]
        roads = [(names[i], names[i + 1], f"road{i + 1}") for i in range(hops)]
        order = {"roads": roads, "delay_ms": delay_ms, "seed": seed}
        command = python("lab.bench.lossy.roads", json.dumps(order))
        self._roads = Helper(command, log=folder / "roads.log")
        self._keys = KeyFolder(self.folder / "keys", FEDERATION)

    async def start(self) -> None:
        for host in self._hosts.values():
            host.make()
        await self._roads.start()
        await self._roads.hear()
        for i, host in self._hosts.items():
            host.run("ip", "addr", "add", f"{_address_of(i)}/32", "dev", "lo")
            for road, neighbour in ((i - 1, i - 1), (i, i + 1)):
                if neighbour in self._hosts:
                    host.run("ip", "link", "set", f"road{road}", "up")
                    to = ("route", "add", _address_of(neighbour), "dev", f"road{road}")
                    host.run("ip", *to, "src", _address_of(i))
            await self.broker(i, port=MQTT_PORT, host=_address_of(i))

    async def roads(self, **order: float) -> dict[str, dict[str, int]]:
        """Have the roads lose otherwise, if that is said; what passed so far."""
        return await self._roads.ask(order)

    async def start_agents(self, transport: str, udp: dict[str, Any]) -> None:
        """Start an agent beside each broker, with fresh state, and wait until links are used.

        Raises ``LinkError``: they are not, in time.
        """
        near = {i: [BrokerId(n) for n in (i - 1, i + 1) if n in self.brokers] for i in self.brokers}
        for i, broker in self.brokers.items():
            shutil.rmtree(self.folder / f"agent-{i}", ignore_errors=True)
            more = {
                "links": {"transport": transport},
                "udp": {"listen": f"{_address_of(i)}:{UDP_PORT}", **udp},
                "keys": self._keys.section(i),
            }
            urls = {n: self.brokers[n].url for n in near[i]}
            self.planned(i, broker.url, urls, more=more, security="signed")
        await asyncio.gather(*(agent.start() for agent in self.agents.values()))

        def used(link: dict[str, Any]) -> bool:
            return transport != "udp-fec" or bool((link.get("datagrams") or {}).get("used"))

        await self.until(lambda pages: unlinked(pages, near, used))

    async def stop_agents(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self.agents.values()))
        self.agents = {}

    async def stop(self) -> None:
        await super().stop()
        await self._roads.stop()
        for host in self._hosts.values():
            host.remove()


def _address_of(broker: int) -> str:
    return f"10.77.0.{broker}"
