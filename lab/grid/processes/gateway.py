"""One real gateway as a child process: configured, started, stopped, killed, paused.

It is started as users start it, ``federator gateway -c FILE``.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.grid.processes.children import Child, get_json, python, spawn, toml
from lab.grid.processes.ports import free_ports

START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """What a grid says to one gateway; the rest keeps its defaults."""

    name: str
    brokers: dict[BrokerId, str]  # URL of each broker that clients may be attached to
    federation: str = "grid"
    # Further keys by section, as in the file: ``{"failover": {"hold_ms": 1000}}``.
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    listeners: tuple[dict[str, Any], ...] = ()  # beside the plain one
    broker: dict[str, Any] = field(default_factory=dict)  # more keys of every broker, like ca_file
    # Filters whose topics belong to a broker.
    upstreams: dict[BrokerId, tuple[str, ...]] = field(default_factory=dict)

    def toml(self, *, port: int, http_port: int) -> str:
        """The configuration file."""
        lines = toml({"federation": self.federation, "name": self.name})
        sections: dict[str, dict[str, Any]] = {
            "http": {"port": http_port},
            "log": {"format": "json"},
            "failover": {"recall": "always"},  # brokers of experiments have no ACL
        }
        for section, keys in self.more.items():
            sections[section] = {**sections.get(section, {}), **keys}
        for section, keys in sections.items():
            lines += toml(keys, header=f"[{section}]")
        for listener in ({"port": port}, *self.listeners):
            lines += toml(listener, header="[[listeners]]")
        for broker, url in sorted(self.brokers.items()):
            lines += toml({"id": broker, "url": url, **self.broker}, header="[[brokers]]")
        for broker, filters in self.upstreams.items():
            lines += toml({"broker": broker, "filters": filters}, header="[[upstreams]]")
        return "\n".join(lines) + "\n"


class GatewayProcess(Child):
    """A ``federator gateway``; its configuration and log are in ``folder``."""

    host: Final = "127.0.0.1"

    def __init__(self, folder: Path, config: GatewayConfig) -> None:
        super().__init__("gateway", folder / "gateway.log")
        self.config = config
        self.port, self.http_port = free_ports(2)
        self._folder = folder

    async def start(self) -> None:
        """Start the gateway and return once it listens and a broker answers it.

        Raises:
            LinkError: It ended or was not ready in time; the text ends with its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "gateway.toml"
        text = self.config.toml(port=self.port, http_port=self.http_port)
        path.write_text(text, encoding="utf-8")
        command = python("federator", "gateway", "-c", str(path))
        self._process = spawn(command, log=self.log_path)
        try:
            await self._until_it_listens()
        except BaseException:
            self.kill9()
            raise

    async def _until_it_listens(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await self._ready():
            if not self.running or time.monotonic() > deadline:
                raise LinkError(f"gateway {self.config.name} did not start:\n{self.log_tail()}")
            await asyncio.sleep(POLL_S)

    async def _ready(self) -> bool:
        try:
            return bool((await self.status())["ready"])
        except LinkError:
            return False

    async def status(self) -> dict[str, Any]:
        """What ``/status`` says.

        Raises:
            LinkError: It does not answer.
        """
        found: dict[str, Any] = await get_json(self.http_port, "/status", who=self._who)
        return found

    async def clients(self) -> dict[str, dict[str, Any]]:
        """The gateway's clients by id: broker, state, moves.

        Raises:
            LinkError: It does not answer.
        """
        rows = await get_json(self.http_port, "/routes", who=self._who)
        return {row["client"]: row for row in rows}

    @property
    def _who(self) -> str:
        return f"gateway {self.config.name}"
