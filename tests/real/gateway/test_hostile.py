"""Vandals at a running gateway: each is told why and dropped, and nobody else notices.

``HOSTILE_INPUTS`` in the environment sets how many inputs there are; a hundred thousand take some
minutes.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass

import aiomqtt
import pytest

from federator.gateway import wire
from federator.gateway.session.topic_aliases import TopicAliases
from federator.gateway.wire import V5, V311, Kind, Property, Reason
from federator.gateway.wire.kinds import TOLD
from lab.bench.processor import resident_mb
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.gateway.corpus import reframed, vandalized
from tests.gateway.wire.test_wire_hostile import LIMIT, read
from tests.real.gateway.test_wire import good_packets, wants_nothing
from tests.real.polling import until

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "600"))
AT_ONCE = 20
ANSWER_WITHIN_S = 30.0
PATIENCE_S = 120.0
GROWTH_MB_MAX = 60.0
NOTHING = b""
ALIASES_OF_MOSQUITTO = 10


@pytest.fixture
async def gateway(broker, tmp_path):
    config = GatewayConfig("g", {1: broker.url}, more={"clients": {"packet_bytes_max": LIMIT}})
    async with GatewayProcess(tmp_path / "gateway", config) as process:
        yield process


def streams(version):
    """Hostile inputs, each with an honest ping behind."""
    packets = good_packets(version)
    each = INPUTS // 2 // len(packets) + 1
    for seed, packet in enumerate(packets):
        for hostile in vandalized(packet, seed, each):
            stream = reframed(hostile)
            if not wants_nothing(stream, version):
                yield stream + wire.PINGREQ


@dataclass
class Expected:
    """What a gateway should make of an input.

    Attributes:
        pings: How many are answered.
        ends: Whether it closes.
        said: The last packet before that, one of these; none if nothing is called for.
        silent: It ends without a DISCONNECT.
    """

    pings: int
    ends: bool
    said: tuple[bytes, ...] = ()
    silent: bool = False


def expected(stream, version):
    """What the packet layer, and what a gateway is, say about ``stream``."""
    splitter = wire.Splitter(limit=LIMIT, firsts=wire.FROM_CLIENT)
    greeted = not_a_connect(stream)
    if greeted:
        splitter.speak(version)
    block, packets = splitter.feed(stream)
    pings = 0
    error = None
    aliases = TopicAliases()
    aliases.allowed = ALIASES_OF_MOSQUITTO
    for packet in packets:
        kind = packet[0] & 0xF0
        try:
            if not greeted:
                version = wire.read_connect(block, packet).version
                splitter.speak(version)
                greeted = True
            elif kind in (Kind.CONNECT, Kind.AUTH):
                raise wire.MalformedError("not now", Reason.PROTOCOL_ERROR)
            elif kind == Kind.PUBLISH:
                header = wire.read_publish(block, packet, version)
                if header[3]:
                    aliases.resolve(block, packet, header)
            else:
                read(block, packet, version)
        except wire.MalformedError as found:
            error = found
            error.told = kind in TOLD
            break
        if kind == Kind.DISCONNECT:
            return Expected(pings, True)
        pings += kind == Kind.PINGREQ
    error = error or splitter.fault
    if error is None:
        return Expected(pings, False)
    if not greeted:
        return Expected(pings, True, (wire.refusal(error) or NOTHING,))
    if version == V311 or not error.told:
        return Expected(pings, True, silent=True)
    # If it came on the heels of CONNECT, which its broker has not answered yet, CONNACK says it.
    refused = wire.write_connack(wire.Connack(False, error.reason), V5)
    return Expected(pings, True, (wire.write_disconnect(error.reason, V5), refused))


def not_a_connect(stream):
    """Whether a good CONNECT goes before the input."""
    return stream[0] & 0xF0 != Kind.CONNECT


async def talk(gateway, stream, version):
    """What the gateway said: packets, and whether it hung up."""
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    splitter = wire.Splitter(limit=1 << 20, firsts=wire.FROM_SERVER)
    heard = []
    wanted = expected(stream, version)
    try:
        if not_a_connect(stream):
            writer.write(wire.write_connect(wire.Connect(version, "", clean=True, keep_alive=0)))
        writer.write(stream)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while wanted.ends or heard.count(wire.PINGRESP) < wanted.pings:
                data = await reader.read(65_536)
                if not data:
                    return heard, True
                block, packets = splitter.feed(data)
                heard += [block[start:end] for _, start, _, end in packets]
        return heard, False
    except TimeoutError:
        return [*heard, b"nothing more"], False
    except ConnectionError:
        return heard, True
    finally:
        writer.close()


def complaint(stream, version, heard, hung_up):
    """What is wrong with the gateway's behaviour, if anything."""
    wanted = expected(stream, version)
    last = heard[-1] if heard else NOTHING
    talks = wanted.silent and last[:1] == bytes((Kind.DISCONNECT,))
    if hung_up != wanted.ends or talks or (wanted.said and last not in wanted.said):
        return f"hung up: {hung_up}, last said: {last!r}; wanted: {wanted}"
    return None


