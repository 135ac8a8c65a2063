"""The port for neighbours' agents: who is let in, what is confirmed, and what strangers achieve.

``HOSTILE_INPUTS`` sets how many streams are changed; the release check takes 1,000,000.
"""

import asyncio
import contextlib
import gc
import os
import random
import sys

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PingReqPacket, PublishPacket

from federator.errors import ConfigError, DecodeError
from federator.protocol.data.outgoing import DIRECT_TOPIC, URGENT_TOPIC
from federator.protocol.trust.guard import DATA, Manner
from federator.protocol.types import BrokerId
from federator.runtime.direct import port as p
from federator.runtime.direct.port import DirectPort
from federator.runtime.direct.wire import CONFIRM_TOPIC, CONFIRMATION
from federator.runtime.mqtt.wire import read_packets
from tests.protocol.trust.key_maker import KeyMaker
from tests.protocol.trust.test_guard import shake
from tests.runtime.mqtt.test_hostile_peer import until

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "4000"))
N2, TOKEN = BrokerId(2), bytes(range(16))


def greeting(name, token):
    """As an agent's link introduces itself."""
    return ConnectPacket(
        name, password=token, keep_alive=6, clean_start=True, max_packet_size=16_777_216
    ).write()


HELLO = greeting("2", TOKEN)


def frame(payload, topic=DIRECT_TOPIC):
    return PublishPacket(topic, payload).write()


class Heard(list[tuple[BrokerId, bytes]]):
    """What a port took."""

    def __call__(self, neighbour, frames):
        self.extend((neighbour, bytes(each)) for each in frames)


@pytest.fixture
async def heard():
    return Heard()


@pytest.fixture
async def port(heard, tmp_path):
    made = DirectPort("127.0.0.1:0", tmp_path / "2.sock", heard)
    await made.open()
    made.expect(N2, TOKEN)
    yield made
    made.close()


@pytest.fixture
async def call():
    """Makes a caller that says this, and a reader of what it is answered."""
    writers = []

    async def connect(port, *said):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writers.append(writer)
        writer.write(b"".join(said))
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answers(reader, count):
    """The first ``count`` packets of the answer."""
    received, packets = b"", []
    while len(packets) < count:
        data = await asyncio.wait_for(reader.read(10_000), 10)
        assert data, "hung up"
        received, publishes, packets = received + data, [], []
        read_packets(memoryview(received), publishes, packets)
        packets += [publish for publish, _, _ in publishes]
    return packets


async def test_a_neighbour_is_let_in_and_told_what_came(port, heard, call):
    said = [frame(b"one"), frame(b"two", URGENT_TOPIC), frame(b"three")]
    reader, writer = await call(port, HELLO, *said)

    greeted, confirmed = await answers(reader, 2)

    assert isinstance(greeted, ConnAckPacket)
    assert (confirmed.topic, confirmed.payload) == (CONFIRM_TOPIC, CONFIRMATION.pack(2, 1))
    assert heard == [(N2, b"one"), (N2, b"two"), (N2, b"three")]
    assert port.is_called_by(N2)
    writer.close()
    await until(lambda: not port.is_called_by(N2))
    assert not port._strangers


async def test_by_its_socket_too(port, heard, tmp_path):
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "2.sock"))
    writer.write(HELLO + frame(b"one") + PingReqPacket().write())

    kinds = {type(each).__name__ for each in await answers(reader, 3)}

    assert kinds == {"ConnAckPacket", "PingRespPacket", "PublishPacket"}
    assert heard == [(N2, b"one")]
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "said",
    [
        greeting("2", bytes(16)),
        greeting("2", b""),
        greeting("3", TOKEN),
        greeting("", TOKEN),
        greeting("²", TOKEN),
        greeting("9" * 400, TOKEN),
        greeting("2", TOKEN + bytes(1_000)),
        greeting("2", TOKEN).replace(b"\x10" + TOKEN, b"\xff" + TOKEN),
        ConnectPacket("2").write(),
        ConnectPacket("2", username="x", password=TOKEN, clean_start=True).write(),
        frame(b"one") + HELLO,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x10\xff\xff\xff\x7f" + bytes(1_000),
        b"\x10\xff\xff\xff\xff\xff",
    ],
    ids=range(14),
)
async def test_who_is_no_neighbour_is_sent_away(port, heard, said, call):
    reader, _ = await call(port, said, frame(b"one"))

    assert await asyncio.wait_for(reader.read(), 10) == b""
    await until(lambda: port.refused == 1)
    assert heard == []


@pytest.mark.parametrize(
    "said",
    [HELLO, b"\x82\x08\x00\x01\x00\x00\x02a/\x00", DisconnectPacket().write(), b"\xff\x00"],
    ids=["a second greeting", "a subscription", "a good-bye", "nothing of MQTT"],
)
async def test_a_neighbour_that_says_what_does_not_belong_here_is_cut_off(port, heard, said, call):
    reader, _ = await call(port, HELLO, frame(b"one"), said)

    while await asyncio.wait_for(reader.read(1_000), 10):
        pass

    await until(lambda: not port.is_called_by(N2))


