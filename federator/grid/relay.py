"""A link with a length: a TCP relay that hands on every chunk a fixed time after it came.

Each direction is a queue of (due time, bytes). A chunk leaves exactly ``delay_ms`` after it was read,
never earlier, so the sum of link delays stays a physical floor. Ends of stream and resets travel
through the same queue: a broker that dies is noticed one delay later, as on a real link.

A queue is bounded in bytes; a full one stops reading from its source, so pressure reaches the
sender through TCP. A link can be cut (resets, refuses), silenced (keeps its connections, hands
nothing on, in one direction or both: a lost cable), and healed.
"""

import asyncio
import socket
from collections import deque
from enum import Enum

BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Under way in one direction of one connection: 5 ms at 800 MB/s."""


class Way(Enum):
    """A direction of a link, seen from the side that dials."""

    FORTH = "forth"
    BACK = "back"


class LinkState(Enum):
    """What a link does with bytes."""

    UP = "up"
    CUT = "cut"
    SILENT = "silent"


class Relay:
    """One dialling direction of a link: listens on loopback, dials ``target``.

    Counters only grow: ``connections``, ``chunks`` and ``bytes_relayed`` over both directions.
    """

    def __init__(
        self, target: tuple[str, int], *, delay_s: float, buffer_bytes_max: int = BUFFER_BYTES_MAX
    ) -> None:
        self.target = target
        self.delay_s = delay_s
        self.buffer_bytes_max = buffer_bytes_max
        self.state = LinkState.UP
        self.silent: frozenset[Way] = frozenset()
        self.connections = 0
        self.chunks = 0
        self.bytes_relayed = 0
        self.open: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Accept connections; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self).near, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self.state = LinkState.CUT
        self.reset()

    def reset(self) -> None:
        """Reset every connection; new ones are welcome."""
        for connection in tuple(self.open):
            connection.abort()

    def silence(self, ways: frozenset[Way]) -> None:
        """Keep connections, hand nothing on in ``ways``; what waits is kept until healed."""
        self.state = LinkState.SILENT
        self.silent = ways
        for connection in self.open:
            connection.flow()

    def heal(self) -> None:
        """Carry traffic again."""
        self.state = LinkState.UP
        self.silent = frozenset()
        for connection in self.open:
            connection.flow()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        self.reset()


class _Connection:
    """One accepted connection, the one dialled for it, and the two queues between them."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.near = _End(self)
        self.far = _End(self)
        self.forth = _Queue(relay, Way.FORTH, source=self.near, sink=self.far)
        self.back = _Queue(relay, Way.BACK, source=self.far, sink=self.near)
        self.near.outgoing, self.far.outgoing = self.forth, self.back
        self.near.incoming, self.far.incoming = self.back, self.forth
        self._dialling: asyncio.Task[None] | None = None

    def accepted(self) -> None:
        """The near end is connected: dial the far one."""
        if self.relay.state is LinkState.CUT:
            self.abort()
            return
        self.relay.connections += 1
        self.relay.open.add(self)
        self._dialling = asyncio.get_running_loop().create_task(self._dial(), name="relay dial")

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, *self.relay.target)
        except OSError:
            self.abort()

    def flow(self) -> None:
        """Look at both queues again: the link's state or a socket changed."""
        self.forth.flow()
        self.back.flow()

    def abort(self) -> None:
        """Reset both ends now."""
        self.relay.open.discard(self)
        if self._dialling is not None:
            self._dialling.cancel()
        self.forth.close()
        self.back.close()
        self.near.abort()
        self.far.abort()

    def lost_one_end(self, end: "_End") -> None:
        """An end is gone for good: reset the other one delay later."""
        end.incoming.close()
        if end.outgoing.closed:
            self.abort()
        else:
            end.outgoing.put_end(reset=True)


class _End(asyncio.Protocol):
    """One socket: bytes read go to ``outgoing``, bytes to write come from ``incoming``."""

    outgoing: "_Queue"
    incoming: "_Queue"

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.writable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writable = True
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self._connection.near:
            self._connection.accepted()
        else:
            self._connection.flow()

    def data_received(self, data: bytes) -> None:
        self.outgoing.put(data)

    def eof_received(self) -> bool:
        self.outgoing.put_end(reset=False)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        self.transport = None
        self._connection.lost_one_end(self)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.incoming.flow()

    def abort(self) -> None:
        """Reset the connection, if any."""
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self.transport.abort()


_RESET_AT_CLOSE = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")


class _Queue:
    """Bytes on their way in one direction.

    An entry is (due, bytes), or (due, ``None``) for an orderly end, or (due, ``b""``) for a reset.
    """

    def __init__(self, relay: Relay, way: Way, *, source: _End, sink: _End) -> None:
        self._relay = relay
        self._way = way
        self._source = source
        self._sink = sink
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        self._bytes = 0
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def put(self, data: bytes) -> None:
        """Take a chunk that was just read."""
        if self.closed:
            return
        self._bytes += len(data)
        self._append(data)
        if self._bytes >= self._relay.buffer_bytes_max and not self._paused:
            self._paused = True
            if self._source.transport is not None:
                self._source.transport.pause_reading()

    def put_end(self, *, reset: bool) -> None:
        """The source sent its last byte, or is gone."""
        if not self.closed:
            self._append(b"" if reset else None)

    def _append(self, entry: bytes | None) -> None:
        due = self._loop.time() + self._relay.delay_s
        if self._waiting:
            due = max(due, self._waiting[-1][0])  # a delay made shorter does not reorder
        self._waiting.append((due, entry))
        if len(self._waiting) == 1:
            self.flow()

    def flow(self) -> None:
        """Hand on what is due and set the timer for what is not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting or not self._sink.writable or self._way in self._relay.silent:
            return
        due = self._waiting[0][0]
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self.flow)
            return
        self._hand_on()

    def _hand_on(self) -> None:
        now = self._loop.time()
        sink = self._sink.transport
        assert sink is not None
        while self._waiting and self._waiting[0][0] <= now and self._sink.writable:
            _, entry = self._waiting.popleft()
            if entry is None:
                sink.write_eof()
            elif not entry:
                self._sink.abort()
                self.close()
                return
            else:
                self._relay.chunks += 1
                self._relay.bytes_relayed += len(entry)
                self._bytes -= len(entry)
                sink.write(entry)
        if self._paused and self._bytes <= self._relay.buffer_bytes_max // 2:
            self._paused = False
            if self._source.transport is not None:
                self._source.transport.resume_reading()
        if self._waiting:
            self.flow()

    def close(self) -> None:
        """Forget everything."""
        self.closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
