"""The port for neighbours' agents: who is admitted, what is confirmed, and what strangers achieve.

``HOSTILE_INPUTS`` sets how many streams are changed; the release check takes 1,000,000.
"""

import asyncio
import gc
import os
import random
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import patch

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PingReqPacket, PublishPacket

from federator.errors import ConfigError
from federator.protocol.trust.guard import DATA
from federator.protocol.trust.sealed_connection import DRAWN_BYTES, greet, welcomed
from federator.protocol.types import BrokerId
from federator.runtime.direct.port import STRANGERS_MAX, DirectPort
from federator.runtime.direct.wire import CONFIRM_TOPIC, CONFIRMATION, DIRECT_TOPIC, URGENT_TOPIC
from federator.runtime.mqtt.wire import read_packets
from tests.protocol.trust.key_maker import KeyMaker
from tests.protocol.trust.test_guard import shake
from tests.runtime.mqtt.test_hostile_peer import until
from tests.transcripts import play, scenes

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "4000"))
N2, TOKEN = BrokerId(2), bytes(range(16))


def greeting(name, token):
    """As an agent's link introduces itself."""
    return ConnectPacket(
        name, password=token, keep_alive=6, clean_start=True, max_packet_size=16_777_216
    ).write()


def frame(payload, topic=DIRECT_TOPIC):
    return PublishPacket(topic, payload).write()


SAID = {
    "hello": greeting("2", TOKEN),
    "hello-of-another-token": greeting("2", bytes(16)),
    "hello-without-token": greeting("2", b""),
    "hello-of-3": greeting("3", TOKEN),
    "hello-of-none": greeting("", TOKEN),
    "hello-of-²": greeting("²", TOKEN),
    "hello-of-999": greeting("9" * 400, TOKEN),
    "hello-too-long": greeting("2", TOKEN + bytes(1_000)),
    "hello-of-a-wrong-length": greeting("2", TOKEN).replace(b"\x10" + TOKEN, b"\xff" + TOKEN),
    "hello-of-a-client": ConnectPacket("2").write(),
    "hello-of-a-user": ConnectPacket("2", username="x", password=TOKEN, clean_start=True).write(),
    "half-a-hello": greeting("2", TOKEN)[:5],
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "endless": b"\x10\xff\xff\xff\x7f" + bytes(1_000),
    "no-length": b"\x10\xff\xff\xff\xff\xff",
    "ping": PingReqPacket().write(),
    "subscribe": b"\x82\x08\x00\x01\x00\x00\x02a/\x00",
    "bye": DisconnectPacket().write(),
    "noise": b"\xff\x00",
    "knock": greeting("1", TOKEN),
}
"""What callers send; ``knock`` is the hello of neighbour 1, in a federation with keys."""


class Heard(list[tuple[BrokerId, bytes]]):
    """What a port took."""

    def __call__(self, frames, neighbour):
        self.extend((neighbour, bytes(each)) for each in frames)


N1 = BrokerId(1)


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


