"""One real collector as a child process, as users start it: ``federator collect -c FILE``."""

import json
from pathlib import Path

from lab.grid.processes import warm
from lab.grid.processes.children import Serving, python
from lab.grid.processes.ports import free_ports


class CollectorProcess(Serving):
    """A ``federator collect``.

    Args:
        folder: Holds the configuration, the log and the landing folder; it is made.
        brokers: URLs.
        keys: TOML of the top level.
        sections: Further TOML.
    """

    def __init__(self, folder: Path, *brokers: str, keys: str = "", sections: str = "") -> None:
        super().__init__("collector", folder / "collector.log")
        (self.http_port,) = free_ports(1)
        self.landing = folder / "landing"
        self._config = folder / "collector.toml"
        named = "".join(f"[[brokers]]\nurl = {json.dumps(url)}\n" for url in brokers)
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f"landing = {json.dumps(str(self.landing))}\n{keys}\n{named}{sections}"
            f'[http]\nport = {self.http_port}\n[log]\nformat = "json"\n'
        )

    def _launch(self) -> None:
        command = python("federator", "collect", "-c", str(self._config))
        self._process = warm.spawn(command, log=self.log_path)

    async def spools(self) -> dict[tuple[int, str], int]:
        """The last landed batch by (broker, spool); what it has not met in this run is left out."""
        spools = (await self.status())["spools"]
        return {(each["broker"], each["spool"]): each["landed"] for each in spools}
