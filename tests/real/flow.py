"""One stream of numbered publications through a federation, and what came of it.

The clients reconnect and subscribe again by themselves, as good clients do.
"""

import asyncio
import contextlib
import time
from collections import Counter

from tests.real.client import Client
from tests.real.polling import until


class Subscriber(Client):
    """Counts numbered payloads, and notes when each came.

    Attributes:
        came: How often each number came.
        at_s: Monotonic time of each arrival.
    """

    def __init__(self, port, topic_filter, *, client_id, qos=0, login=(), **session):
        super().__init__(port, client_id, topic_filter, qos=qos, login=login, **session)
        self.came = Counter()
        self.at_s = []
        self.order = []

    @property
    def duplicates(self):
        return sum(self.came.values()) - len(self.came)

    def on_publishes(self, link, chunk, publishes):
        now_s = time.monotonic()
        for packet, _, _ in publishes:
            number = int(packet.payload)
            self.came[number] += 1
            self.order.append(number)
            self.at_s.append(now_s)


class Publisher(Client):
    """Publishes 0, 1, 2, ... at a steady rate until stopped.

    Attributes:
        sent: How many; what the link had no room for is tried again.
        sent_at_s: Monotonic time of each number's last try.
    """

    def __init__(self, port, topic, *, client_id, rate_hz=100, qos=0, login=()):
        super().__init__(port, client_id, login=login)
        self.sent = 0
        self.sent_at_s = []
        self._topic = topic
        self._gap_s = 1 / rate_hz
        self._qos = qos
        self._paused = False

    def pause(self):
        """Publish no more."""
        self._paused = True

    async def rest(self):
        """Publish no more, and return when the broker has acknowledged everything."""
        self.pause()
        await until(lambda: self.link.unacknowledged == 0, "the broker has them")

    def resume(self):
        """Publish again."""
        self._paused = False

    def payload(self, number):
        """What is published as ``number``."""
        return b"%d" % number

    async def run(self):
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if self.link.connected and not self._paused:
                payload = self.payload(self.sent)
                self.sent_at_s[self.sent :] = [time.monotonic()]
                self.sent += self.link.publish(self._topic, payload, qos=self._qos)
            due_s += self._gap_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))


@contextlib.asynccontextmanager
async def running(*clients):
    """Run the links of ``clients`` (and publish, where one is a publisher)."""
    tasks = [asyncio.create_task(client.link.run()) for client in clients]
    tasks += [asyncio.create_task(c.run()) for c in clients if isinstance(c, Publisher)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
