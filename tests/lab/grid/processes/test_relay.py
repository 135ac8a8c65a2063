"""A link with a length: late by its delay, in order, bounded, and it can fail in each way."""

import asyncio
import contextlib
import socket
import time
from typing import Any

import pytest

from federator.errors import LinkError
from lab.grid.processes.precise_loop import precise_loop
from lab.grid.processes.relay import Relay, Way
from lab.grid.processes.relay_process import RelayProcess
from tests.real.polling import until

PATIENCE_S = 20.0


class Far:
    """The server behind a relay: keeps its connections."""

    def __init__(self):
        self.accepted: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        self.server: Any = None

    async def start(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()

    async def _accept(self, reader, writer):
        await self.accepted.put((reader, writer))

    async def connection(self):
        return await asyncio.wait_for(self.accepted.get(), PATIENCE_S)


@contextlib.asynccontextmanager
async def link(*, delay_s, **options):
    """A relay to a server, and one connection over it: its near and far (reader, writer)."""
    far = Far()
    relay = Relay(await far.start(), delay_s=delay_s, **options)
    near = await asyncio.open_connection("127.0.0.1", relay.listen())
    other = await far.connection()
    try:
        yield relay, far.connection, near, other
    finally:
        near[1].close()
        other[1].close()
        relay.close()
        far.server.close()


async def read(reader, count):
    return await asyncio.wait_for(reader.readexactly(count), PATIENCE_S)


async def read_from_new_connection(port):
    reader, _ = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.wait_for(reader.read(-1), PATIENCE_S)


async def ended(reader):
    """Read to the end; whether it was a reset."""
    try:
        await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    except ConnectionResetError:
        return "reset"
    return "closed"


@pytest.fixture(params=[Way.FORTH, Way.BACK], ids=lambda way: way.value)
def way(request):
    return request.param


def ends(way, near, far):
    """The writer and the reader of ``way``."""
    return (near[1], far[0]) if way is Way.FORTH else (far[1], near[0])


async def test_nothing_arrives_before_the_delay_has_passed(way):
    async with link(delay_s=0.05) as (_, _, near, far):
        writer, reader = ends(way, near, far)
        for _ in range(5):
            sent = time.monotonic()
            writer.write(b"x")
            await read(reader, 1)
            assert time.monotonic() - sent >= 0.05


async def test_bytes_keep_their_order_also_when_the_delay_shrinks(way):
    async with link(delay_s=1.0) as (relay, _, near, far):
        writer, reader = ends(way, near, far)
        writer.write(b"first")
        await writer.drain()
        await until(lambda: relay.buffered_bytes > 0, "the relay holds the first bytes")
        relay.delay_s = 0.0
        writer.write(b"second")

        assert await read(reader, 11) == b"firstsecond"


async def test_a_slow_reader_stops_the_sender_and_loses_nothing(way):
    limit = 256 * 1024
    async with link(delay_s=0.001, buffer_bytes_max=limit) as (relay, _, near, far):
        writer, reader = ends(way, near, far)
        reader._transport.pause_reading()
        payload = bytes(range(256)) * (128 * 1024)  # 32 MiB: more than the kernel buffers hold

        writer.write(payload)
        await stable(lambda: relay.buffered_bytes)
        assert 0 < relay.buffered_bytes < 2 * limit

        reader._transport.resume_reading()
        assert await read(reader, len(payload)) == payload


async def stable(value, *, calm_s=0.3):
    """Wait until ``value()`` stays the same for ``calm_s``."""
    last, since = value(), time.monotonic()
    end = since + PATIENCE_S
    while time.monotonic() - since < calm_s:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
        if (now := value()) != last:
            last, since = now, time.monotonic()


async def test_an_end_travels_behind_the_last_bytes(way):
    async with link(delay_s=0.05) as (_, _, near, far):
        writer, reader = ends(way, near, far)
        writer.write(b"last words")
        writer.close()

        assert await read(reader, 10) == b"last words"
        assert await ended(reader) == "closed"


async def test_a_connection_is_forgotten_when_both_ends_are_gone():
    async with link(delay_s=0.001) as (relay, _, near, far):
        near[1].close()
        await ended(far[0])
        far[1].close()

        await until(lambda: not relay.open, "the relay forgot the connection")


async def test_a_cut_resets_both_ends_and_refuses_until_healed():
    async with link(delay_s=0.001) as (relay, far_end, near, far):
        port = relay.port
        relay.cut()
        assert await ended(near[0]) == "reset"
        assert await ended(far[0]) == "reset"

        with pytest.raises(ConnectionResetError):
            await read_from_new_connection(port)

        relay.heal()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        again = await far_end()
        writer.write(b"back")
        assert await read(again[0], 4) == b"back"
        again[1].close()
        writer.close()


async def test_silence_keeps_the_connection_and_what_was_sent(way):
    async with link(delay_s=0.001) as (relay, _, near, far):
        relay.silence(frozenset({way}))
        writer, reader = ends(way, near, far)
        writer.write(b"waits")
        reverse, answer = ends(Way.BACK if way is Way.FORTH else Way.FORTH, near, far)
        reverse.write(b"passes")
        assert await read(answer, 6) == b"passes"
        await stable(lambda: relay.buffered_bytes)
        assert relay.buffered_bytes == 5
        await until(lambda: relay.stuck == 1, "it waits for longer than any link's delay")

        relay.heal()
        assert await read(reader, 5) == b"waits"
        assert relay.stuck == 0


@pytest.mark.parametrize("way", list(Way))
async def test_a_half_open_connection_loses_one_way_for_good_and_new_ones_work(way):
    async with link(delay_s=0.001) as (relay, accepted, near, far):
        relay.swallow(frozenset({way}))
        writer, reader = ends(way, near, far)
        writer.write(b"lost")
        reverse, answer = ends(Way.BACK if way is Way.FORTH else Way.FORTH, near, far)
        reverse.write(b"passes")
        assert await read(answer, 6) == b"passes"
        await until(lambda: relay.bytes_swallowed == 4, "it is read and lost")
        relay.heal()

        anew = await asyncio.open_connection("127.0.0.1", relay.port)
        there = await accepted()
        new_writer, new_reader = ends(way, anew, there)
        new_writer.write(b"new")
        assert await read(new_reader, 3) == b"new"
        reverse.close()
        writer.write(b"lost too")
        await until(lambda: len(relay.open) == 1, "the ends gave the connection up")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(-1), PATIENCE_S) == b""
        for each in (anew[1], there[1]):
            each.close()


