"""A link with a length: a TCP relay that hands on every chunk a fixed time after it came.

Each direction is a queue of (due time, bytes). A chunk leaves ``delay_s`` after the kernel received
it (its own time stamp, so our waking up costs nothing), never earlier: the sum of link delays
stays a physical floor. Ends of stream and resets travel through the same queue: a broker that
dies is noticed one delay later, as on a real link.

A queue is bounded in bytes; a full one stops reading from its source, so pressure reaches the
sender through TCP. A link can be cut (resets, refuses), silenced (keeps its connections, hands
nothing on, in one direction or both: a lost cable), made narrow (so many bytes a second each way,
shared by its connections chunk by chunk), and healed. Connections can be half-open: what one side
sends never arrives, as when a box in between forgot them. Such a connection has lost bytes, so
healing cannot bring it back; it stays until its ends give it up.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Collection
from enum import Enum, StrEnum

BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Under way in one direction of one connection: 5 ms at 800 MB/s."""

STUCK_S = 0.5
"""Later than a busy machine is late."""


class Way(StrEnum):
    """A direction of a link, seen from the side that dials."""

    FORTH = "forth"
    BACK = "back"


LATE_S_MAX = 0.1
"""What a narrow link makes up for, at most, when a busy machine woke it up late."""

NARROW_QUEUE_S = 0.25
"""How long what fills the queue of a narrow link takes to leave: a router's, not a warehouse."""

_READ_BYTES = 65_536
_NARROW_READ_BYTES = 4_096  # the turns in which connections share a narrow link
_SEGMENT_BYTES = 1_448
"""As on Ethernet. Of loopback's 64 KiB a narrow link's window holds not one: its sender would wait
for the probe of a closed window, 200 ms each time, and the link carry a third of what it should."""

_BACKLOG = 128
_ANCILLARY_BYTES = 64
_SO_TIMESTAMPNS = 35  # Linux; the socket module has no name for it
_AGE_S_MAX = 0.05  # beyond this the wall clock was set, or we slept: count from now

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""``SO_LINGER`` on, with no time to linger: closing sends a reset."""


class _Ending(Enum):
    """How one end's loss reaches the other. MQTT has no use for a half-closed connection."""

    ORDERLY = "orderly"
    RESET = "reset"


