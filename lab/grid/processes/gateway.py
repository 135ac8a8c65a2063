"""One real gateway as a child process: configured, started, stopped, killed, paused.

It is what users start, ``federator gateway -c FILE``.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.grid.processes import warm
from lab.grid.processes.children import (
    Sections,
    Serving,
    Spawn,
    python,
    toml,
    toml_sections,
)
from lab.grid.processes.ports import free_ports


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """What a grid says to one gateway; the rest keeps its defaults."""

    name: str
    brokers: dict[BrokerId, str]  # URL of each broker that clients may be attached to
    federation: str = "grid"
    more: Sections = field(default_factory=dict)  # further keys
    listeners: tuple[dict[str, Any], ...] = ()  # beside the plain one
    broker: dict[str, Any] = field(default_factory=dict)  # more keys of every broker, like ca_file
    # Filters whose topics belong to a broker.
    upstreams: dict[BrokerId, tuple[str, ...]] = field(default_factory=dict)

    def toml(self, *, port: int, http_port: int) -> str:
        lines = toml({"federation": self.federation, "name": self.name})
        sections: Sections = {
            "http": {"port": http_port},
            "log": {"format": "json"},
            "failover": {"recall": "always"},  # brokers of experiments have no ACL
        }
        lines += toml_sections(sections, self.more)
        for listener in ({"port": port}, *self.listeners):
            lines += toml(listener, header="[[listeners]]")
        for broker, url in sorted(self.brokers.items()):
            lines += toml({"id": broker, "url": url, **self.broker}, header="[[brokers]]")
        for broker, filters in self.upstreams.items():
            lines += toml({"broker": broker, "filters": filters}, header="[[upstreams]]")
        return "\n".join(lines) + "\n"


class GatewayProcess(Serving):
    """A ``federator gateway``; its configuration and log are in ``folder``."""

    host: Final = "127.0.0.1"

    def __init__(self, folder: Path, config: GatewayConfig, spawn: Spawn = warm.spawn) -> None:
        super().__init__(f"gateway {config.name}", folder / "gateway.log")
        self.config = config
        self._spawn = spawn
        self.port, self.http_port = free_ports(2)
        self._folder = folder

    def _launch(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "gateway.toml"
        text = self.config.toml(port=self.port, http_port=self.http_port)
        path.write_text(text, encoding="utf-8")
        command = python("federator", "gateway", "-c", str(path))
        self._process = self._spawn(command, log=self.log_path)

    async def _answers(self) -> bool:
        try:
            return bool((await self.status())["ready"])
        except LinkError:
            return False

    async def clients(self) -> dict[str, dict[str, Any]]:
        """The gateway's clients by id: broker, state, moves.

        Raises ``LinkError``: it does not answer.
        """
        rows = await self.page("/routes")
        return {row["client"]: row for row in rows}
