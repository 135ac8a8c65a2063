"""TCP ports for what a grid starts: nobody holds them, and nobody else here is given them.

Between the choice of a port and the start of the program that listens on it pass seconds, and a
broker that is killed leaves its port until it returns. Meanwhile another grid, or another worker of
the tests, could choose the same.
"""

import atexit
import errno
import random
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final

from federator.errors import LinkError

PORT_RANGE: Final = range(20_000, 32_768)
"""Below Linux's range for outgoing connections, which would otherwise race us for the port."""

RESERVED_MAX: Final = 256
"""Ports that stay reserved; each costs a file descriptor."""

_reserved: deque[socket.socket] = deque()


def free_ports(count: int, *, among: Sequence[int] = PORT_RANGE) -> list[int]:
    """``count`` distinct TCP ports nobody holds at 127.0.0.1, reserved while our process lives.

    Reserved are the last ``RESERVED_MAX``, against all who ask this function on this machine.

    Raises ``LinkError``: fewer than ``count`` ports of ``among`` are free.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(among, len(among)):
        if len(ports) == count:
            break
        if refusal(port, lingering=False) is None and _reserve(port):
            ports.append(port)
    if len(ports) < count:
        raise LinkError(f"{len(ports)} free ports in {among}, wanted {count}")
    return ports


def refusal(port: int, *, lingering: bool) -> OSError | None:
    """Why ``port`` of 127.0.0.1 cannot be listened on; ``None`` when it can.

    ``lingering``: a port counts as free on which connections of a listener that is gone still
    linger. A broker that returns takes it; a new one is better given another.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(lingering))
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError as error:
            return error
        return None


def _reserve(port: int) -> bool:
    """Bind a name that stands for ``port``: Linux's abstract names end with who bound them."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name.bind(f"\0federator.port.{port}")
    except OSError as error:
        name.close()
        return error.errno != errno.EADDRINUSE  # elsewhere there are no such names
    _reserved.append(name)
    if len(_reserved) > RESERVED_MAX:
        _reserved.popleft().close()
    return True


@atexit.register
def _release() -> None:
    for name in _reserved:
        name.close()
