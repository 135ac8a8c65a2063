"""The machine on the path of datagrams to an agent."""

import asyncio
from typing import Final

from lab.on_path.moods import HELD_S, Mood, Moody

_SOME_TIMES: Final = (Mood.LOSE, Mood.CHANGE, Mood.SWAP, Mood.MAKE_UP, Mood.REPEAT)


class DatagramMan(Moody, asyncio.DatagramProtocol):
    """Takes what comes where the agent is said to be, and carries it to ``target``."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.target = 0
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self) -> int:
        """Returns the port."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self._transport = transport
        port: int = transport.get_extra_info("sockname")[1]
        return port

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.keep(data)
        match self.mood:
            case Mood.SWALLOW | Mood.SILENT | Mood.DEAF | Mood.RESET:
                self.harm[self.mood] += 1
            case Mood.LATE:
                self.harm[self.mood] += 1
                loop = asyncio.get_running_loop()
                loop.call_later(self.rng.uniform(*HELD_S), self._send, data)
            case mood if mood in _SOME_TIMES and self.some():
                for each in self._harmed(data, mood):
                    self._send(each)
            case _:
                self._send(data)

    def _harmed(self, data: bytes, mood: Mood) -> list[bytes]:
        match mood:
            case Mood.LOSE:
                return []
            case Mood.CHANGE:
                return [self.changed(data)]
            case Mood.SWAP:
                return [self.rng.choice(self.kept)]
            case Mood.MAKE_UP:
                return [self.rng.randbytes(len(data)), data]
            case _:
                return [data, self.rng.choice(self.kept)]

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, ("127.0.0.1", self.target))