async def test_a_narrow_link_carries_so_much_a_second_until_it_is_wide_again(way):
    payload = bytes(range(256)) * 400
    async with link(delay_s=0.001) as (relay, _, near, far):
        writer, reader = ends(way, near, far)
        relay.narrow(200_000)
        sent = time.monotonic()
        writer.write(payload)

        assert await read(reader, len(payload)) == payload
        assert time.monotonic() - sent >= len(payload) / 200_000

        relay.narrow(1_000)
        writer.write(payload)
        await read(reader, 1)
        relay.narrow(None)
        assert await read(reader, len(payload) - 1) == payload[1:]


async def test_connections_share_a_narrow_link_in_turns(way):
    flood = 4_000_000
    async with link(delay_s=0.001) as (relay, far_end, near, far):
        relay.narrow(100_000)
        other_near = await asyncio.open_connection("127.0.0.1", relay.port)
        other_far = await far_end()
        writer, _ = ends(way, near, far)
        other_writer, other_reader = ends(way, other_near, other_far)
        writer.write(bytes(flood))
        await until(lambda: relay.bytes_relayed > 20_000, "the flood has begun")
        carried = relay.bytes_relayed
        other_writer.write(b"x")

        await read(other_reader, 1)

        assert relay.bytes_relayed - carried < 200_000, "it waited behind the flood"
        other_writer.close()
        other_far[1].close()
        other_near[1].close()


async def test_a_target_that_refuses_resets_the_near_end():
    far = Far()
    target = await far.start()
    far.server.close()
    await far.server.wait_closed()
    relay = Relay(target, delay_s=0.001)
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.listen())

    assert await ended(reader) in ("reset", "closed")
    await until(lambda: not relay.open, "the relay forgot the connection")
    writer.close()
    relay.close()


async def test_relays_in_a_child_process_obey_by_name(tmp_path):
    far = Far()
    host, port = await far.start()
    relays = RelayProcess(tmp_path)
    await relays.start()
    try:
        relay_port = await relays.add("1>2", (host, port), delay_ms=30)
        reader, writer = await asyncio.open_connection("127.0.0.1", relay_port)
        other_reader, other_writer = await far.connection()
        sent = time.monotonic()
        writer.write(b"x")
        await read(other_reader, 1)
        assert time.monotonic() - sent >= 0.03
        assert (await relays.counters("1>2"))["bytes"] == 1

        await relays.order("cut", "1>2")
        assert await ended(reader) == "reset"
        assert (await relays.counters("1>2"))["broken"] == 1
        with pytest.raises(LinkError, match="2>1"):
            await relays.order("cut", "2>1")
        other_writer.close()
        writer.close()
    finally:
        await relays.stop()
        far.server.close()


def test_timers_of_the_precise_loop_are_not_rounded_to_milliseconds():
    """Of a hundred timers at odd fractions of a millisecond, the best is punctual, and none early.

    Other processes can only make timers later; a rounded one would be late by half a millisecond.
    """

    async def late_s():
        loop = asyncio.get_running_loop()
        lateness = []
        for step in range(100):
            due = loop.time() + 0.003_2 + step % 10 * 0.000_03
            fired = loop.create_future()
            loop.call_at(due, fired.set_result, None)
            await fired
            lateness.append(loop.time() - due)
        return sorted(lateness)

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        lateness = runner.run(late_s())

    assert 0 <= lateness[0] < 0.000_3


async def test_segments_are_those_of_a_real_link_so_that_a_narrow_window_holds_some():
    async with link(delay_s=0.0) as (_, _, near, far):
        for _, writer in (near, far):
            sock = writer.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= 1_460