class Caller:
    """A connection to the port, and what it answered."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.received, self.packets = reader, writer, b"", []

    async def answers(self, count):
        """The next ``count`` packets; fewer if the port hangs up."""
        while len(self.packets) < count:
            try:
                data = await asyncio.wait_for(self.reader.read(10_000), 10)
            except ConnectionResetError:
                data = b""
            if not data:
                break
            self.received += data
            publishes, others = [], []
            used = read_packets(memoryview(self.received), publishes, others)
            self.received = self.received[used:]
            self.packets += [*others, *(publish for publish, _, _ in publishes)]
        found, self.packets = self.packets[:count], self.packets[count:]
        return found


class Stage:
    """The port of agent 2, which expects neighbour 2 with a token; ``keys``: and neighbour 1.

    ``call NAME SAID ...`` connects and sends; ``from=ADDRESS`` and ``socket`` are other ways.
    ``say`` sends more, ``hear NAME 2`` awaits so many answers, and ``ends`` that the port hangs up.
    ``crowd`` connects so many that send nothing, and ``refused 10+`` awaits refusals. SAID is of
    ``SAID``, ``frame:x`` or ``urgent:x``; with keys ``greet``, ``sealed:x``, and ``made:3``, one of
    the frames that ``make`` sealed. Prints answers, and the frames that the port took.
    """

    def __init__(self):
        self.loop, self.callers, self.heard = asyncio.new_event_loop(), {}, Heard()
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.refusals, self.neighbour = [], None
        self.loop.run_until_complete(
            self._open(DirectPort("127.0.0.1:0", self.folder / "2", self.heard))
        )

    async def _open(self, port):
        self.port = port
        await port.open()
        for id in (BrokerId(1), N2):
            port.expect(id, TOKEN)

    def do(self, command, *words):
        return self.loop.run_until_complete(self._obey(command, words))

    async def _obey(self, command, words):
        lines = await getattr(self, f"_{command}")(*words) or []
        if command in ("call", "crowd", "say") or not self.heard:
            return lines  # what was sent is on its way
        taken = " ".join(payload.decode() for _, payload in self.heard)
        self.heard.clear()
        return [*lines, f"takes {taken}"]

    def close(self):
        self.loop.run_until_complete(self._close())
        self.loop.close()
        self.stack.close()

    async def _close(self):
        for caller in self.callers.values():
            caller.writer.close()
        self.port.close()
        await asyncio.sleep(0)

    async def _keys(self):
        self.port.close()
        maker = KeyMaker()
        guard = maker.guard(2)
        await self._open(DirectPort("127.0.0.1:0", None, self.heard, guard, self.refusals.append))
        self.neighbour = Neighbour(maker, guard)

    async def _call(self, name, *words):
        places = [(word[5:], 0) for word in words if word.startswith("from=")]
        if "socket" in words:
            opened = await asyncio.open_unix_connection(str(self.folder / "2"))
        else:
            here = places[0] if places else None
            opened = await asyncio.open_connection("127.0.0.1", self.port.port, local_addr=here)
        self.callers[name] = Caller(*opened)
        said = [word for word in words if word != "socket" and not word.startswith("from=")]
        await self._say(name, *said)

    async def _crowd(self, count, *how):
        for number in range(int(count)):
            await self._call(f"crowd {number}", *how)

    async def _say(self, name, *words):
        self.callers[name].writer.write(b"".join(map(self._bytes, words)))

    def _bytes(self, word):
        kind, _, text = word.partition(":")
        if kind in ("frame", "urgent"):
            return frame(text.encode(), {"frame": DIRECT_TOPIC, "urgent": URGENT_TOPIC}[kind])
        match kind:
            case "greet":
                self.greeted = self.neighbour.greeting()
                return self.greeted
            case "greet-again":
                return self.greeted
            case "sealed" | "sealed-urgent":
                topic = URGENT_TOPIC if kind == "sealed-urgent" else DIRECT_TOPIC
                return self.neighbour.frame(text.encode(), topic)
            case "made":
                return self.made[int(text)]
            case "made-urgent":
                return self.made[int(text)].replace(b"\x00\x01d", b"\x00\x01u")
            case "made-up":
                return frame(bytes(len(self.made[1]) - 6))
            case "old":
                return frame(self.neighbour.guard.seal(DATA, "data", text.encode(), N2))
        return SAID[word]

    async def _make(self, count):
        self.made = [self.neighbour.frame(b"%d" % number) for number in range(int(count))]

    async def _hear(self, name, count):
        return [self._shown(packet) for packet in await self.callers[name].answers(int(count))]

    def _shown(self, packet):
        if isinstance(packet, ConnAckPacket):
            return "accepted"
        if not isinstance(packet, PublishPacket):
            return "pong"
        assert packet.topic == CONFIRM_TOPIC
        payload, sealed = bytes(packet.payload), ""
        if self.neighbour is not None and len(payload) != CONFIRMATION.size:
            if self.neighbour.line is None:
                self.neighbour.heard(payload)
                return "welcome"
            payload, sealed = self.neighbour.line.open(CONFIRM_TOPIC, payload), " under seal"
        data, urgent = CONFIRMATION.unpack(payload)
        return f"confirms {data} and {urgent} urgent{sealed}"

    async def _ends(self, name):
        lines = [self._shown(packet) for packet in await self.callers[name].answers(1_000)]
        return [*lines, "hung up"]

    async def _refused(self, count):
        least = int(count.rstrip("+"))
        if count.endswith("+"):
            await until(lambda: self.port.refused >= least)
        else:
            await until(lambda: self.port.refused == least)
        assert len(self.port.antechamber) <= STRANGERS_MAX
        return [f"{len(self.refusals)} for their seals"] if self.refusals else []

    async def _hangs_up(self, name):
        self.callers.pop(name).writer.close()

    async def _gone(self, neighbour):
        await until(lambda: not self.port.is_called_by(BrokerId(int(neighbour))))
        return [f"strangers: {len(self.port.antechamber)}"]

    async def _called_by(self, *neighbours):
        return [str(self.port.is_called_by(BrokerId(int(id)))) for id in neighbours]

    async def _forget(self, neighbour):
        self.port.forget(BrokerId(int(neighbour)))

    async def _impatient(self):
        self.stack.enter_context(patch("federator.runtime.direct.port.GREETING_S", 0.05))


@scenes(Path(__file__).with_name("port.txt"))
def test_transcript(path, number):
    with closing(Stage()) as stage:
        play(path, number, stage)


def test_a_place_that_cannot_be_had_is_named(tmp_path):
    taken = DirectPort("127.0.0.1:0", None, Heard())
    taken._sockets[0].listen()

    with pytest.raises(ConfigError, match=r"direct\.listen = '127.0.0.1:\d+': address already"):
        DirectPort(f"127.0.0.1:{taken.port}", None, Heard())
    with pytest.raises(ConfigError, match=r"direct\.folder = .*nowhere.*: no such file"):
        DirectPort("127.0.0.1:0", tmp_path / "nowhere" / "2.sock", Heard())
    taken.close()


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
        _feed(port, harmed(SAID["knock"] + neighbour.greeting(), number, recorded, rng)).abort()
        cable = _feed(port, SAID["knock"] + neighbour.greeting())
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
