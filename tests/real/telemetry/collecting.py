"""A collector as users start it, and what stands in spools and in landing folders."""

import contextlib
import json

from federator.errors import LinkError
from lab.grid.processes.children import Child, get_json, python
from lab.grid.processes.ports import free_ports
from lab.grid.processes.warm import spawn

START_TIMEOUT_S = 60.0


class CollectorProcess(Child):
    """``federator collect -c FILE``.

    Args:
        folder: Holds the configuration, the log and the landing folder.
        brokers: URLs.
        keys: TOML of the top level.
        sections: Further TOML.
    """

    def __init__(self, folder, *brokers, keys="", sections=""):
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

    def _launch(self):
        command = python("federator", "collect", "-c", str(self._config))
        self._process = spawn(command, log=self.log_path)

    async def _answers(self):
        try:
            return bool(await self.status())
        except LinkError:
            return False

    async def status(self):
        """Its ``/status``."""
        return await get_json(self.http_port, "/status", who="collector")

    async def spools(self):
        """The last landed batch by (broker, spool); what it has not met in this run is left out."""
        spools = (await self.status())["spools"]
        return {(each["broker"], each["spool"]): each["landed"] for each in spools}


def place(text):
    """Of a record."""
    record = json.loads(text)
    return record["broker"], record["spool"], record["batch"], record["row"]


def lines_of(paths):
    """Lines by their place; each place once."""
    found = {}
    for path in paths:
        for text in path.read_bytes().split(b"\n")[:-1]:  # a file that grows may have a torn end
            at = place(text)
            assert at not in found, (at, path)
            found[at] = text
    return found


def landed_lines(landing):
    """What stands in a landing folder; each record once, in a file that names its batch."""
    paths = sorted(landing.rglob("*.jsonl"))
    for path in paths:
        broker, spool, first, last = path.stem.split("-")
        assert path.read_bytes().endswith(b"\n")
        for text in path.read_bytes().splitlines():
            at = place(text)
            assert at[:2] == (int(broker), spool)
            assert int(first) <= at[2] <= int(last), (path, at)
    return lines_of(paths)


def gaps(lines):
    """The records of gaps and skips among ``lines``."""
    return [text for text in lines.values() if b'"kind":"collector_' in text]


def spooled_lines(state_dir):
    """What stands in the spool of an agent, in whole files and in the one that grows."""
    while True:
        # In this order: one that gets its name in between is missed, not overlooked.
        paths = [*state_dir.glob("metrics/.*.open"), *state_dir.glob("metrics/*.jsonl")]
        with contextlib.suppress(FileNotFoundError):
            return lines_of(paths)
