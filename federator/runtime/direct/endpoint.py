"""Where a neighbour's agent lets us in: by a Unix socket where it is on this host, else by TCP."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from federator.runtime.mqtt.endpoint import Endpoint


@dataclass(frozen=True)
class DirectEndpoint(Endpoint):
    """The place of a neighbour's agent.

    Attributes:
        nearby: The Unix socket that it has if it is on this host, and names the folder that we do.
    """

    nearby: Path | None = None

    async def connect(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Open a connection; raises as ``Endpoint.connect``."""
        if self.nearby is not None and self.nearby.is_socket():
            with contextlib.suppress(OSError):  # nobody there any more
                await asyncio.get_running_loop().create_unix_connection(
                    make_protocol, str(self.nearby)
                )
                return
        await super().connect(make_protocol)
