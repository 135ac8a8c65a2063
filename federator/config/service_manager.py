"""Reads a service manager's variables: its socket, and how often it expects a notification.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from collections.abc import Mapping
from dataclasses import dataclass

SOCKET, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """The socket for notifications, and how often they must come."""

    address: str  # a unix datagram socket, as ``socket.connect`` wants it
    watchdog_s: float | None  # silence after which we count as hung; None: no watchdog


def service_manager(environ: Mapping[str, str], *, pid: int) -> ServiceManager | None:
    """The service manager of the process ``pid``; ``None``: it expects no notifications.

    Invalid values, such as a relative path or a negative time, are ignored: they are not for us.
    """
    address = environ.get(SOCKET, "")
    if not address.startswith(("/", "@")) or len(address) == 1:
        return None
    if address.startswith("@"):  # Linux's abstract names
        address = "\0" + address[1:]
    return ServiceManager(address, _watchdog_s(environ, pid))


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float | None:
    whose, interval = environ.get(WATCHDOG_PID), environ.get(WATCHDOG_US, "")
    if whose is not None and whose != str(pid):
        return None
    if not (interval.isascii() and interval.isdigit() and int(interval) > 0):
        return None
    return int(interval) / 1_000_000
