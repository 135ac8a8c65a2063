"""One real gateway as a child process, started as users start it: ``federator gateway -c FILE``."""

import asyncio
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from federator.errors import LinkError
from federator.grid.broker_process import free_ports
from federator.grid.children import POLL_S, end, python, spawn
from federator.grid.http_client import get_json

START_TIMEOUT_S: Final = 20.0


class GatewayProcess:
    """A ``federator gateway``; an async context manager that starts and stops it.

    Args:
        folder: Made when missing; holds the configuration and the log.
        brokers: URL of each broker, by id.
        name: The gateway's.
        federation: Its name.
        more: Further keys by section: ``{"failover": {"settle_ms": 0}}``.
        lines: Further lines of the configuration, after ours.
    """

    def __init__(
        self,
        folder: Path,
        brokers: Mapping[int, str],
        *,
        name: str = "gate",
        federation: str = "fed",
        more: Mapping[str, Mapping[str, Any]] | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.log_path = folder / "gateway.log"
        self._config_path = folder / "gateway.toml"
        self._brokers = brokers
        self._top = [f"name = {json.dumps(name)}", f"federation = {json.dumps(federation)}"]
        self._more = {"log": {"format": "json"}, **(more or {})}
        self._lines = lines
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.http_port = 0

    @property
    def pid(self) -> int:
        """Process id of the gateway itself: ``setpriv`` turns into it."""
        if self._process is None:
            raise LinkError("the gateway was never started")
        return self._process.pid

    async def start(self) -> None:
        """Start it and return once it is ready: a broker answers.

        Raises:
            LinkError: It ended or was not ready in time; the text ends with its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port, self.http_port = free_ports(2)
        self._config_path.write_text(self._toml(), encoding="utf-8")
        command = python("federator", "gateway", "-c", str(self._config_path))
        self._process = spawn(command, log=self.log_path)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise LinkError(f"the gateway did not start: {self.log_path.read_text()[-2000:]}")
            try:
                if (await self.status())["ready"]:
                    return
            except LinkError:
                pass
            await asyncio.sleep(POLL_S)

    def _toml(self) -> str:
        lines = [*self._top, "[[listeners]]", f"port = {self.port}"]
        for id_, url in sorted(self._brokers.items()):
            lines += ["[[brokers]]", f"id = {id_}", f"url = {json.dumps(url)}"]
        for section, keys in {"http": {"port": self.http_port}, **self._more}.items():
            lines += [f"[{section}]", *(f"{k} = {json.dumps(v)}" for k, v in keys.items())]
        return "\n".join([*lines, *self._lines, ""])

    async def status(self) -> dict[str, Any]:
        """Its ``/status``.

        Raises:
            LinkError: It does not answer.
        """
        found: dict[str, Any] = await get_json(self.http_port, "/status", who="gateway")
        return found

    async def clients(self) -> dict[str, dict[str, Any]]:
        """Its clients by id: broker, state, moves.

        Raises:
            LinkError: It does not answer.
        """
        rows: list[dict[str, Any]] = await get_json(self.http_port, "/routes", who="gateway")
        return {row["client"]: row for row in rows}

    async def stop(self) -> None:
        """End it with SIGTERM, by force if it does not obey."""
        if self._process is not None:
            await end(self._process, timeout_s=10.0)

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        await self.stop()
