"""Where a neighbour's agent accepts us: a Unix socket if it is on this host, else TCP."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from federator.runtime.mqtt.endpoint import Endpoint


@dataclass(frozen=True)
class DirectEndpoint(Endpoint):
    """The address of a neighbour's agent.

    Attributes:
        nearby: Its Unix socket, if it is on this host and configured with the same folder.
    """

    nearby: Path | None = None

    async def connect(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Open a connection; raises as ``Endpoint.connect``."""
        if self.nearby is not None and self.nearby.is_socket():
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError):  # it no longer listens there
                return (await loop.create_unix_connection(make_protocol, str(self.nearby)))[0]
        return await super().connect(make_protocol)
