"""Three hosts and a router that translates the addresses of one of them; made for one run.

    site 10.78.1.2 --- router --- hub 10.78.2.2
    open 10.78.3.2 -----+

What the site sends leaves the router under the router's own address (MASQUERADE), and nobody can
send to the site what it did not ask for: the hub has no way there. The open host is routed as it
is. The router's address can change, as a line's does at night: then it knows nothing of the
connections that were. Either it lets their packets pass under the new address, and the hub answers
with a reset; or it drops them, and nobody hears anything.

Source: RFC 4787, RFC 5382 (behaviour of NATs); iptables-extensions(8), "MASQUERADE".
"""

import contextlib
import os
import shutil
import subprocess
from typing import Final

from federator.errors import LinkError

SITE, OPEN, HUB, ROUTER = "site", "open", "hub", "router"
ADDRESSES: Final = {SITE: "10.78.1.2", OPEN: "10.78.3.2", HUB: "10.78.2.2"}
_GATEWAYS: Final = {SITE: "10.78.1.1", OPEN: "10.78.3.1", HUB: "10.78.2.1"}
_OUTSIDE: Final = "to-hub"
_TOOLS: Final = ("ip", "iptables", "conntrack")


class Network:
    """The namespaces, while it is entered.

    Attributes:
        moves: How often the router's address changed.

    Raises ``LinkError``: there can be none on this machine.
    """

    def __init__(self) -> None:
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            raise LinkError(f"NAT needs root and {', '.join(missing or _TOOLS)}")
        self._names = {host: f"fed-{os.getpid()}-{host}" for host in (*ADDRESSES, ROUTER)}
        self._outside = _GATEWAYS[HUB]
        self.moves = 0

    def make(self) -> None:
        """Lay it out."""
        for name in self._names.values():
            _run("ip", "netns", "add", name)
            self._in(name, "ip", "link", "set", "lo", "up")
        for host, address in ADDRESSES.items():
            here, there = f"fed{os.getpid()}{host[0]}", f"to-{host}"
            name, router = self._names[host], self._names[ROUTER]
            made = ("ip", "link", "add", here, "netns", name, "type", "veth")
            _run(*made, "peer", "name", there, "netns", router)
            for where, device, of in ((name, here, address), (router, there, _GATEWAYS[host])):
                self._in(where, "ip", "addr", "add", f"{of}/24", "dev", device)
                self._in(where, "ip", "link", "set", device, "up")
        for host, other in ((SITE, HUB), (OPEN, HUB), (HUB, OPEN)):
            way = f"{ADDRESSES[other]}/32"
            self.run(host, "ip", "route", "add", way, "via", _GATEWAYS[host])
        self.run(ROUTER, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        site = ("-s", f"{ADDRESSES[SITE]}/32", "-o", _OUTSIDE)
        self.run(ROUTER, "iptables", "-t", "nat", "-A", "POSTROUTING", *site, "-j", "MASQUERADE")
        unknown = ("-m", "conntrack", "--ctstate", "INVALID")
        self.run(ROUTER, "iptables", "-A", "FORWARD", *unknown, "-j", "DROP")

    def move(self, *, silently: bool) -> str:
        """Give the router another address towards the hub; which one.

        Args:
            silently: What belongs to older connections is dropped; else the hub resets them.
        """
        self.moves += 1
        self.run(
            ROUTER,
            "sysctl",
            "-q",
            "-w",
            f"net.netfilter.nf_conntrack_tcp_loose={int(not silently)}",
        )
        former, self._outside = self._outside, f"10.78.2.{100 + self.moves % 100}"
        self.run(ROUTER, "ip", "addr", "del", f"{former}/24", "dev", _OUTSIDE)
        self.run(ROUTER, "ip", "addr", "add", f"{self._outside}/24", "dev", _OUTSIDE)
        self.run(HUB, "ip", "route", "replace", f"{ADDRESSES[OPEN]}/32", "via", self._outside)
        self.run(ROUTER, "conntrack", "-D", "-s", ADDRESSES[SITE], may_fail=True)
        return self._outside

    def inside(self, host: str, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self._names[host], *command]

    def run(self, host: str, *command: str, may_fail: bool = False) -> None:
        """Run a command on a host to its end. Raises ``LinkError``: it failed."""
        self._in(self._names[host], *command, may_fail=may_fail)

    def _in(self, name: str, *command: str, may_fail: bool = False) -> None:
        _run("ip", "netns", "exec", name, *command, may_fail=may_fail)

    def remove(self) -> None:
        """Take all of it down, as far as it was made."""
        for name in self._names.values():
            with contextlib.suppress(LinkError):
                _run("ip", "netns", "del", name)


def _run(*command: str, may_fail: bool = False) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip()}")
