"""The roads as a child process: IP packets from one TUN device to another, late and not all.

Each direction of a road is a chain of Gilbert and Elliott that steps once per packet. Orders come
one per line on stdin: what is lost from now on, or what passed so far; it ends with its stdin.

Source: Linux Documentation/networking/tuntap.rst; Esposito 2018, 4.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import random
import struct
import sys
from collections import deque
from typing import Any, Final

from lab.grid.processes.children import answer, orders
from lab.grid.processes.namespace import entered


class Losses:
    """The chain of one direction. It begins good.

    Args:
        rng: Source of chance, asked once per packet.
        plr: Share of packets lost, below 1; may change while packets pass.
        abl: Packets lost in a row, on average, at least 1; likewise.
    """

    def __init__(self, rng: random.Random, *, plr: float = 0.0, abl: float = 1.0) -> None:
        self.plr, self.abl = plr, abl
        self._rng = rng
        self._bad = False

    def take_next(self) -> bool:
        stays_bad, to_bad = 1 - 1 / self.abl, self.plr / (1 - self.plr) / self.abl
        self._bad = self._rng.random() < (stays_bad if self._bad else to_bad)
        return self._bad


_TUNSETIFF: Final = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX: Final = 2_048
PRIORITY: Final = 1
QUEUE_MAX: Final = 20_000
"""Packets under way in one direction; more are lost, as at any queue."""


def open_tun(namespace: str, device: str) -> int:
    """A new TUN device in a network namespace; ours to read and write from any other.

    Raises ``OSError``: we may not.
    """
    with entered(namespace):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(fd, _TUNSETIFF, request)
    return fd


class Way:
    """One direction of a road: from the device ``source`` to ``target``."""

    def __init__(self, source: int, target: int, *, delay_s: float, rng: random.Random) -> None:
        self.losses = Losses(rng)
        self.packets = self.bytes = self.lost = 0
        self._source, self._target = source, target
        self._delay_s = delay_s
        self._queue: deque[tuple[float, bytes]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(source, self._on_readable)

    def passed(self) -> dict[str, int]:
        """What came so far, lost packets included."""
        return {"packets": self.packets, "bytes": self.bytes, "lost": self.lost}

    def _on_readable(self) -> None:
        while True:
            try:
                packet = os.read(self._source, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            self.packets += 1
            self.bytes += len(packet)
            if self.losses.take_next() or len(self._queue) >= QUEUE_MAX:
                self.lost += 1
                continue
            self._queue.append((self._loop.time() + self._delay_s, packet))
            if len(self._queue) == 1:
                self._loop.call_at(self._queue[0][0], self._hand_on)

    def _hand_on(self) -> None:
        now_s = self._loop.time()
        while self._queue and self._queue[0][0] <= now_s:
            try:
                os.write(self._target, self._queue.popleft()[1])
            except OSError:  # the device is going down
                self.lost += 1
        if self._queue:
            self._loop.call_at(self._queue[0][0], self._hand_on)


async def _serve(order: dict[str, Any]) -> None:
    ways: dict[str, Way] = {}
    for at, (one, other, device) in enumerate(order["roads"]):
        ends = open_tun(one, device), open_tun(other, device)
        for name, (source, target) in ((f"{at}>", ends), (f"{at}<", ends[::-1])):
            rng = random.Random(f"{order['seed']} {name}")
            ways[name] = Way(source, target, delay_s=order["delay_ms"] / 1000, rng=rng)
    answer({"ready": True})
    async for told in orders():
        for way in ways.values():
            losses = way.losses
            losses.plr, losses.abl = told.get("plr", losses.plr), told.get("abl", losses.abl)
        answer({name: way.passed() for name, way in ways.items()})


def main() -> None:
    """Serve until stdin ends, before anybody else: a wire does not wait for a processor."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    asyncio.run(_serve(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
