"""One connection to a broker, by whatever way: whole reads in, bounded queues out.

In: the socket fills one reusable buffer; everything in it is offered at once, and the incomplete
packet at its end moves to the front. A packet that hardly fits makes the buffer grow, so that a
turn takes several like it; the buffer shrinks when no such packet came for a while.

Two habits of Mosquitto matter. It writes once per message, so a reader that keeps up wakes for two
messages at a time and spends its time, and the broker's, in system calls: in a flood we do not read
the socket for half a millisecond after each read (measured with a whole one, 64 B: 6.5 us of CPU
per message become 1.4, and 135 k msg/s become 190 k; half of it loses none of that, and fewer
messages in flight wait). And it leaves Nagle's algorithm on, so the end of a burst waits for our
delayed acknowledgement, 40 ms. The kernel delays one only after we sent something, to send it along
with more data: so we set TCP_QUICKACK after a read that we sent nothing upon, and not again until
we have sent something.

Out: bytes go straight to the transport until it says stop, then into two queues that take turns, so
urgent packets wait for one batch of data at most, and neither queue starves the other. Data beyond
the bound is refused at once: a stuck neighbour must not hold back the others. We cannot take back
what the kernel took, megabytes towards a slow broker; TCP_NOTSENT_LOWAT makes it take little more
than the network does.

Source: docs/ARCHITECTURE.md, "The link".
"""

import asyncio
import contextlib
import fcntl
import math
import os
import socket
import sys
import termios
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from federator.errors import LinkError
from federator.runtime.mqtt.wire import packet_length

if TYPE_CHECKING:
    from federator.runtime.process.fine_timer import FineTimer

RECEIVE_BUFFER_BYTES = 65_536
"""How much one turn of the loop reads, unless packets are long. Floods of short packets that keep
up do not fill it: less arrives while we rest."""

LONG_PACKETS = 8
"""After a packet longer than 1/8 of the buffer, the buffer grows to hold this many of them."""

LONG_READ_BYTES_MAX = 524_288
"""Bound of that growth. No read from a Unix socket brings half of it."""

LONG_S = 1.0
"""How long the buffer stays large after the last such packet. A connection always reads something
within half its keep-alive."""

WRITE_HIGH_WATER_BYTES = 65_536
WRITE_LOW_WATER_BYTES = 16_384
UNSENT_BYTES_MAX = 65_536
"""How much the kernel takes beyond what is in flight."""

FLUSH_BYTES = 65_536
"""Queued pieces are joined up to this size: fewer system calls, and control can still overtake."""

FLOOD_TICK_MS = 10
FLOOD_PACKETS_PER_TICK = 200
"""From 20,000 messages a second on, a short delay buys reads of many messages."""

FLOOD_READ_BYTES_MAX = 32_768
"""Longer reads are efficient already."""

FLOOD_REST_S = 0.0005

BEHIND_S = 1.0
"""For so long after a read that took its maximum, more may follow: a broker sends its queue in
pieces."""

_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only
_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)

OnRead = Callable[[memoryview], int]
"""Called with all unused bytes whenever a packet may be complete; returns how many it used. Whole
packets that it leaves are offered again in the next turn of the loop, before more is read. Raises
``LinkError`` to hang up."""


