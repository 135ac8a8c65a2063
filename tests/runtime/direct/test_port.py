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

from federator.errors import ConfigError
from federator.protocol.trust.guard import DATA
from federator.protocol.trust.sealed_connection import DRAWN_BYTES, greet, welcomed
from federator.protocol.types import BrokerId
from federator.runtime.direct import port as p
from federator.runtime.direct.port import DirectPort
from federator.runtime.direct.wire import CONFIRM_TOPIC, CONFIRMATION, DIRECT_TOPIC, URGENT_TOPIC
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

    def __call__(self, frames, neighbour):
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

    async def connect(port, *said, **how):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, **how)
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
    assert len(port.antechamber) == 0


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

    with contextlib.suppress(ConnectionResetError):  # sent away before it was heard
        assert await asyncio.wait_for(reader.read(), 10) == b""
    assert port.refused == 1


async def test_of_strangers_the_first_make_room_and_neighbours_stay(port, heard, call):
    neighbour, writer = await call(port, HELLO)
    await answers(neighbour, 1)
    strangers = [await call(port) for _ in range(p.STRANGERS_MAX + 10)]
    await until(lambda: port.refused >= 10)

    writer.write(frame(b"one"))
    await answers(neighbour, 1)

    assert await asyncio.wait_for(strangers[0][0].read(), 10) == b""
    assert len(port.antechamber) <= p.STRANGERS_MAX


async def test_an_address_crowds_out_itself_alone(port, heard, call):
    slow, writer = await call(port)
    crowd = [await call(port, local_addr=("127.0.0.2", 0)) for _ in range(2 * p.STRANGERS_MAX)]
    await until(lambda: port.refused == 2 * p.STRANGERS_MAX - p.STRANGERS_PER_ADDRESS_MAX)

    writer.write(HELLO)

    assert isinstance((await answers(slow, 1))[0], ConnAckPacket)
    assert await asyncio.wait_for(crowd[0][0].read(), 10) == b""


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


class Neighbour:
    """A caller under seal: what it sends is for the guard of port 2."""

    def __init__(self, maker, guard):
        self.guard = maker.guard(1)
        shake(self.guard, guard)
        self.drawn = bytes(DRAWN_BYTES)
        self.line = None

    def greeting(self):
        return frame(greet(self.guard, N2, self.drawn), CONFIRM_TOPIC)

    def heard(self, answer):
        self.line = welcomed(self.guard, N2, self.drawn, bytes(answer))

    def frame(self, payload, topic=DIRECT_TOPIC):
        return frame(self.line.seal(topic, payload), topic)


N1 = BrokerId(1)
KNOCK = greeting("1", TOKEN)


@pytest.fixture
async def guarded(heard):
    """A port of a federation with keys, and a neighbour of it."""
    maker = KeyMaker()
    guard = maker.guard(2)
    refused = []
    made = DirectPort("127.0.0.1:0", None, heard, guard, refused.append)
    made.refusals = refused
    await made.open()
    made.expect(N1, TOKEN)
    yield made, Neighbour(maker, guard)
    made.close()


async def let_in(call, port, neighbour):
    reader, writer = await call(port, KNOCK, neighbour.greeting())
    _, answer = await answers(reader, 2)
    neighbour.heard(answer.payload)
    return reader, writer


async def test_with_keys_what_came_is_confirmed_under_seal(guarded, heard, call):
    port, neighbour = guarded
    reader, writer = await let_in(call, port, neighbour)
    writer.write(neighbour.frame(b"one") + neighbour.frame(b"two", URGENT_TOPIC))
    (confirmed,) = await answers(reader, 1)

    counts = neighbour.line.open(CONFIRM_TOPIC, bytes(confirmed.payload))

    assert counts == CONFIRMATION.pack(1, 1)
    assert heard == [(N1, b"one"), (N1, b"two")]
    assert port.is_called_by(N1)


@pytest.mark.parametrize("harm", ["left out", "repeated", "swapped", "made up", "another sort"])
async def test_a_frame_that_is_not_the_next_ends_the_connection_and_is_not_confirmed(
    guarded, heard, call, harm
):
    port, neighbour = guarded
    reader, writer = await let_in(call, port, neighbour)
    frames = [neighbour.frame(b"%d" % number) for number in range(4)]
    writer.write(frames[0])
    await answers(reader, 1)

    match harm:
        case "left out":
            said = frames[2]
        case "repeated":
            said = frames[0]
        case "swapped":
            said = frames[2] + frames[1]
        case "made up":
            said = frame(bytes(len(frames[1]) - 6))
        case _:
            said = frames[1].replace(b"\x00\x01d", b"\x00\x01u")
    writer.write(said + b"".join(frames))

    assert await asyncio.wait_for(reader.read(), 10) == b""  # no word more, and hung up
    assert heard == [(N1, b"0")]
    assert len(port.refusals) == 1


