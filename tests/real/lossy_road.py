"""A road for datagrams that delays, and loses as Gilbert and Elliott have it, in user space."""

import asyncio
import random


class LossyRoad(asyncio.DatagramProtocol):
    """Hands on to ``target`` what comes to ``port``; an async context manager.

    Attributes:
        target: Port on this host; ``None`` loses everything.
        plr, abl: What is lost.
        keep: Recorded datagrams, the latest ones.
    """

    def __init__(self, *, plr=0.0, abl=2.0, delay_s=0.0, seed=1):
        self.target, self.plr, self.abl, self.delay_s = None, plr, abl, delay_s
        self.passed = self.lost = 0
        self.keep = []
        self._rng = random.Random(seed)
        self._bad = False

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *error):
        self._transport.close()

    def datagram_received(self, data, addr):
        stays_bad, to_bad = 1 - 1 / self.abl, self.plr / (1 - self.plr) / self.abl
        self._bad = self._rng.random() < (stays_bad if self._bad else to_bad)
        if self._bad or self.target is None:
            self.lost += 1
            return
        self.passed += 1
        self.keep = [*self.keep[-99:], data]
        asyncio.get_running_loop().call_later(self.delay_s, self.inject, data)

    def inject(self, data):
        if not self._transport.is_closing() and self.target is not None:
            self._transport.sendto(data, ("127.0.0.1", self.target))
