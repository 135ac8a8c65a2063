"""A WebSocket below a protocol: whole, in turns, bounded both ways, and told how it ended."""

import asyncio
import contextlib

import mqtt5
import pytest

from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.ways.websocket import FRAMES_PER_TURN_MAX
from tests.real.client import Client
from tests.real.polling import until
from tests.runtime.ways.by_hand import BINARY, CLOSE, PING, PONG, TEXT, accept, frame, unframe
from tests.tcp_server import serving


class Server:
    """Lets clients in, sends the last what a test writes, and keeps the frames that come.

    Attributes:
        reads: Whether what the client says is read.
    """

    def __init__(self, *, early=b"", subprotocol="mqtt"):
        self.early, self.subprotocol = early, subprotocol
        self.frames = []
        self.writer, self._stack = None, contextlib.AsyncExitStack()
        self.reads = asyncio.Event()
        self.reads.set()
        self.ended = asyncio.Event()

    async def __aenter__(self):
        port = await self._stack.enter_async_context(serving(self._serve))
        self.endpoint = Endpoint("127.0.0.1", port, websocket="/mqtt")
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()

    async def _serve(self, reader, writer):
        self.writer = writer
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(accept(request, subprotocol=self.subprotocol) + self.early)
            rest = b""
            while True:
                await self.reads.wait()
                data = await reader.read(65_536)
                if not data:
                    break
                found, rest = unframe(rest + data)
                self.frames += found
        finally:
            self.ended.set()

    @property
    def said(self):
        return b"".join(payload for opcode, _, payload in self.frames if opcode == BINARY)

    def answers(self, opcode):
        return [payload for each, _, payload in self.frames if each == opcode]


class Taker(asyncio.BufferedProtocol):
    """Takes what comes into a small buffer of its own."""

    def __init__(self):
        self.came, self.lost, self.full = bytearray(), [], []
        self.at_once = 0
        self._buffer = bytearray(1_000)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes):
        self.came += self._buffer[:nbytes]

    def connection_lost(self, exc):
        self.lost.append(exc)

    def pause_writing(self):
        self.full.append(True)

    def resume_writing(self):
        self.full.append(False)


@contextlib.asynccontextmanager
async def connected(**options):
    """A server, and a protocol that is connected to it."""
    async with Server(**options) as server:
        taker = Taker()
        await server.endpoint.connect(lambda: taker)
        yield server, taker


async def test_bytes_go_both_ways():
    async with connected(early=frame(b"early")) as (server, taker):
        taker.transport.write(b"hello" * 30_000)
        server.writer.write(frame(b"x" * 70_000) + frame(b"end"))

        await until(lambda: len(taker.came) == 70_008, "all came")
        await until(lambda: len(server.said) == 150_000, "all arrived")

        assert taker.came == b"early" + b"x" * 70_000 + b"end"
        assert server.said == b"hello" * 30_000
        taker.transport.close()
        await until(lambda: taker.lost, "closed")
    assert taker.lost == [None]
    assert server.answers(CLOSE) == [b"\x03\xe8"]


async def test_streams_are_read_and_written_by_whoever_waits():
    async with Server() as server:
        reader, writer = await server.endpoint.streams()
        writer.write(b"question")
        await until(lambda: server.said == b"question", "asked")
        server.writer.write(frame(b"ans", fin=False) + frame(b"wer", 0))

        assert await reader.readexactly(6) == b"answer"
        server.writer.write(frame(b"", CLOSE))
        assert await reader.read() == b""
        writer.close()


