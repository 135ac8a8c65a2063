"""The queues between us and a broker that does not keep up."""

import asyncio
import socket
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from federator.runtime.mqtt.transport import (
    FLUSH_BYTES,
    RECEIVE_BUFFER_BYTES,
    PacketTransport,
    SendQueue,
)
from tests.real.polling import until
from tests.tcp_server import serving

pieces = st.lists(st.tuples(st.binary(min_size=1, max_size=30), st.integers(0, 3)), max_size=30)


@given(pieces, st.integers(0, 200), st.integers(1, 64))
def test_what_was_taken_leaves_in_order_and_nothing_else_does(pieces, bytes_max, batch_bytes):
    queue = SendQueue(bytes_max)
    taken = [piece for piece in pieces if queue.push(piece[0], piece[1], refusable=True)]
    assert queue.bytes == sum(len(data) for data, _ in taken) <= bytes_max
    assert queue.publications == sum(count for _, count in taken)

    batches = deque[bytes]()
    while batch := queue.pop(batch_bytes):
        batches.append(batch)

    assert b"".join(batches) == b"".join(data for data, _ in taken)
    longest = max((len(data) for data, _ in taken), default=0)
    assert all(len(batch) <= max(batch_bytes, longest) for batch in batches)
    assert (queue.bytes, queue.publications) == (0, 0)


def test_what_cannot_be_refused_has_room_of_its_own_but_a_bounded_one():
    queue = SendQueue(10)
    assert queue.push(b"x" * 10, 1, refusable=True)

    assert not queue.push(b"y", 1, refusable=True)
    assert queue.push(b"z" * 10, 0, refusable=False)
    assert not queue.push(b"z", 0, refusable=False)
    assert queue.bytes == 20


def test_clearing_forgets_everything():
    queue = SendQueue(10)
    queue.push(b"abc", 2, refusable=True)

    queue.clear()

    assert (queue.bytes, queue.publications, queue.pop(100)) == (0, 0, b"")


class Wide:
    """Stands for the operating system: a transport that notes what is written."""

    def __init__(self):
        self.written = []
        self.whole = []
        self.reading = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def write(self, data):
        self.written.append(bytes(data[:1]))
        self.whole.append(bytes(data))

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, **limits): ...

    def get_extra_info(self, name):
        return None


async def test_what_is_urgent_and_what_is_not_take_turns():
    kernel = Wide()
    pipe = PacketTransport(len, packet_bytes_max=1, queue_bytes_max=10 * FLUSH_BYTES)
    pipe.connection_made(kernel)
    pipe.pause_writing()
    for _ in range(4):
        pipe.send(b"d" * FLUSH_BYTES)
    for _ in range(2):
        pipe.send(b"u" * FLUSH_BYTES, urgent=True)

    pipe.resume_writing()

    assert kernel.written == [b"u", b"d", b"u", b"d", b"d", b"d"]
    assert pipe.emptied == 0
    pipe.send(b"later")
    assert pipe.emptied == 1, "the kernel had taken all"


async def test_a_queue_that_the_transport_takes_at_once_is_not_empty_while_it_waits_there():
    """So a link of which never more waits than that is known to be full."""
    kernel = Wide()
    pipe = PacketTransport(len, packet_bytes_max=1, queue_bytes_max=FLUSH_BYTES)
    pipe.connection_made(kernel)
    kernel.get_write_buffer_size = lambda: 20_000
    for _ in range(5):
        pipe.pause_writing()
        assert pipe.send(b"d" * FLUSH_BYTES)
        pipe.resume_writing()
        assert pipe.send(b"d")

    assert pipe.queued_bytes == 0
    assert pipe.emptied == 0


async def test_what_one_turn_sends_leaves_with_one_call():
    kernel = Wide()
    pipe = PacketTransport(len, packet_bytes_max=1, queue_bytes_max=10)
    pipe.connection_made(kernel)

    pipe.send(b"a")
    pipe.send(b"b", urgent=True)
    assert (kernel.whole, pipe.backlog_bytes) == ([], 2)
    await until(lambda: kernel.whole, "the turn ended")
    assert (kernel.whole, pipe.backlog_bytes) == ([b"ab"], 0)

    pipe.send(b"c")
    pipe.send(b"d", at_once=True)  # what waits goes first
    assert kernel.whole == [b"ab", b"cd"]

    pipe.send(b"e")
    pipe.send(b"x" * FLUSH_BYTES)  # enough for a call of its own
    assert kernel.whole[2:] == [b"e" + b"x" * FLUSH_BYTES]
    assert pipe.bytes_out == 5 + FLUSH_BYTES


