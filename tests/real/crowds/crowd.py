"""Clients as rude as the broker lets them be: bare packets, as many as a socket takes."""

import asyncio
from itertools import count

from federator.gateway.wire.fields import write_packet, write_text


def subscribe(filters, *, packet_id=1):
    """One SUBSCRIBE at QoS 1."""
    wanted = b"".join(write_text(each) + b"\1" for each in filters)
    return write_packet(0x82, packet_id.to_bytes(2) + wanted)


def unsubscribe(filters):
    """One UNSUBSCRIBE."""
    return write_packet(0xA2, b"\0\1" + b"".join(map(write_text, filters)))


def publish(topic, payload=b"", *, packet_id=0, qos=0, retain=False):
    """One PUBLISH."""
    identifier = packet_id.to_bytes(2) if qos else b""
    return write_packet(0x30 | qos << 1 | retain, write_text(topic), identifier, payload)


class Rude:
    """A client of MQTT 3.1.1 that sends what it is given, and waits for the answers at most."""

    def __init__(self, port, client_id):
        self._port, self._id = port, client_id

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(
            write_packet(0x10, write_text("MQTT"), b"\4\2\0\0", write_text(self._id))
        )
        await self._answer()
        return self

    async def __aexit__(self, *_):
        self.kill()

    async def send(self, *packets):
        """Send all at once; returns when each was answered."""
        self._writer.write(b"".join(packets))
        for _ in packets:
            await self._answer()

    def write(self, packet):
        """Send, and wait for nothing."""
        self._writer.write(packet)

    def kill(self):
        """Go without a word."""
        self._writer.transport.abort()

    async def _answer(self):
        await self._reader.readexactly(1)
        size = shift = 0
        while True:
            (byte,) = await self._reader.readexactly(1)
            size |= (byte & 0x7F) << shift
            if byte < 128:
                await self._reader.readexactly(size)
                return
            shift += 7


async def churn(client, name, *, filters=3_000, rest_s=0.2):
    """Subscribe and drop, for ever."""
    for round_ in count():
        names = [f"storm/{name}/{round_ % 4}/{number}" for number in range(filters)]
        await client.send(subscribe(names), unsubscribe(names))
        await asyncio.sleep(rest_s)