class Relay:
    """One dialling direction of a link: listens on loopback, dials ``target``.

    Counters only grow, over both directions: ``connections``, those of them ``broken`` on order,
    ``chunks``, ``bytes_relayed`` (``bytes_by_way`` of each direction) and ``bytes_swallowed``.
    """

    def __init__(
        self, target: tuple[str, int], *, delay_s: float, buffer_bytes_max: int = BUFFER_BYTES_MAX
    ) -> None:
        self.target = target
        self.delay_s = delay_s
        self.buffer_bytes_max = buffer_bytes_max
        self.is_cut = False
        self.silent: Collection[Way] = ()
        self.bytes_per_s: float | None = None
        self.queue_s = NARROW_QUEUE_S
        self.free_at = dict.fromkeys(Way, 0.0)  # when a narrow link has sent all it was given
        self.connections = self.broken = 0
        self.chunks = self.bytes_swallowed = 0
        self.bytes_by_way = dict.fromkeys(Way, 0)
        self.open: set[_Connection] = set()
        self.port = 0  # since ``listen``
        self._listener: socket.socket | None = None

    @property
    def buffered_bytes(self) -> int:
        return sum(c.forth.waiting_bytes + c.back.waiting_bytes for c in self.open)

    @property
    def bytes_relayed(self) -> int:
        return sum(self.bytes_by_way.values())

    @property
    def stuck(self) -> int:
        """Directions of connections in which something should have left ``STUCK_S`` ago."""
        return sum(queue.stuck for c in self.open for queue in (c.forth, c.back))

    def listen(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Accept connections from now on; returns the port. Call inside the loop."""
        self._listener = socket.create_server((host, port), backlog=_BACKLOG)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        self.port = int(self._listener.getsockname()[1])
        return self.port

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return  # it left before we looked, or descriptors ran out: it may try again
        if self.is_cut:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            accepted.close()
            return
        self.connections += 1
        connection = _Connection(self)
        self.open.add(connection)
        connection.dialling = asyncio.get_running_loop().create_task(
            connection.dial(accepted), name="relay dial"
        )

    def cut(self) -> None:
        self.is_cut = True
        self.reset()

    def reset(self) -> None:
        for connection in tuple(self.open):
            self.broken += 1
            connection.abort()

    def silence(self, ways: Collection[Way] = tuple(Way)) -> None:
        """Keep connections, hand nothing on in ``ways``; what waits is kept until healed."""
        self.silent = ways
        for connection in tuple(self.open):
            connection.flow()

    def swallow(self, ways: Collection[Way] = tuple(Way)) -> None:
        for connection in tuple(self.open):
            for queue in (connection.forth, connection.back):
                if queue.way in ways:
                    queue.swallow()

    def heal(self) -> None:
        """Carry traffic again, as much as before it was cut or silenced."""
        self.is_cut, self.silent = False, ()
        for connection in tuple(self.open):
            connection.flow()

    def narrow(self, bytes_per_s: float | None, queue_s: float = NARROW_QUEUE_S) -> None:
        """Carry so much a second in each direction from now on; ``None``: all that comes.

        ``queue_s``: how long what fills the queue takes to leave.
        """
        self.bytes_per_s, self.queue_s = bytes_per_s, queue_s
        self.free_at = dict.fromkeys(Way, 0.0)
        for connection in tuple(self.open):
            connection.near.bound_receiving()
            connection.far.bound_receiving()
            connection.forth.forget_turn()
            connection.back.forget_turn()
            connection.flow()

    def delay(self, delay_ms: float) -> None:
        self.delay_s = delay_ms / 1000

    @property
    def read_bytes(self) -> int:
        return _READ_BYTES if self.bytes_per_s is None else _NARROW_READ_BYTES

    @property
    def room_bytes(self) -> int:
        """What one direction of one connection may hold before it stops reading."""
        if self.bytes_per_s is None:
            return self.buffer_bytes_max
        queue = max(_NARROW_READ_BYTES, int(self.bytes_per_s * self.queue_s))
        return min(self.buffer_bytes_max, queue)

    def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        self.reset()


class _Connection:
    """One accepted connection, the one dialled for it, and the two queues between them."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.near = _End(self)
        self.far = _End(self)
        self.forth = _Queue(self, Way.FORTH, source=self.near, sink=self.far)
        self.back = _Queue(self, Way.BACK, source=self.far, sink=self.near)
        self.near.outgoing, self.far.outgoing = self.forth, self.back
        self.near.incoming, self.far.incoming = self.back, self.forth
        self.dialling: asyncio.Task[None] | None = None

    async def dial(self, accepted: socket.socket) -> None:
        self.near.attach(accepted)
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.relay.target)
        except OSError:
            sock.close()
            self.abort()
            return
        except asyncio.CancelledError:
            sock.close()
            raise
        self.far.attach(sock)
        self.flow()

    def flow(self) -> None:
        self.forth.flow()
        self.back.flow()

    def abort(self) -> None:
        self.relay.open.discard(self)
        if self.dialling is not None:
            self.dialling.cancel()
        self.forth.close()
        self.back.close()
        self.near.close(_Ending.RESET)
        self.far.close(_Ending.RESET)

    def lost_one_end(self, end: "_End", how: "_Ending") -> None:
        """An end is gone for good: end the other one delay later, after what is under way."""
        other = self.far if end is self.near else self.near
        end.incoming.close()
        if other.connected:
            end.outgoing.put(how)
        else:
            self.abort()