async def test_what_the_other_end_has_not_taken_is_undelivered():
    size, reads = 16_777_216, asyncio.Event()

    async def read_late(reader, _writer):
        await reads.wait()
        await reader.readexactly(size)

    async with serving(read_late, limit=65_536) as port:
        pipe = PacketTransport(len, packet_bytes_max=1, queue_bytes_max=10)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: pipe, "127.0.0.1", port)
        pipe.send(bytes(size))
        assert pipe.bytes_out == size
        assert 0 < pipe.undelivered_bytes <= size

        reads.set()

        await until(lambda: pipe.undelivered_bytes == 0, "all arrived")
        pipe.abort()


async def test_a_connection_that_costs_much_to_read_lets_others_have_their_turn():
    kernel, read = Wide(), []
    pipe = PacketTransport(
        lambda chunk: read.append(len(chunk)) or len(chunk),
        packet_bytes_max=1_000,
        queue_bytes_max=10,
        read_bytes_max=64,
    )
    pipe.connection_made(kernel)

    pipe.buffer_updated(63)  # all there was
    assert kernel.reading
    assert not pipe.behind
    assert len(pipe.get_buffer(-1)) == 64
    pipe.buffer_updated(64)  # there may be more
    assert not kernel.reading
    assert pipe.behind
    await until(lambda: kernel.reading, "it is read on")

    assert read == [63, 64]


async def test_a_packet_longer_than_a_turn_reads_comes_whole():
    read = []
    packet = b"\x30\x7f" + bytes(127)
    pipe = PacketTransport(
        lambda chunk: read.append(bytes(chunk)) or len(chunk) if len(chunk) == 129 else 0,
        packet_bytes_max=1_000,
        queue_bytes_max=10,
        read_bytes_max=64,
    )
    pipe.connection_made(Wide())

    for start in (0, 64, 128):
        room = pipe.get_buffer(-1)
        piece = packet[start : start + 64]
        room[: len(piece)] = piece
        pipe.buffer_updated(len(piece))

    assert read == [packet]


async def test_packets_that_were_left_for_later_turns_come_before_more_is_read():
    kernel, offered = Wide(), []

    def take_one(chunk):
        offered.append(bytes(chunk))
        return 3

    pipe = PacketTransport(take_one, packet_bytes_max=1_000, queue_bytes_max=10)
    pipe.connection_made(kernel)
    packets = b"\x30\x01a\x30\x01b\x30\x01c"

    pipe.get_buffer(-1)[:10] = packets + b"\x30"
    pipe.buffer_updated(10)
    assert offered == [packets + b"\x30"]
    assert not kernel.reading
    assert pipe.behind
    await until(lambda: kernel.reading, "it is read on")

    assert offered == [packets + b"\x30", packets[3:] + b"\x30", packets[6:] + b"\x30"]
    assert len(pipe.get_buffer(-1)) == RECEIVE_BUFFER_BYTES - 1


class CountedOptions:
    """Stands before a socket, and counts the options that are set."""

    def __init__(self, real):
        self.set = []
        self._real = real

    def setsockopt(self, level, option, value):
        self.set.append(option)
        self._real.setsockopt(level, option, value)

    def __getattr__(self, name):
        return getattr(self._real, name)


async def test_the_kernel_is_kept_from_late_acknowledgements_only_after_we_sent_something():
    writers = []

    async def say(reader, writer):
        writers.append(writer)
        while await reader.read(100):
            pass

    def answer(chunk):
        if bytes(chunk[-1:]) == b"?":
            pipe.send(b"!")
        read.append(len(chunk))
        return len(chunk)

    read = []
    async with serving(say) as port:
        pipe = PacketTransport(answer, packet_bytes_max=100, queue_bytes_max=100)
        await asyncio.get_running_loop().create_connection(lambda: pipe, "127.0.0.1", port)
        pipe._tcp = tcp = CountedOptions(pipe._tcp)
        await until(lambda: writers, "it is accepted")
        acked = []
        for said in (b"?", b".", b".", b"?", b"?", b".", b"."):
            before = len(read)
            writers[0].write(said)
            await until(lambda before=before: len(read) > before, "it was read")
            acked.append(len(tcp.set))
        pipe.abort()

    # What answers a read carries the acknowledgement; of two reads without one the first matters.
    assert acked == [0, 1, 1, 1, 1, 2, 2]
    assert set(tcp.set) == {socket.TCP_QUICKACK}
