"""Vandals at a running gateway: each is told why and dropped, and nobody else notices.

``HOSTILE_INPUTS`` in the environment sets how many inputs there are; a hundred thousand take some
minutes.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass

import pytest

from federator.gateway import wire
from federator.gateway.session.topic_aliases import TopicAliases
from federator.gateway.wire import V5, V311, Kind, Property, Reason
from federator.gateway.wire.kinds import TOLD
from lab.bench.processor import resident_mb
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.gateway.corpus import reframed, vandalized
from tests.gateway.wire.test_wire_hostile import LIMIT, read
from tests.real.flow import Publisher, Subscriber, running
from tests.real.gateway.clients import GatewayClient
from tests.real.gateway.raw import ANSWER_WITHIN_S, Raw, connect
from tests.real.gateway.test_wire import good_packets, wants_nothing
from tests.real.polling import until

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "600"))
AT_ONCE = 20
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
    raw = Raw(version)
    wanted = expected(stream, version)
    hello = wire.write_connect(connect(version, "", keep_alive=0)) if not_a_connect(stream) else b""
    try:
        await raw.dial(gateway.port, hello + stream)
        await raw.until(lambda: not wanted.ends and raw.heard.count(wire.PINGRESP) >= wanted.pings)
    except TimeoutError:
        raw.heard.append(b"nothing more")
    finally:
        await raw.close()
    return raw.heard, raw.closed


def complaint(stream, version, heard, hung_up):
    """What is wrong with the gateway's behaviour, if anything."""
    wanted = expected(stream, version)
    last = heard[-1] if heard else NOTHING
    talks = wanted.silent and last[:1] == bytes((Kind.DISCONNECT,))
    if hung_up != wanted.ends or talks or (wanted.said and last not in wanted.said):
        return f"hung up: {hung_up}, last said: {last!r}; wanted: {wanted}"
    return None


@contextlib.asynccontextmanager
async def undisturbed(gateway):
    """A pair of clients whose every message has to arrive once, at QoS 1, on one connection."""
    ear = Subscriber(gateway.port, "quiet/life", client_id="ear", qos=1)
    mouth = Publisher(gateway.port, "quiet/life", client_id="mouth", qos=1, rate_hz=50)
    ends = []
    for each in (ear, mouth):
        each.on_down = lambda link, reason: ends.append(reason)
    async with running(ear):
        await until(lambda: ear.link.subscribed, "subscribed")
        async with running(mouth):
            yield
            await mouth.rest()
            await until(lambda: len(ear.order) >= mouth.sent, "every message arrived")
            assert ear.order == list(range(mouth.sent))
            assert ends == []


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

    hostile = list(streams(version))  # they take long to make, and nobody is pinged meanwhile
    async with undisturbed(gateway):
        before = resident_mb(gateway.pid)
        async with asyncio.TaskGroup() as group:
            for stream in hostile:
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

    flood = GatewayClient(gateway.port, "flood")
    async with undisturbed(gateway), flood:
        for _ in range(40):  # more bytes in all than the gateway may grow
            for _ in range(1_000):
                await flood.client.publish("flood", bytes(LIMIT - 100))
            await flood.client.publish("flood", b"done", qos=1)
        grown = resident_mb(gateway.pid) - before

    assert grown < GROWTH_MB_MAX
    writer.close()


async def test_one_whom_brokers_do_not_want_makes_nobody_think_that_they_died(gateway):
    """Nothing fits in a packet of one byte, so the broker hangs up instead of saying CONNACK, and
    so do we.
    """
    small = ((Property.MAXIMUM_PACKET_SIZE, 1),)

    async with undisturbed(gateway):
        for _ in range(5):
            raw = Raw()
            assert await raw.open(gateway.port, connect(V5, "tiny", properties=small)) is None
            await raw.close()

    assert (await gateway.status())["counters"]["republished"] == 0


async def test_one_who_publishes_and_never_releases_is_sent_away(gateway):
    raw = Raw()
    await raw.open(gateway.port, connect(V5, "hoarder", keep_alive=0))

    async with undisturbed(gateway), asyncio.timeout(ANSWER_WITHIN_S), asyncio.TaskGroup() as group:
        listening = group.create_task(raw.until(lambda: False))
        for packet_id in range(1, 65_536):
            if listening.done():
                break
            payload = bytes(LIMIT - 100)
            raw.writer.write(
                wire.write_publish("hoard", payload, version=V5, qos=2, packet_id=packet_id)
            )
            try:
                await raw.writer.drain()
            except ConnectionError:
                break

    # Its own flood may have torn the connection before it could read DISCONNECT.
    assert "receive_maximum_exceeded" in gateway.log_tail()
    assert len(raw.heard) < 2_000
    await raw.close()


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
