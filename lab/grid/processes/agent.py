"""One real agent as a child process: configured, started, asked, stopped, killed, paused.

It is what users start, ``federator run -c FILE``, and is asked through its HTTP listener.
"""

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.trust.key_files import KeyFile, write_key_file
from federator.protocol.types import BrokerId
from federator.runtime.trust.key_maker import KeyMaker
from lab.grid.processes import warm
from lab.grid.processes.children import (
    Connect,
    Sections,
    Serving,
    Spawn,
    connect,
    python,
    toml,
    toml_sections,
)

DAYS: Final = 1


class KeyFolder:
    """Key files in ``folder``, which is made when missing."""

    def __init__(self, folder: Path, federation: str) -> None:
        self._folder = folder
        self._maker = KeyMaker.new(federation)
        folder.mkdir(parents=True, exist_ok=True)
        self._public = self._put("federation.pub", self._maker.public)

    def section(self, broker: BrokerId) -> dict[str, Any]:
        """``[keys]`` for the agent of ``broker``, whose keys are made now."""
        agent_keys, _ = self._maker.issue(broker, days=DAYS, now_s=int(time.time()))
        agent_file = self._put(f"agent-{broker}.key", agent_keys)
        return {"agent_file": str(agent_file), "federation_files": [str(self._public)]}

    def _put(self, name: str, paper: KeyFile) -> Path:
        path = (self._folder / name).absolute()
        path.touch(mode=0o600)
        path.write_bytes(write_key_file(paper))
        return path


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What a grid says to one agent; the rest keeps its defaults."""

    id: BrokerId
    broker_url: str
    # In this order: the URL that reaches each neighbour's broker, usually a relay's.
    neighbours: dict[BrokerId, str]
    federation: str = "grid"
    costs: dict[BrokerId, int] = field(default_factory=dict)  # of links, where they are not 1
    capacity: int | None = None  # bit/s of each link, if it is told
    more: Sections = field(default_factory=dict)  # further keys
    # As in the file. An experiment on loopback asks for none unless it is about that.
    security: str = "open"
    role: str = "member"
    leaves: tuple[BrokerId, ...] = ()  # that hang on it

    def toml(self, state_dir: Path) -> str:
        top = {"federation": self.federation, "state_dir": str(state_dir)}
        lines = toml(top | {"security": self.security, "role": self.role})
        sections: Sections = {
            "broker": {"id": self.id, "url": self.broker_url},
            "links": {"dial_back": False},  # a dialled-back link would bypass the relays
            "http": {"port": 0},
            "log": {"format": "json"},
        }
        lines += toml_sections(sections, self.more)
        for other, url in self.neighbours.items():
            keys: dict[str, object] = {"id": other, "url": url}
            keys |= {"cost": self.costs[other]} if other in self.costs else {}
            keys |= {} if self.capacity is None else {"capacity": self.capacity}
            lines += toml(keys, header="[[neighbours]]")
        for leaf in self.leaves:
            lines += toml({"id": leaf}, header="[[leaves]]")
        return "\n".join(lines) + "\n"


class AgentProcess(Serving):
    """A ``federator run``; its configuration, state and log are in ``folder``.

    ``spawn`` starts it, and ``connect`` reaches its pages.
    """

    def __init__(
        self,
        folder: Path,
        config: AgentConfig,
        spawn: Spawn = warm.spawn,
        connect: Connect = connect,
    ) -> None:
        super().__init__(f"agent {config.id}", folder / "federator.log", connect)
        self.folder = folder
        self.config = config
        self._spawn = spawn
        self.config_path = folder / "federator.toml"
        self.state_dir = folder / "state"
        self._port_file = self.state_dir / "http.port"
        self._http_port: int | None = None

    @property
    def http(self) -> str:
        """Base URL of its HTTP listener, since ``start`` returned; it need not be ready."""
        return f"http://127.0.0.1:{self.http_port}"

    def write_config(self) -> None:
        """Write its configuration, in which passwords may be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path.touch(mode=0o600)
        self.config_path.write_text(self.config.toml(self.state_dir), encoding="utf-8")

    def _launch(self) -> None:
        self.write_config()
        self._port_file.unlink(missing_ok=True)
        self._http_port = None
        command = python("federator", "run", "-c", str(self.config_path))
        self._process = self._spawn(command, log=self.log_path)

    async def _answers(self) -> bool:
        text = self._port_file.read_text(encoding="utf-8") if self._port_file.exists() else ""
        if not text.strip():
            return False
        self._http_port = int(text)
        with contextlib.suppress(OSError, LinkError):
            await self.get("/healthz")
            return True
        return False

    async def ready(self) -> bool:
        with contextlib.suppress(OSError, LinkError):
            return (await self.get("/readyz"))[0] == 200
        return False

    @property
    def http_port(self) -> int:  # type: ignore[override]  # known once it has started
        if self._http_port is None:
            raise LinkError(f"{self._what} has no HTTP port before its start")
        return self._http_port
