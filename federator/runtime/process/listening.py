"""A socket bound to the address that the configuration names."""

import os
import socket

from federator.config.transports import split_endpoint
from federator.errors import ConfigError


def bound(listen: str, kind: socket.SocketKind, *, key: str) -> socket.socket:
    """A socket bound to ``listen``, ``host:port``, which is the value of ``key``.

    Raises:
        ConfigError: The address is not available.
    """
    host, port = split_endpoint(listen)
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    if kind is socket.SOCK_STREAM:  # connections of an earlier process do not hold it
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        mend = "choose an address of this host and a free port"
        raise place_taken(key, listen, error, mend) from error
    return made


def place_taken(key: str, value: str, error: OSError, mend: str) -> ConfigError:
    """Why the address that ``key`` names is not available, and what to do."""
    reason = (error.strerror or str(error)).lower()
    return ConfigError(f"{key} = {value!r}: {reason}: {mend}", exit_code=os.EX_UNAVAILABLE)