async def test_who_says_nothing_is_not_kept_for_long(port, monkeypatch, call):
    monkeypatch.setattr(p, "GREETING_S", 0.05)
    reader, _ = await call(port, HELLO[:5])

    assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_of_strangers_the_first_make_room_and_neighbours_stay(port, heard, call):
    neighbour, writer = await call(port, HELLO)
    await answers(neighbour, 1)
    strangers = [await call(port) for _ in range(p.STRANGERS_MAX + 10)]
    await until(lambda: port.refused >= 10)

    writer.write(frame(b"one"))
    await answers(neighbour, 1)

    assert await asyncio.wait_for(strangers[0][0].read(), 10) == b""
    assert len(port._strangers) <= p.STRANGERS_MAX


async def test_a_neighbour_that_comes_again_ends_its_former_connection(port, heard, call):
    former, _ = await call(port, HELLO)
    await answers(former, 1)
    now, writer = await call(port, HELLO)
    await answers(now, 1)

    assert await asyncio.wait_for(former.read(), 10) == b""
    writer.write(frame(b"one"))
    await answers(now, 1)
    assert heard == [(N2, b"one")]


async def test_who_is_no_neighbour_any_more_is_hung_up_on(port, call):
    reader, _ = await call(port, HELLO)
    await answers(reader, 1)

    port.forget(N2)

    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert not port.is_called_by(N2)


def test_a_place_that_cannot_be_had_is_named(tmp_path):
    taken = DirectPort("127.0.0.1:0", None, Heard())
    taken._sockets[0].listen()

    with pytest.raises(ConfigError, match=r"direct\.listen = '127.0.0.1:\d+': address already"):
        DirectPort(f"127.0.0.1:{taken.port}", None, Heard())
    with pytest.raises(ConfigError, match=r"direct\.folder = .*nowhere.*: no such file"):
        DirectPort("127.0.0.1:0", tmp_path / "nowhere" / "2.sock", Heard())
    taken.close()


class Cable(asyncio.Transport):
    """The far end of a connection, which keeps nothing."""

    def __init__(self, protocol):
        super().__init__()
        self.protocol, self.closed = protocol, False

    def set_write_buffer_limits(self, high=None, low=None):
        """Everything is taken."""

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        """Nobody listens."""

    def pause_reading(self):
        """What comes is given in pieces anyway."""

    def resume_reading(self):
        """See above."""

    def abort(self):
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    def feed(self, data):
        """Hand ``data`` over as a socket would."""
        while data and not self.closed:
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]


@pytest.mark.parametrize("manner", [Manner.SIGNED, Manner.SEALED])
async def test_no_changed_stream_of_a_neighbour_brings_a_frame(manner):
    """Recorded and changed, cut, repeated, mixed: none is taken, and nothing stays behind."""
    rng, maker = random.Random(3), KeyMaker()
    one, two = maker.guard(1, manner=manner), maker.guard(2)
    shake(one, two)
    genuine = [one.seal(DATA, "data", rng.randbytes(60), BrokerId(2)) for _ in range(30)]
    taken = []

    def judge(neighbour, frames):
        for each in frames:
            try:
                taken.append(two.unseal(DATA, "data", bytes(each)))
            except DecodeError:
                continue

    for each in genuine:  # they came already: who sends them again is late
        judge(N2, [each])
    came = len(taken)
    assert came == len(genuine)
    port = DirectPort("127.0.0.1:0", None, judge)
    hello = greeting("1", TOKEN)
    blocks, let_in = [], 0
    for number in range(INPUTS // 2):
        port.expect(BrokerId(1), TOKEN)
        stream = bytearray(hello + b"".join(map(frame, rng.choices(genuine, k=3))))
        match number % 4:
            case 0:
                for _ in range(rng.randrange(1, 6)):
                    stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
            case 1:
                del stream[rng.randrange(len(stream)) :]
            case 2:
                at = rng.randrange(len(hello), len(stream))
                stream[at:at] = rng.randbytes(rng.randrange(1, 40))
            case _:
                stream = stream[: len(hello)] + frame(rng.randbytes(rng.randrange(100)))
        pipe = port._on_call()
        cable = Cable(pipe)
        pipe.connection_made(cable)
        cable.feed(bytes(stream))
        let_in += port.is_called_by(BrokerId(1))
        cable.abort()
        if number % 500 == 499:
            await asyncio.sleep(0)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    await asyncio.sleep(0)

    assert len(taken) == came
    assert let_in > INPUTS / 8
    assert not port._strangers
    assert not port._callers
    assert max(blocks[1:]) - min(blocks[1:]) < 20_000
    port.close()