class _End:
    """One socket: bytes read go to ``outgoing``, bytes to write come from ``incoming``."""

    outgoing: "_Queue"
    incoming: "_Queue"

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._unsent = memoryview(b"")

    @property
    def connected(self) -> bool:
        return self._sock is not None

    @property
    def writable(self) -> bool:
        return self._sock is not None and not self._unsent

    def attach(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._sock = sock
        if self._connection.relay.bytes_per_s is not None:
            self.bound_receiving()
        self._loop.add_reader(sock, self._read)

    def bound_receiving(self) -> None:
        """Have the kernel take no more than we would: a narrow link has no megabytes behind it."""
        if self._sock is not None:
            room_bytes = self._connection.relay.room_bytes
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, room_bytes)

    def _read(self) -> None:
        assert self._sock is not None
        try:
            chunk, ancillary, _, _ = self._sock.recvmsg(
                self._connection.relay.read_bytes, _ANCILLARY_BYTES
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lose(_Ending.RESET)
            return
        if chunk:
            # Mosquitto's sending waits for it (Nagle); agents do likewise.
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            self.outgoing.put(chunk, age_s=_age_s(ancillary))
        else:
            self._lose(_Ending.ORDERLY)

    def write(self, chunk: bytes | memoryview) -> None:
        """Send ``chunk`` now, or as soon as the kernel takes it. Only when ``writable``."""
        assert self._sock is not None
        try:
            sent = self._sock.send(chunk)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._lose(_Ending.RESET)
            return
        if sent < len(chunk):
            self._unsent = memoryview(chunk)[sent:]
            self._loop.add_writer(self._sock, self._write_rest)

    def _write_rest(self) -> None:
        assert self._sock is not None
        rest, self._unsent = self._unsent, memoryview(b"")
        self._loop.remove_writer(self._sock)
        self.write(rest)
        if self.writable:
            self.incoming.flow()

    def pause_reading(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock)

    def resume_reading(self) -> None:
        if self._sock is not None:
            self._loop.add_reader(self._sock, self._read)

    def _lose(self, how: "_Ending") -> None:
        self.close(how)
        self._connection.lost_one_end(self, how)

    def close(self, how: "_Ending") -> None:
        if self._sock is None:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        if how is _Ending.RESET:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._sock.close()
        self._sock = None


def _age_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """How long ago the kernel received what was just read; 0 when it does not say."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("ll", data)
            age_s: float = time.time() - seconds - nanoseconds / 1e9
            return age_s if 0.0 <= age_s <= _AGE_S_MAX else 0.0
    return 0.0


class _Queue:
    """Bytes on their way in one direction, each chunk with the instant it is due."""

    def __init__(self, connection: _Connection, way: Way, *, source: _End, sink: _End) -> None:
        self._connection = connection
        self._relay = connection.relay
        self.way = way
        self._source = source
        self._sink = sink
        self._waiting: deque[tuple[float, bytes | _Ending]] = deque()
        self.waiting_bytes = 0
        self._paused = False
        self._timer: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._swallows = False
        self._turn: float | None = None  # when the first chunk will have left a narrow link

    def forget_turn(self) -> None:
        self._turn = None
        self._read_on()

    def put(self, entry: bytes | _Ending, *, age_s: float = 0.0) -> None:
        if self._closed:
            return
        if self._swallows:
            self._relay.bytes_swallowed += len(entry) if isinstance(entry, bytes) else 0
            return
        due = self._loop.time() - age_s + self._relay.delay_s
        self._waiting.append((due, entry))
        if isinstance(entry, bytes):
            self.waiting_bytes += len(entry)
            if self.waiting_bytes >= self._relay.room_bytes and not self._paused:
                self._paused = True
                self._source.pause_reading()
        if len(self._waiting) == 1:
            self.flow()

    @property
    def stuck(self) -> bool:
        return bool(self._waiting) and self._waiting[0][0] < self._loop.time() - STUCK_S

    def flow(self) -> None:
        self._stop_timer()
        if self.way in self._relay.silent:
            return
        now = self._loop.time()
        while self._waiting and self._sink.writable:
            due, entry = self._waiting[0]
            if due <= now:
                due = self._leaves_at(entry, due, now)
            if due > now:
                self._timer = self._loop.call_at(due, self.flow)
                break
            self._waiting.popleft()
            self._turn = None
            if isinstance(entry, _Ending):
                self._sink.close(entry)
                self._connection.lost_one_end(self._sink, entry)
                break
            self._hand_on(entry)

    def _leaves_at(self, entry: bytes | _Ending, due: float, now: float) -> float:
        """When the last byte of the first chunk leaves: connections take turns on a narrow link.

        A chunk that waited for its turn began on time, also where we were woken up late.
        """
        relay = self._relay
        if relay.bytes_per_s is None or isinstance(entry, _Ending):
            return now
        if self._turn is None:
            begins = max(due, relay.free_at[self.way], now - LATE_S_MAX)
            self._turn = relay.free_at[self.way] = begins + len(entry) / relay.bytes_per_s
        return self._turn

    def _hand_on(self, chunk: bytes) -> None:
        self._relay.chunks += 1
        self._relay.bytes_by_way[self.way] += len(chunk)
        self.waiting_bytes -= len(chunk)
        self._sink.write(chunk)
        self._read_on()

    def _read_on(self) -> None:
        if self._paused and self.waiting_bytes <= self._relay.room_bytes // 2:
            self._paused = False
            self._source.resume_reading()

    def swallow(self) -> None:
        self._swallows = True
        self._relay.bytes_swallowed += self.waiting_bytes
        self._waiting.clear()
        self.waiting_bytes = 0
        self._read_on()

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
