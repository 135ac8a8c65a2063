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

import os
import shutil
from typing import Final

from federator.errors import LinkError
from lab.grid.processes.namespace import Namespace, run

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
        self.hosts = {host: Namespace(host) for host in (*ADDRESSES, ROUTER)}
        self._outside = _GATEWAYS[HUB]
        self.moves = 0

    def make(self) -> None:
        for host in self.hosts.values():
            host.make()
        router = self.hosts[ROUTER]
        for name, address in ADDRESSES.items():
            host, here, there = self.hosts[name], f"fed{os.getpid()}{name[0]}", f"to-{name}"
            made = ("ip", "link", "add", here, "netns", host.name, "type", "veth")
            run(*made, "peer", "name", there, "netns", router.name)
            for where, device, of in ((host, here, address), (router, there, _GATEWAYS[name])):
                where.run("ip", "addr", "add", f"{of}/24", "dev", device)
                where.run("ip", "link", "set", device, "up")
        for name, other in ((SITE, HUB), (OPEN, HUB), (HUB, OPEN)):
            way = f"{ADDRESSES[other]}/32"
            self.hosts[name].run("ip", "route", "add", way, "via", _GATEWAYS[name])
        router.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        site = ("-s", f"{ADDRESSES[SITE]}/32", "-o", _OUTSIDE)
        router.run("iptables", "-t", "nat", "-A", "POSTROUTING", *site, "-j", "MASQUERADE")
        unknown = ("-m", "conntrack", "--ctstate", "INVALID")
        router.run("iptables", "-A", "FORWARD", *unknown, "-j", "DROP")

    def move(self, *, silently: bool) -> str:
        """Give the router another address towards the hub; which one.

        Args:
            silently: What belongs to older connections is dropped; else the hub resets them.
        """
        self.moves += 1
        router = self.hosts[ROUTER]
        loose = f"net.netfilter.nf_conntrack_tcp_loose={int(not silently)}"
        router.run("sysctl", "-q", "-w", loose)
        former, self._outside = self._outside, f"10.78.2.{100 + self.moves % 100}"
        router.run("ip", "addr", "del", f"{former}/24", "dev", _OUTSIDE)
        router.run("ip", "addr", "add", f"{self._outside}/24", "dev", _OUTSIDE)
        self.hosts[HUB].run("ip", "route", "replace", f"{ADDRESSES[OPEN]}/32", "via", self._outside)
        router.run("conntrack", "-D", "-s", ADDRESSES[SITE], may_fail=True)
        return self._outside

    def remove(self) -> None:
        for host in self.hosts.values():
            host.remove()
