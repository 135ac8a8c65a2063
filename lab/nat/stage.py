"""Brokers and agents on the hosts: the site's dials only, the open one's is dialled back.

The hub has the ACL that ``federator doctor --acl --outbound`` prints, and the federation is signed.
Clients come over Unix sockets, which know nothing of network namespaces.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.grid.processes.agent import AgentConfig, KeyFolder
from lab.grid.processes.broker import LOG_TOPIC_LINES, find_mosquitto
from lab.grid.processes.children import Process, Started, end, python, spawn, told_by
from lab.nat.network import ADDRESSES, HUB, OPEN, SITE, Network

FEDERATION: Final = "nat"
BROKERS: Final = {SITE: BrokerId(1), HUB: BrokerId(2), OPEN: BrokerId(3)}
MQTT_PORT: Final = 1883
HTTP_PORT: Final = 9_883
START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.5
PASSWORD: Final = "outbound"  # of a run that lasts minutes, on a network of its own
_USERS: Final = {SITE: "federator-1", OPEN: "federator-peer", HUB: "federator-hub"}
_AT_HOME: Final = "federator"


class Stage(Started):
    """Three brokers and their agents.

    Args:
        folder: For configurations, state and logs; exists.
        network: Where they are; made, and removed, by this.
    """

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        self._folder = folder.absolute()
        self._keys = KeyFolder(folder / "keys", FEDERATION)
        self._processes: dict[str, Process] = {}
        self._agents: dict[str, Process] = {}

    def socket(self, host: str) -> str:
        """Where a host's clients connect to its broker."""
        return str(self._folder / f"{host}.sock")

    async def start(self) -> None:
        """Start all of it, and wait until the links are up."""
        self.network.make()
        passwords = self._write_passwords()
        for host in BROKERS:
            self._write_config(host)
            self._start_broker(host, passwords)
        for host in (HUB, SITE, OPEN):
            await self.start_agent(host)
        await self.until_linked()

    def _write_passwords(self) -> Path:
        path, users = self._folder / "passwords", (*_USERS.values(), _AT_HOME)
        path.write_text("".join(f"{user}:{PASSWORD}\n" for user in users), encoding="utf-8")
        subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
        return path

    def _write_config(self, host: str) -> None:
        id_ = BROKERS[host]
        login = {"username": _USERS[host], "password": PASSWORD}
        links = {**login, "dial_back": True, "dial": "out" if host == SITE else "both"}
        config = AgentConfig(
            id_,
            _url(host),
            {} if host == HUB else {BROKERS[HUB]: _url(HUB)},
            federation=FEDERATION,
            more={
                "broker": {"username": _AT_HOME, "password": PASSWORD},
                "links": links,
                "keys": self._keys.section(id_),
                "http": {"port": HTTP_PORT},
            },
            security="signed",
        )
        path = self._config(host)
        path.touch(mode=0o600)
        path.write_text(config.toml(self._folder / f"{host}-state"), encoding="utf-8")

    def _config(self, host: str) -> Path:
        return self._folder / f"{host}.toml"

    def _start_broker(self, host: str, passwords: Path) -> None:
        acl = self._folder / f"{host}.acl"
        asked = ("doctor", "--acl", "--outbound", "1", "--peer", "federator-hub")
        command = python("federator", *asked, "--peer", "federator-peer", "-c")
        told = subprocess.run([*command, str(self._config(host))], capture_output=True, check=True)
        acl.write_bytes(told.stdout)
        lines = [f"listener {MQTT_PORT} {ADDRESSES[host]}", f"listener 0 {self.socket(host)}"]
        lines += ["user root", "allow_anonymous true", f"password_file {passwords}"]
        lines += [
            f"acl_file {acl}",
            *LOG_TOPIC_LINES,
            "sys_interval 1",
            "max_queued_messages 100000",
        ]
        conf = self._folder / f"{host}.conf"
        conf.write_text("\n".join([*lines, ""]), encoding="utf-8")
        command = self.network.inside(host, [find_mosquitto(), "-c", str(conf)])
        self._processes[host] = spawn(command, log=self._folder / f"{host}-mosquitto.log")

    async def start_agent(self, host: str) -> None:
        """Start an agent, or start it again."""
        command = python("federator", "run", "-c", str(self._config(host)))
        log = self._folder / f"{host}-federator.log"
        self._agents[host] = spawn(self.network.inside(host, command), log=log)

    async def kill_agent(self, host: str) -> None:
        """End an agent by force."""
        self._agents[host].kill()
        self._agents[host].wait()

    async def status(self, host: str) -> dict[str, Any] | None:
        """The status of an agent; ``None`` when it does not answer."""
        command = python("federator", "status", "--json", "--url", f"http://127.0.0.1:{HTTP_PORT}")
        return await told_by(self.network.inside(host, command))

    async def until_linked(self) -> None:
        """Wait until both links are up and all brokers know who subscribes.

        Raises ``LinkError``: they are not, in time.
        """
        wanted = {SITE: [2], OPEN: [2], HUB: [1, 3]}
        seen: dict[str, Any] = {}
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                for host, others in wanted.items():
                    while not _is_linked(seen.setdefault(host, None), others):
                        if self._agents[host].poll() is not None:
                            raise LinkError(f"the agent of {host} ended: see {self._folder}")
                        await asyncio.sleep(POLL_S)
                        seen[host] = await self.status(host)
        except TimeoutError:
            told = {host: status and status["links"] for host, status in seen.items()}
            raise LinkError(f"not linked within {START_TIMEOUT_S:g} s: {told}") from None

    async def stop(self) -> None:
        """Take all of it down."""
        await asyncio.gather(*(end(agent) for agent in self._agents.values()))
        await asyncio.gather(*(end(broker) for broker in self._processes.values()))
        self.network.remove()


def _url(host: str) -> str:
    return f"mqtt://{ADDRESSES[host]}:{MQTT_PORT}"


def _is_linked(status: dict[str, Any] | None, wanted: list[int]) -> bool:
    if status is None or not status["ready"] or status["discovery"]["widened"]:
        return False
    return sorted(k["neighbour"] for k in status["links"] if k["state"] == "up") == wanted
