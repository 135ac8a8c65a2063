"""The two connections of one client, to the gateway and to a broker, as asyncio protocols.

Data is handled in whole reads and writes. When one end is full, the other is not read: so TCP's own
flow control reaches from the broker to the client, and what waits here is bounded by the
transports' marks.
"""

import asyncio
from typing import Final, Protocol, cast

WRITE_HIGH_WATER_BYTES: Final = 65_536

READ_BYTES_MAX: Final = 65_536
"""Per connection and turn of the loop."""

PACKETS_AT_ONCE: Final = 64
TURN_S: Final = 0.005
"""An owner gets packets of one read for this long, so many at a time, before others have a turn:
the cost of a packet depends on its kind."""

_buffer: Final = memoryview(bytearray(READ_BYTES_MAX))  # shared: a read is handled before the next


class End(Protocol):
    """One end of a proxied client: a connection, or one leg of a split client."""

    @property
    def open(self) -> bool:
        """Whether it can be written to."""

    @property
    def full(self) -> bool:
        """Whether it accepts no more just now."""

    def block(self, why: str, blocked: bool) -> None:
        """Stop reading while there is any reason to."""

    def write(self, packets: list[bytes]) -> None:
        """Send ``packets``, in order."""

    def close(self) -> None:
        """Close it after all is written; its owner gets no more events."""


class PortOwner(Protocol):
    """The owner of a port, which gets its events."""

    def on_data(self, port: "Port", data: bytes) -> bool:
        """Take ``data`` that ``port`` read; return whether to call again with no data."""

    def on_lost(self, port: "Port", error: Exception | None) -> None:
        """Note that ``port`` is gone, and that we did not close it."""

    def on_room(self, port: "Port", room: bool) -> None:
        """Note whether ``port`` has room to write."""


class Port(asyncio.BufferedProtocol):
    """One TCP or TLS connection; its owner gets its events."""

    __slots__ = ("_blocked", "_closed", "_owner", "full", "transport")

    def __init__(self, owner: PortOwner) -> None:
        self._owner = owner
        self._closed = False
        self._blocked: set[str] = set()
        self.full = False
        self.transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """Whether it can be written to."""
        return self.transport is not None and not self._closed

    def give_to(self, owner: PortOwner) -> None:
        """Send events to another owner from now on."""
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of the open connection."""
        # uvloop's is not an asyncio.Transport
        self.transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if self._closed:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer to read into."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on to the owner what was read; if there may be more, others have a turn first."""
        if self._pass_on(bytes(_buffer[:nbytes])) or nbytes == READ_BYTES_MAX:
            self.block("turn", True)
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._pass_on(b""):
            asyncio.get_running_loop().call_soon(self._next_turn)
        else:
            self.block("turn", False)

    def _pass_on(self, data: bytes) -> bool:
        """Let the owner take ``data`` while the turn lasts; return whether it has more to take."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TURN_S
        while not self._closed and self._owner.on_data(self, data):
            if loop.time() > until_s:
                return True
            data = b""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report to the owner that the connection is gone, unless we closed it."""
        closed, self._closed = self._closed, True
        self.transport = None
        if not closed:
            self._owner.on_lost(self, exc)

    def pause_writing(self) -> None:
        """Report to the owner that the port is full."""
        self.full = True
        self._owner.on_room(self, False)

    def resume_writing(self) -> None:
        """Report to the owner that the port has room again."""
        self.full = False
        self._owner.on_room(self, True)

    def block(self, why: str, blocked: bool) -> None:
        """Stop reading while there is any reason to."""
        before = bool(self._blocked)
        (self._blocked.add if blocked else self._blocked.discard)(why)
        now = bool(self._blocked)
        if before != now and self.transport is not None and not self._closed:
            (self.transport.pause_reading if now else self.transport.resume_reading)()

    def write(self, packets: list[bytes]) -> None:
        """Send ``packets``, in order."""
        if self.transport is not None and not self._closed:
            self.transport.write(packets[0] if len(packets) == 1 else b"".join(packets))

    def close(self) -> None:
        """Close it after all is written; its owner gets no more events."""
        self._closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Break the connection: a broker then publishes the client's will."""
        self._closed = True
        if self.transport is not None:
            self.transport.abort()
