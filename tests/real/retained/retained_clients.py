"""Clients that set retained values, and that tell what they get."""

import asyncio
import contextlib

import mqtt5

from federator.runtime.mqtt.wire import packet_id_at
from tests.real.client import Client
from tests.real.polling import until


class Retaining(Client):
    """Sets retained values, and tells what it gets."""

    @property
    def latest(self):
        """By topic, what came last; without what was deleted."""
        return {topic: payload for topic, payload in self.last.items() if payload}

    @property
    def qos_of(self):
        """By topic, the QoS of what came last."""
        return {packet.topic: int(packet.qos) for packet in self.packets}

    @property
    def properties(self):
        """User properties of all that came."""
        return [each for packet in self.packets for each in packet.user_properties]

    async def set(self, topic, payload, *, qos=1, **properties):
        """Set (or with an empty payload delete) a retained value; the broker has it."""
        self.send(topic, payload, qos=qos, **properties)
        await until(lambda: not self.link.unacknowledged, "the broker takes the value")

    def send(self, topic, payload, *, qos=1, **properties):
        retain(self.link, topic, payload, qos=qos, **properties)


def retain(link, topic, payload, *, qos=1, **properties):
    """Publish a retained value over ``link``."""
    packet_id = 1 if qos else None
    packet = mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS(qos), retain=True, packet_id=packet_id, **properties
    )
    wire = bytearray(packet.write())
    if qos:
        assert link.publish_packet(wire, packet_id_at(wire), qos)
    else:
        assert link.write_packets([wire], 1)


@contextlib.asynccontextmanager
async def client(broker, client_id, *filters, qos=1):
    """A client of ``broker``, subscribed; it leaves when the block ends."""
    made = Retaining(broker.port, client_id, *filters, qos=qos)
    task = asyncio.create_task(made.link.run())
    try:
        await until(lambda: made.link.subscribed, f"{client_id} is subscribed")
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def kept_by(broker, topic_filter):
    """What ``broker`` itself retains, asked as one of the agents' kind: nobody takes notice."""
    async with client(broker, "federator-test-looker", topic_filter, "look/end") as looker:
        looker.link.publish("look/end", b"", qos=1)
        await until(lambda: ("look/end", b"") in looker.came, "the broker told everything")
        return {topic: payload for topic, payload in looker.came if payload}
