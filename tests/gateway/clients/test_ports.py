"""A port lets its owner work for a moment, and then lets others have a turn."""

import asyncio
import time
from itertools import pairwise

from federator.gateway.clients.ports import TURN_S, Port


class Slow:
    """An owner that takes one read in ``parts``, each as long as a turn."""

    def __init__(self, parts):
        self.heard = []
        self.lost_after = None
        self._parts = parts

    def on_data(self, port, data):
        self.heard.append((time.monotonic(), data))
        time.sleep(2 * TURN_S)
        return len(self.heard) < self._parts

    def on_lost(self, port, error):
        self.lost_after = len(self.heard)

    def on_room(self, port, room):
        """Never full."""


async def test_others_have_a_turn_between_the_parts_of_a_read_and_its_end_comes_behind_them():
    slow, turns_s = Slow(parts=4), []
    server = await asyncio.get_running_loop().create_server(lambda: Port(slow), "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"all of it")
        writer.close()

        while slow.lost_after is None:
            turns_s.append(time.monotonic())
            await asyncio.sleep(0)

    times_s, data = zip(*slow.heard, strict=True)
    assert data == (b"all of it", b"", b"", b"")
    assert slow.lost_after == 4
    for before_s, after_s in pairwise(times_s):
        assert any(before_s < at_s < after_s for at_s in turns_s)
