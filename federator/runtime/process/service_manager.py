"""Notifies systemd: that we serve, our state, that we are alive, that we stop.

A watchdog is a dead man's handle: the code that does the work must press it, or it watches only
itself. So the event loop that carries publications feeds it, and only while the vital connections
are attended to. An absent broker is no reason to stop: its link is attended to by retries. A loop
that hangs, or a link that is no longer retried, is.

The protocol is a datagram of ``NAME=value`` lines. The libraries for it need a compiler and
libsystemd, or are not maintained; this is less code than a wrapper of them.

Source: sd_notify(3), sd_watchdog_enabled(3); docs/systemd.md.
"""

import asyncio
import contextlib
import faulthandler
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from federator.config.service_manager import ServiceManager, service_manager
from federator.runtime.process.clocks import beat

TICK_S: Final = 1.0
FEEDS_PER_WATCHDOG: Final = 4
"""So many feeds in a watchdog interval; sd_watchdog_enabled(3) wants two."""

OVERDUE_S_MAX: Final = 5.0
"""How late a link may be attended to: a slow machine is late by a second at times."""

STATUS_CHARACTERS_MAX: Final = 500

_log = structlog.get_logger()


class LinkContext(Protocol):
    """What the watchdog needs of a connection."""

    @property
    def name(self) -> str:
        """Its name, as shown to people."""

    @property
    def overdue_s(self) -> float:
        """How late it is attended to."""


@contextlib.asynccontextmanager
async def told(
    ready: Callable[[], tuple[bool, str]], links: Callable[[], Iterable[LinkContext]]
) -> AsyncIterator[Callable[[], AbstractContextManager[None]]]:
    """Notify the service manager, if there is one: we serve from here on, and stop at the end.

    Enter the yielded context while the configuration is read again.

    Args:
        ready: Whether publications flow and otherwise why not, in one line.
        links: Links that show a hang when they are neglected.
    """
    manager = service_manager(os.environ, pid=os.getpid())
    if manager is None:
        yield contextlib.nullcontext
        return
    with contextlib.closing(ServiceNotifier(manager, ready, links)) as notifier:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(notifier.run(), name="service manager")
            try:
                yield notifier.reloading
            finally:
                telling.cancel()
                notifier.say("STOPPING=1", "STATUS=leaving the federation")


@dataclass(eq=False, repr=False)
class ServiceNotifier:
    """Notifies one service manager of our state."""

    manager: ServiceManager
    ready: Callable[[], tuple[bool, str]]
    links: Callable[[], Iterable[LinkContext]]

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self.close = self._socket.close
        self._said_ready = False
        self._status = ""
        self._stuck: tuple[str, ...] = ()
        if self.manager.watchdog_s is not None:
            faulthandler.enable()  # the watchdog's SIGABRT then leaves in the journal where we hung

    async def run(self) -> None:
        """Notify until cancelled."""
        watchdog_s = self.manager.watchdog_s
        tick_s = TICK_S if watchdog_s is None else min(TICK_S, watchdog_s / FEEDS_PER_WATCHDOG)
        while True:
            self.tick()
            await beat(tick_s)

    def tick(self) -> None:
        """One turn: feed the watchdog if all is well, and send what is new."""
        status = _one_line(self.ready())
        lines = [] if self._said_ready else ["READY=1"]
        lines += [f"STATUS={status}"] if status != self._status else []
        lines += ["WATCHDOG=1"] if self.manager.watchdog_s is not None and self._is_well() else []
        if lines and self.say(*lines):
            self._said_ready, self._status = True, status

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that we read the configuration again, and then that we serve with it."""
        # The time tells systemd which of its signals this answers.
        self.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
        try:
            yield
        finally:
            self.say("READY=1")

    def say(self, *lines: str) -> bool:
        """Send one datagram; return whether the socket took it. Never waits for the receiver."""
        try:
            self._socket.sendto("\n".join(lines).encode(), self.manager.address)
        except (OSError, ValueError):  # ValueError: an impossible address
            return False
        return True

    def _is_well(self) -> bool:
        stuck = tuple(x.name for x in self.links() if x.overdue_s > OVERDUE_S_MAX)
        if stuck and stuck != self._stuck:
            _log.error("service.stuck", connections=stuck)
        self._stuck = stuck
        return not stuck


def _one_line(ready: tuple[bool, str]) -> str:
    is_ready, why = ready
    text = why if is_ready else f"not ready: {why}"
    return "".join(c if c.isprintable() else "?" for c in text)[:STATUS_CHARACTERS_MAX]
