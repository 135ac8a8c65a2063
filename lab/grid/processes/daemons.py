"""Collectors, steerers and consoles as child processes, as users start them: ``-c FILE``."""

import json
from pathlib import Path

from lab.grid.processes import warm
from lab.grid.processes.children import Serving, Spawn, python
from lab.grid.processes.ports import free_ports


class Daemon(Serving):
    """A ``federator VERB`` that knows some brokers.

    Args:
        folder: Holds the configuration and the log; it is made.
        brokers: URLs.
        options: Of the command line.
        keys: TOML of the top level.
        sections: Further TOML.
        spawn: Starts it.
    """

    verb: str

    def __init__(
        self,
        folder: Path,
        *brokers: str,
        options: tuple[str, ...] = (),
        keys: str = "",
        sections: str = "",
        spawn: Spawn = warm.spawn,
    ) -> None:
        self._spawn = spawn
        super().__init__(self.verb, folder / f"{self.verb}.log")
        (self.http_port,) = free_ports(1)
        self._config, self._options = folder / f"{self.verb}.toml", options
        named = "".join(f"[[brokers]]\nurl = {json.dumps(url)}\n" for url in brokers)
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f'{keys}\n{named}{sections}[http]\nport = {self.http_port}\n[log]\nformat = "json"\n'
        )

    def _launch(self) -> None:
        command = python("federator", self.verb, "-c", str(self._config), *self._options)
        self._process = self._spawn(command, log=self.log_path)


class SteererProcess(Daemon):
    """A ``federator steer``."""

    verb = "steer"


class ConsoleProcess(Daemon):
    """A ``federator console``."""

    verb = "console"
    status_path = "/api/me"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}/"


class CollectorProcess(Daemon):
    """A ``federator collect``; it lands in ``landing``."""

    verb = "collect"

    def __init__(
        self,
        folder: Path,
        *brokers: str,
        keys: str = "",
        sections: str = "",
        spawn: Spawn = warm.spawn,
    ) -> None:
        self.landing = folder / "landing"
        keys = f"landing = {json.dumps(str(self.landing))}\n{keys}"
        super().__init__(folder, *brokers, keys=keys, sections=sections, spawn=spawn)

    async def spools(self) -> dict[tuple[int, str], int]:
        """The last landed batch by (broker, spool); what it has not met in this run is left out."""
        spools = (await self.status())["spools"]
        return {(each["broker"], each["spool"]): each["landed"] for each in spools}
