"""One real console as a child process, as users start it: ``federator console -c FILE``."""

import json
from pathlib import Path

from lab.grid.processes import warm
from lab.grid.processes.children import Serving, python
from lab.grid.processes.ports import free_ports


class ConsoleProcess(Serving):
    """A ``federator console``.

    Args:
        folder: Holds the configuration and the log; it is made.
        broker: The URL of the broker to begin with.
        keys: TOML of the top level.
        sections: Further TOML.
    """

    status_path = "/api/me"

    def __init__(self, folder: Path, broker: str, *, keys: str = "", sections: str = "") -> None:
        super().__init__("console", folder / "console.log")
        (self.http_port,) = free_ports(1)
        self._config = folder / "console.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f"{keys}\n[[brokers]]\nurl = {json.dumps(broker)}\n{sections}"
            f'[http]\nport = {self.http_port}\n[log]\nformat = "json"\n'
        )

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"http://127.0.0.1:{self.http_port}/"

    def _launch(self) -> None:
        command = python("federator", "console", "-c", str(self._config))
        self._process = warm.spawn(command, log=self.log_path)
