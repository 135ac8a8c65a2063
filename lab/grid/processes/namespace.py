"""A host of its own on this machine: a network namespace, which takes root to make.

What runs there is started by ``spawn`` and asked over ``connect``; its brokers are reached by Unix
sockets, which know nothing of network namespaces.

Source: ip-netns(8); setns(2).
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from lab.grid.processes import children
from lab.grid.processes.children import Process, Streams

_CLONE_NEWNET: Final = 0x40000000


class Namespace:
    """The namespace for a ``host`` of this run, once it is made."""

    def __init__(self, host: str) -> None:
        self.name = f"fed-{os.getpid()}-{host}"

    def make(self) -> None:
        """Make it, with a loopback device. Raises ``LinkError``: the system does not let us."""
        run("ip", "netns", "add", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def remove(self) -> None:
        with contextlib.suppress(LinkError):
            run("ip", "netns", "del", self.name)

    def run(self, *command: str, may_fail: bool = False) -> None:
        """Run a command there to its end. Raises ``LinkError``: it failed."""
        run(*self._inside(*command), may_fail=may_fail)

    def spawn(self, command: list[str], *, log: Path) -> Process:
        return children.spawn(self._inside(*command), log=log)

    async def connect(self, port: int) -> Streams:
        with entered(self.name):
            made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=made)

    def _inside(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]


def run(*command: str, may_fail: bool = False, within_s: float | None = None) -> None:
    """Run a command to its end. Raises ``LinkError``: it failed, or took longer."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=within_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{' '.join(command)}: {error}") from error
    if done.returncode and not may_fail:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Be in a namespace with this thread: what is opened meanwhile stays there.

    Raises ``OSError``: we may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(namespace: int) -> None:
        if libc.setns(namespace, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    away = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        enter(away)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)
        os.close(away)
