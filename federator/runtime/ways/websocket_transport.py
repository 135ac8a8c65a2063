"""A WebSocket as a transport: a protocol to the socket, and a transport to the MQTT protocol.

So a link, a probe and a gateway's client use MQTT over it as over TCP, with the same bounds: a
protocol that pauses reading stops the socket from being read, and write pressure is reported as by
the socket itself. One read of the socket at a time is decoded, some of its frames per turn of the
loop.

Source: RFC 6455; ``websocket`` encodes and decodes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from federator.errors import LinkError
from federator.runtime.ways.websocket import Stage, WebSocket

READ_BYTES: Final = 65_536

Reach = Callable[[Callable[[], asyncio.BaseProtocol]], Awaitable[object]]
"""Opens the connection beneath, and makes its protocol."""


async def connect(
    reach: Reach, websocket: WebSocket, make_protocol: Callable[[], asyncio.BaseProtocol]
) -> "WebSocketTransport":
    """Open a WebSocket over the connection that ``reach`` opens, for a protocol.

    Raises:
        OSError, UnicodeError, LinkError: As ``reach``.
        LinkError: No WebSocket for MQTT answers.
    """
    transport = WebSocketTransport(websocket)
    try:
        await reach(lambda: transport)
        await transport.opened
    except BaseException:
        transport.abort()
        raise
    transport.begin(make_protocol())
    return transport


class WebSocketTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection; ``connect`` makes it.

    Attributes:
        opened: Done when the broker has answered, or with the ``LinkError`` if it did not.
    """

    def __init__(self, websocket: WebSocket) -> None:
        super().__init__()
        self._websocket = websocket
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._below: asyncio.Transport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._rest = memoryview(b"")  # decoded, and not passed on yet
        self._more = False  # the last read may have more frames
        self._reading = False  # the MQTT protocol wants to read; not before there is one
        self._halted = False  # the socket is not read
        self._due = False  # a later turn goes on
        self._full = False  # the socket accepts no more
        self._closing = False
        self._error: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Be the transport of ``protocol`` from now on."""
        self._protocol, self._reading = protocol, True
        protocol.connection_made(self)
        if self._below is None:  # lost meanwhile
            self._loop.call_soon(protocol.connection_lost, self._error)
        self._go_on()

    # As the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request a WebSocket."""
        self._below = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        if self._closing:  # given up meanwhile
            self._below.abort()
            return
        try:
            self._below.write(self._websocket.request())
        except UnicodeError as error:
            self._fail(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The read buffer; earlier bytes have been taken out."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decode a read."""
        if self._closing:
            return
        try:
            self._websocket.receive(bytes(self._buffer[:nbytes]))
        except LinkError as error:
            self._fail(error)
            return
        self._more = True
        self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection is lost, and why."""
        self._closing = True
        self._below = None
        error = self._error or exc
        if not self.opened.done():
            if error is None or isinstance(error, ConnectionError):
                error = LinkError("hung up when asked for a WebSocket: is this its listener?")
            self.opened.set_exception(error)
            self.opened.exception()  # mark as retrieved: the waiter may have given up
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass on that the socket accepts no more."""
        self._full = True
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the socket accepts more, and answer a waiting ping."""
        self._full = False
        self._answer_ping()
        if self._protocol is not None:
            self._protocol.resume_writing()

    # In turns

    def _turn(self) -> None:
        """Pass on decoded bytes if wanted; read on when nothing is left."""
        self._due = False
        if self._closing:
            return
        try:
            if self._more and not self._rest:
                taken, self._more = self._websocket.take()
                self._rest = memoryview(taken)
        except LinkError as error:
            self._fail(error)
            return
        self._answer_ping()
        if self._websocket.stage is not Stage.OPENING and not self.opened.done():
            self.opened.set_result(None)
        while self._rest and self._reading and not self._closing:
            self._hand_over()
        if self._websocket.stage is Stage.CLOSED and not self._rest:
            self._leave()
        else:
            self._go_on()

    def _hand_over(self) -> None:
        protocol, rest = self._protocol, self._rest
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = cast(memoryview, protocol.get_buffer(len(rest)))
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            self._rest = rest[size:]
            protocol.buffer_updated(size)
        else:
            self._rest = memoryview(b"")
            cast(asyncio.Protocol, protocol).data_received(bytes(rest))

    def _go_on(self) -> None:
        """Read the socket, or continue in the next turn, or wait for ``resume_reading``."""
        if self._closing or self._below is None:
            return
        idle = not (self._rest or self._more or self._websocket.stage is Stage.CLOSED)
        if (idle and self._reading) or not self.opened.done():
            if self._halted:
                self._halted = False
                self._below.resume_reading()
            return
        if not self._halted:
            self._halted = True
            self._below.pause_reading()
        if self._reading and not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _answer_ping(self) -> None:
        """Answer once the socket accepts it: a broker that does not read gets only the last one."""
        if self._websocket.ping is not None and not (self._full or self._closing):
            self._send(self._websocket.pong())

    def _send(self, frame: bytes) -> None:
        """Write, unless the connection beneath has ended: a later turn reports that."""
        if self._below is not None and not self._below.is_closing():
            self._below.write(frame)

    def _leave(self) -> None:
        """The broker closed the WebSocket."""
        if self._websocket.reason is not None:
            self._error = LinkError(self._websocket.reason)
        self.close()

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self.abort()

    # As the transport of the MQTT protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        """As of the connection beneath; ``websocket`` shows that there is a layer above."""
        if name == "websocket":
            return self._websocket
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Pass on nothing until ``resume_reading``."""
        self._reading = False

    def resume_reading(self) -> None:
        """Pass on buffered bytes in the next turn, and read on."""
        self._reading = True
        self._go_on()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data`` in frames."""
        if data and not self._closing:
            for frame in self._websocket.frames(data):
                self._send(frame)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the connection beneath."""
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket did not accept, with the frames' overhead."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """A WebSocket closes both ways."""
        return False

    def close(self) -> None:
        """Send a close frame, then close."""
        if not self._closing:
            self._closing = True
            if self._below is not None:
                self._send(self._websocket.close())
                self._below.close()

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()
