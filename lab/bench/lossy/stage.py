"""Namespaces, roads, brokers and agents in a line; made for one run and taken down after it.

Broker i has the address 10.77.0.i in its namespace, and reaches its neighbours' over the roads.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.grid.processes.agent import AgentConfig, KeyFolder
from lab.grid.processes.broker import LOG_TOPIC_LINES, find_mosquitto
from lab.grid.processes.children import Helper, Started, end, python, spawn, told_by

MQTT_PORT: Final = 1883
UDP_PORT: Final = 18_840
HTTP_PORT: Final = 9_883
START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.5
FEDERATION: Final = "lossy"


def address_of(broker: int) -> str:
    """Where broker and agent are."""
    return f"10.77.0.{broker}"


class Stage(Started):
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
        self.brokers = list(range(1, hops + 2))
        self._folder = folder
        self._names = {i: f"fed-{os.getpid()}-{i}" for i in self.brokers}
        roads = [(self._names[i], self._names[i + 1], f"road{i}") for i in self.brokers[:-1]]
        order = {"roads": roads, "delay_ms": delay_ms, "seed": seed}
        command = python("lab.bench.lossy.roads", json.dumps(order))
        self._roads = Helper(command, log=folder / "roads.log")
        self._keys = KeyFolder(folder / "keys", FEDERATION)
        self._brokers: list[subprocess.Popen[bytes]] = []
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    async def start(self) -> None:
        """Make the namespaces, and start roads and brokers."""
        for name in self._names.values():
            _ip("netns", "add", name)
        await self._roads.start()
        await self._roads.hear()
        for i, name in self._names.items():
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address_of(i)}/32", "dev", "lo")
            for road, neighbour in ((i - 1, i - 1), (i, i + 1)):
                if neighbour in self._names:
                    _ip("-n", name, "link", "set", f"road{road}", "up")
                    to = ("route", "add", address_of(neighbour), "dev", f"road{road}")
                    _ip("-n", name, *to, "src", address_of(i))
            self._brokers.append(self._broker(i))

    def inside(self, broker: int, command: list[str]) -> list[str]:
        """``command`` in the namespace of a broker."""
        return ["ip", "netns", "exec", self._names[broker], *command]

    def _broker(self, i: int) -> subprocess.Popen[bytes]:
        conf = self._folder / f"mosquitto-{i}.conf"
        lines = [f"listener {MQTT_PORT} 0.0.0.0", "allow_anonymous true", "user root"]
        lines += [*LOG_TOPIC_LINES, "set_tcp_nodelay true"]
        conf.write_text("\n".join([*lines, ""]), encoding="utf-8")
        command = self.inside(i, [find_mosquitto(), "-c", str(conf)])
        return spawn(command, log=self._folder / f"mosquitto-{i}.log")

    async def roads(self, **order: float) -> dict[str, dict[str, int]]:
        """Have the roads lose otherwise, if that is said; what passed so far."""
        return await self._roads.ask(order)

    async def start_agents(self, transport: str, udp: dict[str, Any]) -> None:
        """Start an agent beside each broker, with fresh state."""
        for i in self.brokers:
            folder = self._folder / f"agent-{i}-{transport}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            config = AgentConfig(
                BrokerId(i),
                _url(i),
                {BrokerId(n): _url(n) for n in (i - 1, i + 1) if n in self._names},
                federation=FEDERATION,
                more={
                    "links": {"transport": transport},
                    "udp": {"listen": f"{address_of(i)}:{UDP_PORT}", **udp},
                    "keys": self._keys.section(BrokerId(i)),
                    "http": {"port": HTTP_PORT},
                },
                security="signed",
            )
            path = folder / "federator.toml"
            path.write_text(config.toml(folder / "state"), encoding="utf-8")
            command = self.inside(i, python("federator", "run", "-c", str(path)))
            self._agents[i] = spawn(command, log=folder / "federator.log")

    async def stop_agents(self) -> None:
        """End all agents."""
        await asyncio.gather(*(end(agent) for agent in self._agents.values()))
        self._agents = {}

    async def status(self, broker: int) -> dict[str, Any] | None:
        """The status of an agent; ``None`` when it does not answer."""
        command = python("federator", "status", "--json", "--url", f"http://127.0.0.1:{HTTP_PORT}")
        return await told_by(self.inside(broker, command))

    async def until_linked(self, i: int, transport: str) -> None:
        """Wait until every link of a broker is up, and used as it should be.

        Raises ``LinkError``: they are not, in time.
        """
        wanted = sum(neighbour in self._names for neighbour in (i - 1, i + 1))
        async with asyncio.timeout(START_TIMEOUT_S):
            while not _is_linked(await self.status(i), wanted, transport):
                if self._agents[i].poll() is not None:
                    raise LinkError(f"agent {i} ended: see {self._folder}")
                await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """Take all of it down."""
        await self.stop_agents()
        for broker in self._brokers:
            await end(broker)
        await self._roads.stop()
        for name in self._names.values():
            with contextlib.suppress(LinkError):
                _ip("netns", "del", name)


def _url(broker: int) -> str:
    return f"mqtt://{address_of(broker)}:{MQTT_PORT}"


def _is_linked(status: dict[str, Any] | None, wanted: int, transport: str) -> bool:
    links = status["links"] if status is not None else []
    up = [link for link in links if link["state"] == "up"]
    if transport == "udp-fec":
        up = [link for link in up if (link.get("datagrams") or {}).get("used")]
    return len(up) == wanted


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
