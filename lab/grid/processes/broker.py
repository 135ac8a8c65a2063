"""One real Mosquitto as a child process: started, stopped, killed, paused, restarted.

The configuration asks for what federator asks of every broker, the subscription log topics, and
leaves all limits at Mosquitto's defaults, so that what is measured here is what users have. The
broker must not change its user: the kernel would clear the parent-death signal of ``children``.

Source: docs/ARCHITECTURE.md, "The grid"; Mosquitto's mosquitto.conf(5).
"""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from lab.grid.processes.children import Child, Spawn, Streams, spawn
from lab.grid.processes.ports import free_ports, refusal

START_ATTEMPTS: Final = 3
"""Only for a port chosen here: another program may take it before the broker does."""

LOG_TOPIC_LINES: Final = (
    *("log_dest stderr", "log_dest topic", "log_type error", "log_type warning"),
    *("log_type notice", "log_type information", "log_type subscribe", "log_type unsubscribe"),
)
"""Naming any destination or type replaces the defaults, so the defaults are repeated."""

# MQTT 3.1.1 CONNECT, clean session, keep-alive 10 s, client id "federator-probe" (ours: no
# discovery counts it). Every CONNACK, a refusal too, shows a broker that serves.
_PROBE: Final = b"\x10\x1b\x00\x04MQTT\x04\x02\x00\x0a\x00\x0ffederator-probe"
_CONNACK: Final = 0x20

MOSQUITTO: Final = "FEDERATOR_MOSQUITTO"
"""Environment variable: the path of the broker's program, instead of the one that is installed."""


def find_mosquitto() -> str:
    """Path of the broker's program; Debian keeps it outside many users' PATH.

    Raises ``LinkError``: Mosquitto is not installed, or not where ``FEDERATOR_MOSQUITTO`` says.
    """
    if chosen := os.environ.get(MOSQUITTO):
        if Path(chosen).is_absolute() and shutil.which(chosen):
            return chosen
        raise LinkError(f"{MOSQUITTO}={chosen}: wanted the whole path of a mosquitto program")
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin"
    found = shutil.which("mosquitto", path=path)
    if found is None:
        raise LinkError(f"no mosquitto in {path}: install it, or run script/setup")
    return found


class BrokerProcess(Child):
    """A Mosquitto on ``host:port``.

    Args:
        folder: Made when missing; holds the configuration, the log and the persistence file.
        port: ``None`` chooses a free one at the first start and keeps it.
        extra_config: Further lines of mosquitto.conf, after ours.
        persistence: Keep sessions and retained messages over a clean stop.
        log_topics: The broker tells who subscribes, which federator asks of it.
        host: Its address: a grid is an experiment, not a service.
        socket: A Unix socket on which it listens, too, and is probed.
        spawn: Starts it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        extra_config: tuple[str, ...] = (),
        allow_anonymous: bool = True,
        persistence: bool = False,
        log_topics: bool = True,
        host: str = "127.0.0.1",
        socket: Path | None = None,
        spawn: Spawn = spawn,
    ) -> None:
        super().__init__("the broker", folder / "mosquitto.log")
        self.folder = folder
        self.host = host
        self.socket = socket
        self._spawn = spawn
        self._port = port
        self._extra_config = extra_config
        self._allow_anonymous = allow_anonymous
        self._persistence = persistence
        self._log_topics = log_topics

    @property
    def port(self) -> int:
        """The listener's TCP port, the same over restarts."""
        if self._port is None:
            raise LinkError("the broker has no port before its first start")
        return self._port

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"

    async def start(self) -> None:
        """Start it and return once it answers a CONNECT. Raises as ``Child.start``."""
        attempts = START_ATTEMPTS if self._port is None else 1
        for left in reversed(range(attempts)):
            try:
                await super().start()
            except LinkError:
                if not left:
                    raise
                self._port = None
            else:
                return

    def configuration(self) -> str:
        lines = [f"listener {self.port} {self.host}"]
        if self.socket is not None:
            lines.append(f"listener 0 {self.socket}")
        lines.append(f"allow_anonymous {str(self._allow_anonymous).lower()}")
        if os.geteuid() == 0:
            lines.append("user root")  # a change of user would clear the parent-death signal
        if self._log_topics:
            lines.extend(LOG_TOPIC_LINES)
        if self._persistence:
            lines.append("persistence true")
            lines.append(f"persistence_location {self.folder.resolve()}/")
        lines.extend(self._extra_config)
        return "\n".join(lines) + "\n"

    def _launch(self) -> None:
        if self._port is None:
            (self._port,) = free_ports(1)
        # Another program that serves the port would answer our probe in the broker's name.
        if self.socket is None and (error := refusal(self.port, lingering=True)):
            raise LinkError(f"port {self.port} of {self.host}: {error.strerror}") from error
        self._what = f"mosquitto on port {self.port}"
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "mosquitto.conf"
        conf.write_text(self.configuration(), encoding="utf-8")
        self._process = self._spawn([find_mosquitto(), "-c", str(conf)], log=self.log_path)

    async def _connect(self) -> Streams:
        if self.socket is not None:
            return await asyncio.open_unix_connection(self.socket)
        return await asyncio.open_connection(self.host, self.port)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await self._connect()
                try:
                    writer.write(_PROBE)
                    first = await reader.read(1)
                    writer.write(b"\xe0\x00")  # DISCONNECT
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return first == bytes([_CONNACK]) and self.running
