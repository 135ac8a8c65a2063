"""The machine on the path of connections straight to an agent: it reads and writes MQTT packets."""

import asyncio
import contextlib
import time
from typing import Final

from mqtt5 import PublishPacket

from federator.runtime.direct.wire import CONFIRM_TOPIC, CONFIRMATION, DIRECT_TOPIC
from federator.runtime.mqtt.wire import packet_length
from lab.on_path.moods import HELD_S, Mood, Moody

_PUBLISH: Final = 0x30
_READ_BYTES: Final = 65_536
_HEAD_BYTES: Final = 8
"""Of a PUBLISH, which stay as they are where bits are changed: else it is none."""


class StraightMan(Moody):
    """Listens where the agent is said to be, and carries to ``target``.

    Attributes:
        given_up_s: How long each connection stood from the first frame that was swallowed on.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.target = 0
        self.given_up_s: list[float] = []
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        """Returns the port."""
        self._server = await asyncio.start_server(self._on_call, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for each in tuple(self._open):
            each.end()

    async def _on_call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, writer)
        self._open.add(connection)
        try:
            await connection.run(reader)
        finally:
            self._open.discard(connection)

    def turn(self, mood: Mood) -> None:
        """Be of another mood; what stays silent does so for good."""
        super().turn(mood)
        for each in tuple(self._open):
            if mood is Mood.RESET:
                self.harm[mood] += 1
                each.end()
            elif mood in (Mood.SWALLOW, Mood.SILENT):
                each.swallows = mood


class _Connection:
    """One connection to the agent, and the one that is dialled for it."""

    def __init__(self, man: StraightMan, near: asyncio.StreamWriter) -> None:
        self.swallows: Mood | None = None
        self._man, self._near = man, near
        self._far: asyncio.StreamWriter | None = None
        self._swallowed_s: float | None = None  # since when
        self._counted = [0, 0]  # frames of each sort that came from the near end

    async def run(self, reader: asyncio.StreamReader) -> None:
        try:
            far, self._far = await asyncio.open_connection("127.0.0.1", self._man.target)
            back = asyncio.create_task(self._pump(far, self._near, forth=False))
            with contextlib.suppress(OSError):
                await self._pump(reader, self._far, forth=True)
            if self._swallowed_s is not None:
                self._man.given_up_s.append(time.monotonic() - self._swallowed_s)
            self._far.close()
            with contextlib.suppress(OSError):
                await back
        except OSError:
            pass
        finally:
            self.end()

    def end(self) -> None:
        for writer in (self._near, self._far):
            if writer is not None:
                writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forth: bool
    ) -> None:
        waiting = b""
        while data := await reader.read(_READ_BYTES):
            waiting += data
            while waiting:
                size = packet_length(memoryview(waiting)[:5])
                if size is None or size > len(waiting):
                    break
                packet, waiting = waiting[:size], waiting[size:]
                await self._carry(packet, writer, forth=forth)
            await writer.drain()
        if self.swallows is None:
            writer.close()

    async def _carry(self, packet: bytes, writer: asyncio.StreamWriter, *, forth: bool) -> None:
        man = self._man
        if packet[0] != _PUBLISH:
            writer.write(packet)
            return
        man.keep(packet)
        if forth:
            self._counted[packet[4:5] == b"u"] += packet[4:5] != CONFIRM_TOPIC.encode()
        if self.swallows is not None:
            self._swallow(forth=forth)
            return
        mood = man.mood
        if mood is Mood.LATE:
            man.harm[mood] += 1
            await asyncio.sleep(man.rng.uniform(*HELD_S))
        elif mood is Mood.DEAF and not forth:
            man.harm[mood] += 1
            return
        elif mood in (Mood.LOSE, Mood.CHANGE, Mood.SWAP, Mood.MAKE_UP, Mood.REPEAT) and man.some():
            packet = self._harmed(packet, mood)
        writer.write(packet)

    def _harmed(self, packet: bytes, mood: Mood) -> bytes:
        man = self._man
        match mood:
            case Mood.LOSE:
                return b""
            case Mood.CHANGE:
                return man.changed(packet, after=_HEAD_BYTES)
            case Mood.SWAP:
                return man.rng.choice(man.kept)
            case Mood.MAKE_UP:
                content = man.rng.randbytes(max(0, len(packet) - _HEAD_BYTES))
                return PublishPacket(DIRECT_TOPIC, content).write() + packet
            case _:
                return packet + man.rng.choice(man.kept)

    def _swallow(self, *, forth: bool) -> None:
        """Keep it; and say, as older agents did, that all came."""
        if not forth:
            return
        man = self._man
        man.harm[self.swallows or man.mood] += 1
        self._swallowed_s = self._swallowed_s or time.monotonic()
        if self.swallows is Mood.SWALLOW:
            counts = CONFIRMATION.pack(*self._counted)
            self._near.write(PublishPacket(CONFIRM_TOPIC, counts).write())
