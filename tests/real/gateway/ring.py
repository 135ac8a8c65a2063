"""Clients as a gateway meets them by the dozen: no library, any version, and a good memory.

Each publishes numbers at a steady rate with QoS 1 and writes down which were acknowledged, which of
another client's it heard and when, and whether its connection ever ended.
"""

import asyncio
import contextlib
import time
from collections import Counter
from itertools import pairwise

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property

IN_FLIGHT_MAX = 100
"""Publications without an answer; a client that waits longer publishes less, not more."""

CONNECT_WITHIN_S = 30.0
SESSION_S = 3_600


class Client(asyncio.Protocol):
    """One client.

    Attributes:
        acknowledged: Numbers for which a PUBACK came.
        came: How often each number of the subscribed topic came.
        at_s: When each arrival was.
        ended: Why the connection ended; ``None`` while it stands.
        moves: How often the gateway moved it.
    """

    def __init__(self, name, *, version, clean=True, topic=None, filter=None):
        self.name = name
        self.version = version
        self.clean = clean
        self.topic = topic
        self.filter = filter
        self.acknowledged = set()
        self.came = Counter()
        self.order = []
        self.at_s = []
        self.ended = None
        self.session_present = None
        self.ready = asyncio.Event()
        self._splitter = wire.Splitter(limit=1 << 20, firsts=wire.FROM_SERVER)
        self.moves = 0
        self._waiting = {}
        self._packet_id = 0
        self._transport = None
        self._leaving = False

    async def connect(self, host, port):
        """Connect and subscribe; returns when both were answered well."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port)
        properties = ()
        if self.version == V5 and not self.clean:
            properties = ((Property.SESSION_EXPIRY, SESSION_S),)
        hello = wire.Connect(
            self.version, self.name, self.clean, keep_alive=60, properties=properties
        )
        self._transport.write(wire.write_connect(hello))
        async with asyncio.timeout(CONNECT_WITHIN_S):
            await self.ready.wait()

    async def publish_steadily(self, rate_hz, stop):
        """Publish 0, 1, 2, ... until ``stop`` is set."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        number = 0
        while not stop.is_set():
            if len(self._waiting) < IN_FLIGHT_MAX and self.ended is None:
                self._publish(number)
                number += 1
            due_s = max(due_s + 1 / rate_hz, loop.time())  # who was kept waiting does not hurry
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, due_s - loop.time()))

    def _publish(self, number):
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._waiting:
                break
        self._waiting[self._packet_id] = number
        self._transport.write(
            wire.write_publish(
                self.topic,
                b"%d" % number,
                version=self.version,
                qos=1,
                packet_id=self._packet_id,
            )
        )

    def longest_gap_s(self, since_s, until_s):
        """The longest silence between two arrivals that overlaps the given time."""
        ends = [since_s, *(t for t in self.at_s if since_s <= t <= until_s), until_s]
        return max(later - earlier for earlier, later in pairwise(ends))

    def leave(self):
        """Say goodbye."""
        self._leaving = True
        if self.ended is None and self._transport is not None:
            self._transport.write(wire.write_disconnect(0, self.version))
            self._transport.close()

    def lost_to(self, listener):
        """What was acknowledged to this one, and ``listener`` has not heard."""
        return sorted(self.acknowledged - listener.came.keys())

    @property
    def waiting(self):
        """Publications without an answer."""
        return len(self._waiting)

    # -- asyncio.Protocol

    def connection_made(self, transport):
        self._transport = transport

    def connection_lost(self, error):
        if not self._leaving and self.ended is None:
            self.ended = f"connection lost: {error}"

    def data_received(self, data):
        block, packets = self._splitter.feed(data)
        now_s = time.monotonic()
        for packet in packets:
            match packet[0] & 0xF0:
                case Kind.PUBLISH:
                    self._on_publish(block, packet, now_s)
                case Kind.PUBACK:
                    packet_id, reason = wire.read_ack(block, packet, self.version)
                    number = self._waiting.pop(packet_id)
                    assert reason < 0x80, f"{self.name}: {number} refused with {reason:#x}"
                    self.acknowledged.add(number)
                case Kind.CONNACK:
                    answer = wire.read_connack(block, packet, self.version)
                    assert not answer.reason, f"{self.name}: refused with {answer.reason:#x}"
                    self.session_present = answer.session_present
                    self._on_connected()
                case Kind.SUBACK:
                    self.ready.set()
                case Kind.DISCONNECT:
                    reason, _ = wire.read_disconnect(block, packet, self.version, from_client=False)
                    self.ended = f"DISCONNECT {reason:#x}"
        assert self._splitter.fault is None, f"{self.name}: {self._splitter.fault}"

    def _on_connected(self):
        if self.filter is None:
            self.ready.set()
        else:
            wish = wire.Subscribe(1, ((self.filter, 1),))
            self._transport.write(wire.write_request(wish, self.version))

    def _on_publish(self, block, packet, now_s):
        _, packet_id, id_at, _ = wire.read_publish(block, packet, self.version, from_client=False)
        if packet_id:
            self._transport.write(wire.write_ack(Kind.PUBACK, packet_id, self.version))
        payload_at = id_at + (2 if packet_id else 0) + (1 if self.version == V5 else 0)
        number = int(block[payload_at : packet[3]])
        self.came[number] += 1
        self.order.append(number)
        self.at_s.append(now_s)


def ring(count):
    """``count`` clients of all sorts; each hears what the one before it publishes."""
    return [
        Client(
            f"client-{number}",
            version=V5 if number % 2 else V311,
            clean=number % 4 < 2,
            topic=f"ring/{number}",
            filter=f"ring/{(number - 1) % count}",
        )
        for number in range(count)
    ]


def heard_from(clients):
    """Each client and the one it hears."""
    return [(client, clients[number - 1]) for number, client in enumerate(clients)]
