"""Brokers and agents on the hosts: the site's dials only, the open one's is dialled back.

The hub has the ACL that ``federator doctor --acl --outbound`` prints, and the federation is signed.
Clients come over Unix sockets, which know nothing of network namespaces.
"""

import subprocess
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.grid.processes.agent import AgentProcess, KeyFolder
from lab.grid.processes.children import python
from lab.grid.running import FEDERATION
from lab.grid.stage import Stage, unlinked, widened
from lab.nat.network import ADDRESSES, HUB, OPEN, SITE, Network

BROKERS: Final = {HUB: BrokerId(2), SITE: BrokerId(1), OPEN: BrokerId(3)}
LINKED: Final = {
    BROKERS[SITE]: [BROKERS[HUB]],
    BROKERS[OPEN]: [BROKERS[HUB]],
    BROKERS[HUB]: [BROKERS[SITE], BROKERS[OPEN]],
}
MQTT_PORT: Final = 1883
PASSWORD: Final = "outbound"  # of a run that lasts minutes, on a network of its own
_USERS: Final = {SITE: "federator-1", OPEN: "federator-peer", HUB: "federator-hub"}
_AT_HOME: Final = "federator"


class NatStage(Stage):
    """Three brokers and their agents on the hosts of a network, which this makes and removes."""

    def __init__(self, folder: Path, network: Network) -> None:
        hosts = {id: network.hosts[host] for host, id in BROKERS.items()}
        super().__init__(folder.absolute(), hosts=hosts)
        self._network = network

    async def start(self) -> None:
        """Start all of it, and wait until the links are up and brokers know who subscribes."""
        self._network.make()
        keys = KeyFolder(self.folder / "keys", FEDERATION)
        passwords = self._write_passwords()
        for host, id in BROKERS.items():
            acl = self._write_acl(self._planned(host, keys))
            lines = (f"password_file {passwords}", f"acl_file {acl}", "sys_interval 1")
            queue = "max_queued_messages 100000"
            await self.broker(id, *lines, queue, port=MQTT_PORT, host=ADDRESSES[host])
        for agent in self.agents.values():
            await agent.start()
        await self.until(lambda pages: unlinked(pages, LINKED) or widened(pages))

    def _planned(self, host: str, keys: KeyFolder) -> AgentProcess:
        login = {"username": _USERS[host], "password": PASSWORD}
        more = {
            "broker": {"username": _AT_HOME, "password": PASSWORD},
            "links": {**login, "dial_back": True, "dial": "out" if host == SITE else "both"},
            "keys": keys.section(BROKERS[host]),
        }
        near = {} if host == HUB else {BROKERS[HUB]: _url(HUB)}
        return self.planned(BROKERS[host], _url(host), near, more=more, security="signed")

    def _write_passwords(self) -> Path:
        path, users = self.folder / "passwords", (*_USERS.values(), _AT_HOME)
        path.write_text("".join(f"{user}:{PASSWORD}\n" for user in users), encoding="utf-8")
        subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
        return path

    def _write_acl(self, agent: AgentProcess) -> Path:
        agent.write_config()
        asked = ("--acl", "--outbound", "1", "--peer", "federator-hub", "--peer", "federator-peer")
        command = python("federator", "doctor", *asked, "-c", str(agent.config_path))
        told = subprocess.run(command, capture_output=True, check=True)
        path = agent.folder / "acl"
        path.write_bytes(told.stdout)
        return path

    async def stop(self) -> None:
        await super().stop()
        self._network.remove()


def _url(host: str) -> str:
    return f"mqtt://{ADDRESSES[host]}:{MQTT_PORT}"