def client(gateway, **options):
    return aiomqtt.Client(gateway.host, gateway.port, timeout=PATIENCE_S, **options)


@contextlib.asynccontextmanager
async def undisturbed(gateway):
    """A pair of clients whose every message has to arrive, at QoS 1, on one connection."""
    sent = 0
    heard = []

    async def listen(client):
        async for message in client.messages:
            number = int(message.payload)
            heard.append(number)

    async with (
        client(gateway, protocol=aiomqtt.ProtocolVersion.V5) as ear,
        client(gateway) as mouth,
    ):
        await ear.subscribe("quiet/life", qos=1)
        listening = asyncio.create_task(listen(ear))
        stop = asyncio.Event()

        async def speak():
            nonlocal sent
            while not stop.is_set():
                await mouth.publish("quiet/life", str(sent), qos=1)
                sent += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.02)

        speaking = asyncio.create_task(speak())
        try:
            yield
        except BaseException:
            listening.cancel()
            speaking.cancel()
            raise
        stop.set()
        await speaking
        await until(lambda: len(heard) >= sent, "every message arrived")
        assert heard == list(range(sent))
        listening.cancel()


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.few(1)
async def test_each_vandal_is_told_why_and_nobody_else_notices(gateway, version):
    room = asyncio.Semaphore(AT_ONCE)
    alone = asyncio.Semaphore(1)  # inputs with CONNECT have the same client ids
    complaints = []

    async def one(stream):
        async with room if not_a_connect(stream) else alone:
            heard, hung_up = await talk(gateway, stream, version)
            if (found := complaint(stream, version, heard, hung_up)) is not None:
                complaints.append((stream, found))

    async with undisturbed(gateway):
        before = resident_mb(gateway.pid)
        async with asyncio.TaskGroup() as group:
            for stream in streams(version):
                group.create_task(one(stream))
        grown = resident_mb(gateway.pid) - before

    assert complaints == []
    assert grown < GROWTH_MB_MAX
    assert gateway.running


@pytest.mark.full
async def test_one_who_asks_for_much_and_reads_nothing_does_not_fill_the_gateway(gateway):
    _, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.transport.pause_reading()
    writer.write(wire.write_connect(wire.Connect(V311, "deaf", clean=True, keep_alive=0)))
    writer.write(wire.write_request(wire.Subscribe(1, (("flood", 0),)), V311))
    before = resident_mb(gateway.pid)

    async with undisturbed(gateway), client(gateway) as flood:
        for _ in range(40):  # more bytes in all than the gateway may grow
            for _ in range(1_000):
                await flood.publish("flood", bytes(LIMIT - 100))
            await flood.publish("flood", b"done", qos=1)
        grown = resident_mb(gateway.pid) - before

    assert grown < GROWTH_MB_MAX
    writer.close()


async def test_one_whom_brokers_do_not_want_makes_nobody_think_that_they_died(gateway):
    """Nothing fits in a packet of one byte, so the broker hangs up instead of saying CONNACK, and
    so do we.
    """
    small = ((Property.MAXIMUM_PACKET_SIZE, 1),)
    hello = wire.Connect(V5, "tiny", clean=True, keep_alive=0, properties=small)

    async with undisturbed(gateway), asyncio.timeout(ANSWER_WITHIN_S):
        for _ in range(5):
            reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
            writer.write(wire.write_connect(hello))
            assert await reader.read(100) == b""
            writer.close()

    assert (await gateway.status())["counters"]["republished"] == 0


async def test_one_who_publishes_and_never_releases_is_sent_away(gateway):
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(wire.write_connect(wire.Connect(V5, "hoarder", clean=True, keep_alive=0)))
    splitter = wire.Splitter(limit=1 << 20, firsts=wire.FROM_SERVER)
    heard = []

    async def listen():
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                block, packets = splitter.feed(data)
                heard.extend(block[start:end] for _, start, _, end in packets)

    async with undisturbed(gateway), asyncio.timeout(ANSWER_WITHIN_S), asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        for packet_id in range(1, 65_536):
            if listening.done():
                break
            payload = bytes(LIMIT - 100)
            writer.write(
                wire.write_publish("hoard", payload, version=V5, qos=2, packet_id=packet_id)
            )
            try:
                await writer.drain()
            except ConnectionError:
                break

    # Its own flood may have torn the connection before it could read DISCONNECT.
    assert "receive_maximum_exceeded" in gateway.log_tail()
    assert len(heard) < 2_000
    writer.close()


async def test_many_who_never_finish_their_packet_hold_no_more_than_they_sent(gateway):
    before = resident_mb(gateway.pid)
    writers = []

    async with undisturbed(gateway):
        for _ in range(200):
            _, writer = await asyncio.open_connection(gateway.host, gateway.port)
            hello = wire.Connect(V311, "", clean=True, keep_alive=0)
            whole = wire.write_publish("t", bytes(LIMIT - 10), version=V311)
            writer.write(wire.write_connect(hello) + whole[:-1])
            writers.append(writer)
        grown = resident_mb(gateway.pid) - before

    assert grown < GROWTH_MB_MAX
    for writer in writers:
        writer.close()
