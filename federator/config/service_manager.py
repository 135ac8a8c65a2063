"""What a service manager says in the environment: where it listens, and how often it must hear.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from collections.abc import Mapping
from dataclasses import dataclass

SOCKET, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """Where to tell how we are, and how often we must."""

    address: str  # a unix datagram socket, as ``socket.connect`` wants it
    watchdog_s: float | None  # silence after which we are taken for hung; None: nobody watches


def service_manager(environ: Mapping[str, str], *, pid: int) -> ServiceManager | None:
    """Who started the process ``pid``; ``None`` when it wants to hear nothing from us.

    What is there but makes no sense, a relative path or a negative time, was not meant for us.
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
