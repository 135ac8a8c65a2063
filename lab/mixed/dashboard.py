"""The live dashboard as users run it: a collector, the stream over what it lands, and its page."""

import json
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from lab.grid.processes.children import Child, Serving, Started, python, spawn
from lab.grid.processes.daemons import CollectorProcess
from lab.grid.processes.ports import free_ports
from lab.grid.running import FEDERATION

REFRESH_S: Final = "5"


class Dashboard(Started):
    """It learns from the brokers at ``urls``; landing folder, tables and logs are in ``folder``."""

    def __init__(self, folder: Path, urls: list[str]) -> None:
        tables = folder / "tables"
        collector = CollectorProcess(folder, *urls, keys=f"federation = {json.dumps(FEDERATION)}")
        collector.landing.mkdir()
        self._page = _Page(folder, tables)
        self._parts = [collector, _Stream(folder, collector.landing, tables), self._page]

    async def start(self) -> None:
        for part in self._parts:
            await part.start()

    async def stop(self) -> None:
        for part in reversed(self._parts):
            await part.stop()

    async def look(self) -> dict[str, Any]:
        """The figures and the age of what the page shows.

        Raises ``LinkError``: a part of it has ended, or does not answer.
        """
        for part in self._parts:
            if not part.running:
                raise LinkError(f"a part of the dashboard ended:\n{part.log_tail()}")
        return await self._page.status()


class _Stream(Child):
    def __init__(self, folder: Path, landing: Path, tables: Path) -> None:
        super().__init__("stream", folder / "stream.log")
        self._command = python("federator_analytics", "stream", str(landing), "--out", str(tables))

    def _launch(self) -> None:
        command = [*self._command, "--refresh-s", REFRESH_S]
        self._process = spawn(command, log=self.log_path)

    async def _answers(self) -> bool:
        return True  # its tables come when there are records


class _Page(Serving):
    status_path = "/live"

    def __init__(self, folder: Path, tables: Path) -> None:
        super().__init__("dashboard", folder / "dashboard.log")
        (self.http_port,) = free_ports(1)
        self._command = python(
            "federator_analytics", "serve", str(tables), "--port", str(self.http_port)
        )

    def _launch(self) -> None:
        self._process = spawn(self._command, log=self.log_path)