class PacketTransport(asyncio.BufferedProtocol):
    """The buffers and queues of one connection.

    Args:
        read_bytes_max: How much one turn of the loop reads.

    Attributes:
        packet_bytes_max: A longer packet ends the connection. The owner may raise it once it knows
            more about the other end.
    """

    def __init__(
        self,
        on_read: OnRead,
        *,
        packet_bytes_max: int,
        queue_bytes_max: int,
        read_bytes_max: int = RECEIVE_BUFFER_BYTES,
    ) -> None:
        self._on_read = on_read
        self._read_bytes_max = read_bytes_max
        self.packet_bytes_max = packet_bytes_max
        self._buffer = memoryview(bytearray(read_bytes_max))
        self._filled = 0
        self._needed = 0  # bytes that complete the first packet, as far as known
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._tcp: socket.socket | None = None  # the same, if it is a TCP socket
        # The same, if we may write to it directly (neither TLS nor WebSocket).
        self._direct: socket.socket | None = None
        self._paused = False
        self._resting = False
        self._rest_timer: FineTimer | None = None  # made by the first flood
        self._full_at_s = -math.inf  # when a read last took its maximum
        self._long_at_s = -math.inf  # when a packet last made the buffer grow, or would have
        self._acked_at = -1  # the value of ``bytes_out`` when TCP_QUICKACK was last set
        self._tick = 0
        self._packets_now = 0  # in this tick
        self._packets_before = 0  # in the tick before
        self._urgent = SendQueue(queue_bytes_max)
        self._data = SendQueue(queue_bytes_max)
        self._turns = (self._urgent, self._data)
        self._turn: list[bytes | bytearray] = []  # sent in this turn of the loop; not written yet
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.reason: BaseException | None = None
        self.bytes_in = 0
        self.bytes_out = 0
        self.emptied = 0  # how often the queues ran empty

    # Receiving

    @property
    def behind(self) -> bool:
        """Whether there was lately more to read than ``read_bytes_max``."""
        return self._loop.time() - self._full_at_s < BEHIND_S

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer; never empty."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Offer the bytes read, and keep those not used."""
        self.bytes_in += nbytes
        filled = self._filled + nbytes
        if self._closing or filled < self._needed:
            self._filled = 0 if self._closing else filled
            return
        out = self.bytes_out
        self._offer(filled)
        if out == self.bytes_out != self._acked_at and self._tcp is not None and not self._closing:
            self._acked_at = out
            if _QUICKACK is not None:  # else the broker's Nagle may wait 40 ms for us
                self._tcp.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def _offer(self, filled: int) -> None:
        full = filled >= len(self._buffer)
        try:
            used = self._on_read(self._buffer[:filled])
            self._keep(used, filled)
        except LinkError as error:
            self.abort(error)
        except Exception as error:  # a bug of ours: `MqttLink.run` raises it
            self.abort(error)
        if full or self._holds_packet:
            self._full_at_s = self._loop.time()
            self._rest()  # else uvloop reads on, up to 32 times, in this turn

    @property
    def _holds_packet(self) -> bool:
        """Whether a whole packet was left for a later turn."""
        return 0 < self._needed <= self._filled

    def _keep(self, used: int, filled: int) -> None:
        """Move the unused bytes to the front of a buffer in which their packet fits."""
        left = filled - used
        if not left and len(self._buffer) == self._read_bytes_max:
            self._filled = self._needed = 0
            return
        rest = self._buffer[used:filled]
        self._needed = packet_length(rest) or 0
        if self._needed > self.packet_bytes_max:
            raise LinkError(
                f"a packet of {self._needed} bytes, at most {self.packet_bytes_max} wanted"
            )
        size = max(left, self._needed, self._wanted_bytes())
        if size != len(self._buffer):
            buffer = memoryview(bytearray(size))
            buffer[:left] = rest
            self._buffer = buffer
        elif left and used:
            self._buffer[:left] = bytes(rest)
        self._filled = left

    def _wanted_bytes(self) -> int:
        """How large the buffer should be, apart from a packet that is longer."""
        usual, several = self._read_bytes_max, min(LONG_PACKETS * self._needed, LONG_READ_BYTES_MAX)
        if several > usual:
            self._long_at_s = self._loop.time()
        elif len(self._buffer) <= usual or self._loop.time() - self._long_at_s >= LONG_S:
            return usual
        return max(usual, several, min(len(self._buffer), LONG_READ_BYTES_MAX))

    def rest_in_flood(self, packets: int, read_bytes: int) -> None:
        """Stop reading for a moment if many reads each brought too few ``packets``.

        Not for messages if the broker waits for their acknowledgements.
        """
        tick = int(self._loop.time() * 1000) // FLOOD_TICK_MS
        if tick != self._tick:
            self._packets_before = self._packets_now if tick == self._tick + 1 else 0
            self._tick, self._packets_now = tick, 0
        self._packets_now += packets
        flood = (
            max(self._packets_before, self._packets_now) >= FLOOD_PACKETS_PER_TICK
            and read_bytes <= FLOOD_READ_BYTES_MAX
        )
        if flood:
            self._rest(FLOOD_REST_S)

    def _rest(self, rest_s: float = 0) -> None:
        """Stop reading for ``rest_s``; other tasks get at least one turn of the loop."""
        if not self._resting and self._transport is not None and not self._closing:
            self._resting = True
            self._transport.pause_reading()
            if not rest_s:
                self._loop.call_later(0, self._read_again)
                return
            if self._rest_timer is None:
                from federator.runtime.process.fine_timer import FineTimer  # noqa: PLC0415 - ctypes

                self._rest_timer = FineTimer(self._read_again)
            self._rest_timer.set(rest_s)

    def _read_again(self) -> None:
        self._resting = False
        if self._holds_packet and not self._closing:
            self._offer(self._filled)
        if not self._resting and self._transport is not None and not self._closing:
            self._transport.resume_reading()

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty without one, or without a connection."""
        if self._tcp is None:
            return ""
        with contextlib.suppress(OSError):
            return str(self._tcp.getpeername()[0])
        return ""

    # Sending

    def send(
        self,
        data: bytes | bytearray,
        *,
        urgent: bool = False,
        refusable: bool = True,
        at_once: bool = False,
        publications: int = 0,
    ) -> bool:
        """Send ``data`` now or queue it; ``False`` when there was no room.

        Args:
            data: Must not change until it has left.
            urgent: Take turns with the queued data instead of waiting behind it.
            refusable: May be refused; otherwise the caller bounds it.
            at_once: Do not wait for the end of the event loop's turn, when all its small packets
                are sent with one call. Costs a call, saves the rest of the turn.
            publications: How many are lost when ``data`` is.
        """
        transport = self._transport
        if transport is None or self._closing:
            return False
        if not self._paused and not self._data.bytes and not self._urgent.bytes:
            self.bytes_out += len(data)
            first_of_turn = not self._turn
            self.emptied += first_of_turn and not transport.get_write_buffer_size()
            self._turn.append(data)
            if at_once or len(data) >= FLUSH_BYTES:
                self._write_turn()
            elif first_of_turn:
                self._loop.call_soon(self._write_turn)
            return True
        queue = self._urgent if urgent else self._data
        if queue.push(data, publications, refusable=refusable):
            return True
        if not refusable:  # such as acknowledgements: without them the session is broken
            self.abort(LinkError("the broker sends but does not read"))
        return False

    def _write_turn(self) -> None:
        """Write what this turn of the loop sent so far, with one call if the kernel can."""
        transport, direct, turn = self._transport, self._direct, self._turn
        if not turn or transport is None or self._closing:
            return
        data = turn[0] if len(turn) == 1 else b"".join(turn)
        turn.clear()
        sent = 0
        if direct is not None and not transport.get_write_buffer_size():
            try:
                sent = direct.send(data, socket.MSG_DONTWAIT)
            except OSError:  # full or broken: the transport will report it
                sent = 0
        if sent < len(data):
            transport.write(memoryview(data)[sent:] if sent else data)

    @property
    def queued_bytes(self) -> int:
        """Bytes in both queues, without those the transport holds."""
        return self._urgent.bytes + self._data.bytes

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait for the end of the turn, or that the kernel did not take yet."""
        held = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return held + sum(map(len, self._turn))

    @property
    def undelivered_bytes(self) -> int:
        """Bytes that left our queues and did not arrive yet, as far as the kernel reports."""
        sent = bytearray(4)
        if self._tcp is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._tcp, termios.TIOCOUTQ, sent)
        return self.backlog_bytes + int.from_bytes(sent, sys.byteorder)

    @property
    def urgent_bytes(self) -> int:
        return self._urgent.bytes

    def discard(self) -> int:
        """Empty both queues; return how many publications were lost."""
        lost = self._urgent.publications + self._data.publications
        self._urgent.clear()
        self._data.clear()
        return lost

    def pause_writing(self) -> None:
        """Queue from now on: the transport holds more than its high-water mark."""
        self._paused = True

    def resume_writing(self) -> None:
        """Hand over queued data: the transport has room again."""
        self._paused = False
        while not self._paused and self._transport is not None:
            first, second = self._turns
            batch = first.pop(FLUSH_BYTES) or second.pop(FLUSH_BYTES)
            if not batch:
                return
            self._turns = (second, first)
            self.bytes_out += len(batch)
            self._transport.write(batch)

    # Life cycle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and set its socket's options."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._transport.set_write_buffer_limits(
            high=WRITE_HIGH_WATER_BYTES, low=WRITE_LOW_WATER_BYTES
        )
        borrowed = transport.get_extra_info("socket")
        if borrowed is not None:
            # A socket of our own: the event loop's makes a new one for each option it sets.
            self._socket = socket.socket(fileno=os.dup(borrowed.fileno()))
            if self._socket.family in (socket.AF_INET, socket.AF_INET6):
                self._tcp = self._socket
                self._tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if _NOTSENT_LOWAT is not None:
                    self._tcp.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_BYTES_MAX)
            if not any(map(transport.get_extra_info, ("sslcontext", "websocket"))):
                self._direct = self._socket
        if self._closing:  # given up meanwhile
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the reason, and complete ``lost``."""
        self._closing = True
        self._transport = None
        self._turn.clear()
        self._return_socket()
        self._buffer = memoryview(b"")  # free it: references to this object may stay long
        if self._rest_timer is not None:
            self._rest_timer.close()
        if self.reason is None:
            self.reason = exc
        if not self.lost.done():
            self.lost.set_result(None)

    def abort(self, reason: BaseException | None = None) -> None:
        """Close at once; unsent data is lost."""
        self._closing = True
        if self.reason is None:
            self.reason = reason
        self._return_socket()
        if self._transport is not None:
            self._transport.abort()

    def _return_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = self._tcp = self._direct = None

    def close(self, last: bytes) -> None:
        """Send ``last`` after what the transport holds, then close."""
        self._write_turn()
        if self._transport is not None and not self._closing:
            self._transport.write(last)
            self._closing = True
            self._transport.close()


class SendQueue:
    """Byte strings that wait for the transport, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[bytes | bytearray, int]] = deque()
        self.bytes = 0
        self.publications = 0

    def push(self, data: bytes | bytearray, publications: int, *, refusable: bool) -> bool:
        """Append ``data``; ``False`` when there is no room.

        Data that must not be refused has twice the room.
        """
        room = self._bytes_max if refusable else 2 * self._bytes_max
        if self.bytes + len(data) > room:
            return False
        self._waiting.append((data, publications))
        self.bytes += len(data)
        self.publications += publications
        return True

    def pop(self, bytes_max: int) -> bytes:
        """The oldest pieces, joined up to ``bytes_max`` (at least one); empty when none wait."""
        batch: list[bytes | bytearray] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0][0]) <= bytes_max):
            data, publications = self._waiting.popleft()
            self.publications -= publications
            size += len(data)
            batch.append(data)
        self.bytes -= size
        return b"".join(batch)

    def clear(self) -> None:
        self._waiting.clear()
        self.bytes = 0
        self.publications = 0