async def test_who_reads_no_more_holds_the_server_back():
    async with connected() as (server, taker):
        server.writer.write(frame(b"1"))
        await until(lambda: taker.came, "the first came")

        taker.transport.pause_reading()
        assert not taker.transport.is_reading()
        for _ in range(200):
            server.writer.write(frame(b"x" * 100_000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await server.writer.drain()
        assert len(taker.came) == 1

        taker.transport.resume_reading()
        await until(lambda: len(taker.came) == 20_000_001, "the rest comes")


async def test_what_cannot_be_written_is_told_and_flows_again():
    async with connected() as (server, taker):
        taker.transport.set_write_buffer_limits(high=65_536, low=16_384)
        server.reads.clear()
        written = 0
        while not taker.full:
            taker.transport.write(b"x" * 50_000)
            written += 50_000
            await asyncio.sleep(0)
        assert taker.transport.get_write_buffer_size() > 65_536

        server.reads.set()
        await until(lambda: taker.full == [True, False], "there is room again")
        await until(lambda: len(server.said) == written, "all arrived")


async def test_pings_that_nobody_takes_the_answers_of_cost_no_memory():
    async with connected() as (server, taker):
        taker.transport.set_write_buffer_limits(high=65_536, low=16_384)
        server.writer.write(frame(b"first", PING))
        await until(lambda: server.answers(PONG) == [b"first"], "answered")
        server.reads.clear()
        while not taker.full:
            taker.transport.write(b"x" * 50_000)
            await asyncio.sleep(0)
        held = taker.transport.get_write_buffer_size()

        for number in range(20_000):
            server.writer.write(frame(b"%d" % number, PING))
        server.writer.write(frame(b"end"))
        await until(lambda: taker.came == b"end", "all pings came")

        assert taker.transport.get_write_buffer_size() <= held
        server.reads.set()
        await until(lambda: server.answers(PONG)[-1:] == [b"19999"], "the last is answered")
        assert len(server.answers(PONG)) == 2


async def test_a_read_of_very_many_frames_leaves_turns_to_others():
    async with connected() as (server, taker):
        turns = 0
        per_read = 65_536 // len(frame(b""))
        server.writer.write(frame(b"") * (4 * per_read) + frame(b"end"))

        while not taker.came:
            await asyncio.sleep(0)
            turns += 1

    assert turns >= 4 * per_read // FRAMES_PER_TURN_MAX


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (frame(b"", CLOSE), None),
        (frame(b"\x03\xf1big", CLOSE), "the broker closed the WebSocket (1009): big"),
        (frame(b"hello", TEXT), "a WebSocket frame of text, only binary ones wanted"),
        (frame(b"a", 3), "malformed WebSocket frame: Invalid opcode 0x3"),
    ],
)
async def test_how_it_ended_is_told_behind_what_came_before(said, told):
    async with connected() as (server, taker):
        server.writer.write(frame(b"before"))
        await until(lambda: taker.came == b"before", "came")
        server.writer.write(said)

        await until(lambda: taker.lost, "lost")
        await server.ended.wait()

        assert [str(each) if each else None for each in taker.lost] == [told]
        taker.transport.write(b"nothing comes of it")
        assert taker.transport.is_closing()


async def test_what_came_is_taken_before_the_end_is_told():
    async with connected() as (server, taker):
        taker.transport.pause_reading()
        server.writer.write(frame(b"x" * 5_000) + frame(b"", CLOSE))
        await asyncio.sleep(0.1)
        assert (bytes(taker.came), taker.lost) == (b"", [])

        taker.transport.resume_reading()
        await until(lambda: taker.lost, "lost")

        assert len(taker.came) == 5_000


async def test_a_server_that_hangs_up_at_once_is_told():
    async with connected(early=frame(b"", CLOSE)) as (_, taker):
        await until(lambda: taker.lost, "lost")

        assert taker.lost == [None]


async def test_who_is_no_websocket_for_mqtt_is_refused():
    async with Server(subprotocol=None) as server:
        with pytest.raises(LinkError, match="refused: the WebSocket at '/mqtt' is none for MQTT"):
            await server.endpoint.streams()
        await server.ended.wait()


async def test_who_hangs_up_or_never_answers_is_told_in_a_line_and_tried_again():
    async def hang_up(reader, _writer):
        await reader.readuntil(b"\r\n\r\n")
        while not answering and await reader.read(1_000):
            pass

    answering = ["yes"]
    async with serving(hang_up) as port:
        endpoint = Endpoint("127.0.0.1", port, websocket="/mqtt")
        link = Client(endpoint, "x", connect_timeout_s=0.3).link
        link_task = asyncio.create_task(link.run())
        await until(lambda: link.last_error, "refused")
        told = link.last_error
        answering.clear()
        await until(lambda: link.last_error != told, "nobody answers")
        attempts = link.counters.attempts
        await until(lambda: link.counters.attempts > attempts, "tried again")
        link_task.cancel()
        await asyncio.gather(link_task, return_exceptions=True)

    assert told == "hung up when asked for a WebSocket: is this its listener?"
    assert link.last_error is not None
    assert link.last_error.startswith("no answer within 0.3 s")


async def test_a_link_to_a_server_that_only_pings_is_given_up():
    """Frames are no sign of life of a broker."""
    async with Server(early=frame(mqtt5.ConnAckPacket().write())) as server:
        link = Client(server.endpoint, "x", keep_alive_s=1).link
        task = asyncio.create_task(link.run())
        await until(lambda: link.connected, "connected")
        while link.connected:
            server.writer.write(frame(b"", PING))
            await asyncio.sleep(0.05)
        told = link.last_error
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert told == "no sign of life for 0.5 s"
