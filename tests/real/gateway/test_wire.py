"""The gateway's packet layer beside a real broker, and beside an independent client.

What it accepts of a hostile client it passes on; if a broker closed a connection for that, the
gateway would take the broker for dead and carry the vandalism to the next one.
"""

import asyncio

import aiomqtt
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property
from tests.gateway.corpus import client_packets, reframed, vandalized
from tests.gateway.wire.test_wire_hostile import verdict
from tests.tcp_server import serving

PACKETS, VARIANTS = 60, 20
ANSWER_WITHIN_S = 30.0
SMALLEST_SANE_MAXIMUM = 100
"""A client may ask for no packet longer than its CONNACK, and gets nothing at all."""


def good_packets(version):
    """Different packets, the same in every run."""
    drawn: list[bytes] = []

    @settings(
        max_examples=PACKETS,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(client_packets(version))
    def draw(packet):
        drawn.append(packet)

    draw()
    return drawn


def accepted(version):
    """Vandalized packets that we read without a complaint, the endings of connections aside."""
    for seed, packet in enumerate(good_packets(version)):
        for hostile in vandalized(packet, seed, VARIANTS):
            stream = reframed(hostile)
            taken, reason = verdict(stream, version)
            if reason is not None or b"".join(whole for whole, _ in taken) != stream:
                continue
            if any(whole[0] in (Kind.DISCONNECT, Kind.AUTH) for whole, _ in taken):
                continue
            if not wants_nothing(stream, version):
                yield stream


def wants_nothing(stream, version):
    """Whether its CONNECT allows no packet as long as a CONNACK."""
    taken, _ = verdict(stream, version)
    return any(
        isinstance(said, wire.Connect)
        and wire.number_in(said.properties, Property.MAXIMUM_PACKET_SIZE, SMALLEST_SANE_MAXIMUM)
        < SMALLEST_SANE_MAXIMUM
        for _, said in taken
    )


async def survives(port, stream, version):
    """Whether the broker still answers a ping behind ``stream``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if stream[0] != Kind.CONNECT:
            writer.write(wire.write_connect(wire.Connect(version, "", clean=True, keep_alive=0)))
        writer.write(stream + wire.PINGREQ)
        heard = b""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not heard.endswith(wire.PINGRESP):
                more = await reader.read(65_536)
                if not more:
                    return False
                heard += more
        return True
    except ConnectionError:
        return False
    finally:
        writer.close()


@pytest.mark.parametrize("version", [V311, V5])
async def test_nothing_we_accept_makes_the_broker_hang_up(broker, version):
    streams = list(accepted(version))
    assert len(streams) > PACKETS

    # One after the other: their client ids collide, and what one publishes another has subscribed.
    hung_up = [stream for stream in streams if not await survives(broker.port, stream, version)]

    assert hung_up == []


class Playback:
    """A broker in one connection, made of nothing but the packet layer: it echoes publications."""

    def __init__(self) -> None:
        self.connect: wire.Connect | None = None
        self.subscribed: list[tuple[str, int]] = []
        self.unsubscribed: list[str] = []
        self.published: list[wire.PublishHeader] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.ended: int | None = None
        self.fault: Exception | None = None
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = wire.Splitter(limit=100_000, firsts=wire.FROM_CLIENT)
        try:
            while data := await reader.read(65_536):
                block, packets = splitter.feed(data)
                for packet in packets:
                    writer.write(self.answer(block, packet))
                    if self.connect is not None:
                        splitter.speak(self.connect.version)
                if splitter.fault is not None:
                    raise splitter.fault
        except Exception as error:
            self.fault = error
        self.closed.set()

    def answer(self, block: bytes, packet: wire.Packet) -> bytes:
        kind = Kind(packet[0] & 0xF0)
        if self.connect is None:
            self.connect = wire.read_connect(block, packet)
            told = ((Property.RECEIVE_MAXIMUM, 9),) if self.connect.version == V5 else ()
            return wire.write_connack(wire.Connack(False, 0, told), self.connect.version)
        version = self.connect.version
        match kind:
            case Kind.SUBSCRIBE:
                wish = wire.read_request(block, packet, version)
                assert isinstance(wish, wire.Subscribe)
                self.subscribed += wish.filters
                codes = bytes(options & 3 for _, options in wish.filters)
                return wire.write_answer(Kind.SUBACK, wire.Answer(wish.packet_id, codes), version)
            case Kind.UNSUBSCRIBE:
                goodbye = wire.read_request(block, packet, version)
                self.unsubscribed += goodbye.filters
                answer = wire.Answer(goodbye.packet_id, bytes(len(goodbye.filters)))
                return wire.write_answer(Kind.UNSUBACK, answer, version)
            case Kind.PUBLISH:
                header = wire.read_publish(block, packet, version)
                self.published.append(header)
                echo = block[packet[1] : packet[3]]
                return self.thanks(packet[0] & wire.QOS, header[1], version) + echo
            case Kind.PUBREC:
                packet_id, _ = wire.read_ack(block, packet, version)
                return wire.write_ack(Kind.PUBREL, packet_id, version)
            case Kind.PUBREL:
                packet_id, _ = wire.read_ack(block, packet, version)
                return wire.write_ack(Kind.PUBCOMP, packet_id, version)
            case Kind.PINGREQ:
                return wire.PINGRESP
            case Kind.DISCONNECT:
                self.ended, _ = wire.read_disconnect(block, packet, version)
                return b""
            case _:
                self.acknowledged.append((kind, wire.read_ack(block, packet, version)[0]))
                return b""

    def thanks(self, qos: int, packet_id: int, version: int) -> bytes:
        if not qos:
            return b""
        return wire.write_ack(Kind.PUBACK if qos == 2 else Kind.PUBREC, packet_id, version)


@pytest.mark.parametrize(
    ("version", "protocol"),
    [(V311, aiomqtt.ProtocolVersion.V311), (V5, aiomqtt.ProtocolVersion.V5)],
)
async def test_an_independent_client_and_the_packet_layer_understand_each_other(version, protocol):
    playback = Playback()
    will = aiomqtt.Will("last/words", b"\0\xff", 2, True)
    heard = []

    async with serving(playback.serve) as port, asyncio.timeout(ANSWER_WITHIN_S):
        client = aiomqtt.Client(
            "127.0.0.1",
            port,
            protocol=protocol,
            identifier="grüße",
            username="u",
            password="p",
            will=will,
        )
        async with client:
            await client.subscribe([("a/#", 2), ("b/+", 1)])
            for qos in (0, 1, 2):
                await client.publish(f"a/{qos}", bytes(200), qos=qos)
                heard.append(await anext(client.messages))
            await client.unsubscribe(["a/#", "b/+"])
        await playback.closed.wait()

    assert playback.fault is None
    assert playback.connect is not None
    assert (playback.connect.version, playback.connect.client_id) == (version, "grüße")
    assert (playback.connect.username, playback.connect.password) == ("u", b"p")
    assert playback.connect.will == wire.Will("last/words", b"\0\xff", 2, True)
    assert [(filter, options & 3) for filter, options in playback.subscribed] == [
        ("a/#", 2),
        ("b/+", 1),
    ]
    assert playback.unsubscribed == ["a/#", "b/+"]
    assert [topic for topic, *_ in playback.published] == ["a/0", "a/1", "a/2"]
    assert [(str(one.topic), one.qos, len(one.payload)) for one in heard] == [
        ("a/0", 0, 200),
        ("a/1", 1, 200),
        ("a/2", 2, 200),
    ]
    ids = [packet_id for _, packet_id, _, _ in playback.published]
    assert set(playback.acknowledged) == {(Kind.PUBACK, ids[1]), (Kind.PUBCOMP, ids[2])}
    assert playback.ended == 0