async def test_a_token_alone_does_not_take_a_neighbours_place(guarded, heard, call):
    """Whoever reads the path has the token and all that was said; it is not enough."""
    port, neighbour = guarded
    greeted = neighbour.greeting()
    reader, writer = await call(port, KNOCK, greeted)
    _, answer = await answers(reader, 2)
    neighbour.heard(answer.payload)
    for said in ([KNOCK], [KNOCK, frame(b"junk")], [KNOCK, greeted]):
        await call(port, *said)
    await until(lambda: port.refused == 2)

    writer.write(neighbour.frame(b"one"))
    (confirmed,) = await answers(reader, 1)

    assert neighbour.line.open(CONFIRM_TOPIC, bytes(confirmed.payload)) == CONFIRMATION.pack(1, 0)
    assert heard == [(N1, b"one")]


async def test_with_keys_frames_of_an_older_agent_do_not_come_straight(guarded, heard, call):
    port, neighbour = guarded
    old = frame(neighbour.guard.seal(DATA, "data", b"one", N2))
    reader, _ = await call(port, KNOCK, old)

    await answers(reader, 1)

    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert heard == []


class Cable(asyncio.Transport):
    """The far end of a connection."""

    def __init__(self, protocol):
        super().__init__()
        self.protocol, self.closed, self.answered = protocol, False, b""

    def set_write_buffer_limits(self, high=None, low=None):
        """Everything is taken."""

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        """Kept, for who asks."""
        self.answered += bytes(data)

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


async def test_no_changed_stream_under_seal_brings_more_than_its_true_beginning():
    """True and changed greetings; what follows is changed, cut, repeated, mixed."""
    rng, maker = random.Random(5), KeyMaker()
    guard = maker.guard(2)
    heard, blocks = Heard(), []
    port = DirectPort("127.0.0.1:0", None, heard, guard)
    neighbour, recorded, whole = Neighbour(maker, guard), [frame(b"junk")], 0
    for number in range(INPUTS // 8):
        port.expect(N1, TOKEN)
        _feed(port, harmed(KNOCK + neighbour.greeting(), number, recorded, rng)).abort()
        cable = _feed(port, KNOCK + neighbour.greeting())
        await until(lambda cable=cable: CONFIRM_TOPIC.encode() in cable.answered)
        publishes = []
        read_packets(memoryview(cable.answered), publishes, [])
        neighbour.heard(publishes[0][0].payload)
        heard.clear()
        bodies = [b"%d %d" % (number, place) for place in range(4)]
        frames = [neighbour.frame(body, rng.choice("du")) for body in bodies]
        said, at = list(frames), rng.randrange(4)
        match number % 4:
            case 0:
                said[at] = harmed(said[at], rng.randrange(4), recorded, rng)
            case 1:
                del said[at]
            case 2:
                said[at] = rng.choice(recorded)
            case _:
                said.insert(at, rng.choice(recorded + frames))
        for each in said:  # a read each
            cable.feed(each)
        taken = [body for _, body in heard]
        sorts = {
            sort: [b for b, f in zip(bodies, frames, strict=True) if f[4:5] == sort]
            for sort in (b"d", b"u")
        }
        for own in sorts.values():  # each sort from its beginning on, without a hole
            came = [body for body in taken if body in own]
            assert came == own[: len(came)]
        assert all(body in bodies for body in taken)
        whole += len(taken)
        recorded = [*recorded[-50:], *frames]
        cable.abort()
        await asyncio.sleep(0)
        if number % 100 == 99:
            gc.collect()
            blocks.append(sys.getallocatedblocks())

    assert whole > INPUTS / 8
    assert not port._callers
    assert len(port.antechamber) == 0
    assert max(blocks[1:]) - min(blocks[1:]) < 20_000
    port.close()


def _feed(port, stream):
    """A caller that sends ``stream``: its end of the connection."""
    pipe = port._on_call()
    cable = Cable(pipe)
    pipe.connection_made(cable)
    cable.feed(stream)
    return cable


def harmed(stream, how, recorded, rng):
    """``stream`` with bits flipped, cut, with noise within, or with another's end."""
    changed = bytearray(stream)
    at = rng.randrange(len(changed))
    match how % 4:
        case 0:
            for _ in range(rng.randrange(1, 6)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        case 1:
            del changed[at:]
        case 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 40))
        case _:
            changed[at:] = rng.choice(recorded)
    return bytes(changed)
