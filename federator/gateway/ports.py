"""The two ends of one client's way through the gateway, as asyncio protocols.

Whole reads come in and whole writes go out. An end that does not take what it is sent stops the
other end from being read: so TCP's own flow control reaches from the broker to the client, and what
waits here is bounded by the transports' marks.
"""

import asyncio
from typing import Final, Protocol, cast

WRITE_HIGH_WATER_BYTES: Final = 65_536


class End(Protocol):
    """An end that can be written to."""

    @property
    def open(self) -> bool:
        """Whether something can be written."""

    @property
    def full(self) -> bool:
        """It takes no more just now."""

    def block(self, why: str, blocked: bool) -> None:
        """Read no more while there is any reason not to."""

    def write(self, packets: list[bytes]) -> None:
        """Send ``packets``, in order."""

    def close(self) -> None:
        """End it when all is written; nothing more is heard of it."""


class Owner(Protocol):
    """Who hears of a port."""

    def on_data(self, port: "Port", data: bytes) -> None:
        """It read ``data``."""

    def on_lost(self, port: "Port", error: Exception | None) -> None:
        """It is gone, and we did not close it."""

    def on_room(self, port: "Port", room: bool) -> None:
        """It takes more, or no more just now."""


class Port(asyncio.Protocol):
    """One end.

    Args:
        owner: Who hears of it.
        on_made: Called with the port when its connection stands.
    """

    __slots__ = ("_blocked", "_closed", "_owner", "full", "transport")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._closed = False
        self._blocked: set[str] = set()
        self.full = False
        self.transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """Whether something can be written."""
        return self.transport is not None and not self._closed

    def give_to(self, owner: Owner) -> None:
        """Another hears of it from now on."""
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self.transport = transport = cast("asyncio.Transport", transport)  # uvloop's is none
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if self._closed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if not self._closed:
            self._owner.on_data(self, data)

    def eof_received(self) -> bool:
        """An end that says no more is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        closed, self._closed = self._closed, True
        self.transport = None
        if not closed:
            self._owner.on_lost(self, exc)

    def pause_writing(self) -> None:
        """It takes no more just now."""
        self.full = True
        self._owner.on_room(self, False)

    def resume_writing(self) -> None:
        """It takes more."""
        self.full = False
        self._owner.on_room(self, True)

    def block(self, why: str, blocked: bool) -> None:
        """Read no more while there is any reason not to."""
        before = bool(self._blocked)
        (self._blocked.add if blocked else self._blocked.discard)(why)
        now = bool(self._blocked)
        if before != now and self.transport is not None and not self._closed:
            (self.transport.pause_reading if now else self.transport.resume_reading)()

    def write(self, packets: list[bytes]) -> None:
        """Send ``packets``, in order."""
        transport = self.transport
        if transport is None or self._closed:
            return
        if len(packets) == 1:
            transport.write(packets[0])
        else:
            transport.write(b"".join(packets))

    def close(self) -> None:
        """End it when all is written; nothing more is heard of it."""
        self._closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Break it: a broker then publishes the client's will."""
        self._closed = True
        if self.transport is not None:
            self.transport.abort()
