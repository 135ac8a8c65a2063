"""One real steerer as a child process, as users start it: ``federator steer -c FILE``."""

import json
from pathlib import Path

from lab.grid.processes import warm
from lab.grid.processes.children import Serving, python
from lab.grid.processes.ports import free_ports


class SteererProcess(Serving):
    """A ``federator steer``.

    Args:
        folder: Holds the configuration and the log; it is made.
        brokers: URLs.
        options: Of the command line.
        keys: TOML of the top level.
        sections: Further TOML.
    """

    def __init__(
        self,
        folder: Path,
        *brokers: str,
        options: tuple[str, ...] = (),
        keys: str = "",
        sections: str = "",
    ) -> None:
        super().__init__("steerer", folder / "steerer.log")
        (self.http_port,) = free_ports(1)
        self._config, self._options = folder / "steer.toml", options
        named = "".join(f"[[brokers]]\nurl = {json.dumps(url)}\n" for url in brokers)
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f'{keys}\n{named}{sections}[http]\nport = {self.http_port}\n[log]\nformat = "json"\n'
        )

    def _launch(self) -> None:
        command = python("federator", "steer", "-c", str(self._config), *self._options)
        self._process = warm.spawn(command, log=self.log_path)
