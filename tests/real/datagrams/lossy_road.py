"""A road for datagrams that delays, and loses as Gilbert and Elliott have it, in user space."""

import asyncio
import random

from lab.bench.lossy.roads import Losses


class LossyRoad(asyncio.DatagramProtocol):
    """Hands on to ``target`` what comes to ``port``; an async context manager.

    Attributes:
        target: Port on this host; ``None`` loses everything.
        losses: What is lost; may be changed.
        keep: Recorded datagrams, the latest ones.
    """

    def __init__(self, *, plr=0.0, abl=2.0, delay_s=0.0, seed=1):
        self.target, self.delay_s = None, delay_s
        self.losses = Losses(random.Random(seed), plr=plr, abl=abl)
        self.passed = self.lost = 0
        self.keep = []

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
        if self.losses.take_next() or self.target is None:
            self.lost += 1
            return
        self.passed += 1
        self.keep = [*self.keep[-99:], data]
        asyncio.get_running_loop().call_later(self.delay_s, self.inject, data)

    def inject(self, data):
        if not self._transport.is_closing() and self.target is not None:
            self._transport.sendto(data, ("127.0.0.1", self.target))
