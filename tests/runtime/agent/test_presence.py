"""At our own broker or not, thrown out by a stranger, or giving way to another agent."""

import asyncio
from types import SimpleNamespace

import mqtt5
import pytest
import structlog.testing

from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from federator.runtime.mqtt.wire import read_packets
from tests.real.polling import until
from tests.tcp_server import serving

ACCEPTED = mqtt5.ConnAckPacket().write()
THROWN_OUT = b"1795226421: Client ctl already connected, closing old connection."


class Place(LinkObserver):
    """A broker that lets everybody in, and an agent's connections to it.

    Attributes:
        ups: What the owner was told.
        writers: The broker's end of the last connection of each client.
    """

    def __init__(self):
        self.ups = []
        self.writers = {}
        self.presence = None
        self.links = {}

    def connect_to(self, port):
        for name in ("ctl", "data", "retained"):
            self.links[name] = MqttLink(
                Endpoint("127.0.0.1", port),
                self,
                client_id=name,
                reconnect_min_ms=1,
                reconnect_max_ms=2,
                give_way_s=3_600,
            )
        self.presence = OwnBrokerPresence(
            broker=SimpleNamespace(id=1, reached_at="mqtt://b", username=None),
            control=self.links["ctl"],
            data=self.links["data"],
            others=lambda: [self.links["retained"]],
            changed=self.ups.append,
        )

    async def serve(self, reader, writer):
        read_packets(memoryview(await reader.read(1_000)), [], packets := [])
        self.writers[packets[0].client_id] = writer
        writer.write(ACCEPTED)
        while await reader.read(1_000):
            pass

    def on_subscribed(self, link):
        if link is not self.links["retained"]:
            self.presence.update()

    def on_down(self, link, reason):
        if link is not self.links["retained"]:
            self.presence.on_lost(link)


@pytest.fixture
async def place():
    """All three connections are up."""
    place = Place()
    async with serving(place.serve) as port:
        place.connect_to(port)
        running = [asyncio.create_task(link.run()) for link in place.links.values()]
        await until(lambda: all(link.connected for link in place.links.values()), "connected")
        yield place
        for task in running:
            task.cancel()
        await asyncio.wait(running)


async def test_we_are_there_with_both_connections_and_not_with_one(place):
    assert place.ups == [True]

    place.links["data"].drop("for a moment")
    await until(lambda: place.ups[1:] == [False, True], "gone and back")
    place.links["retained"].drop("not one of the two")
    await until(lambda: place.links["retained"].counters.connects == 2, "back as well")

    assert place.presence.up
    assert place.ups == [True, False, True]
    assert not place.presence.has_rival


async def test_a_broker_that_closes_a_connection_has_us_back(place):
    place.writers["ctl"].close()

    await until(lambda: place.ups == [True, False, True], "gone and back")
    assert not place.presence.has_rival


async def test_whom_a_stranger_threw_out_says_so_and_comes_back_at_once(place):
    place.presence.part().topics[ERROR_TOPIC](mqtt5.PublishPacket(ERROR_TOPIC, THROWN_OUT))

    with structlog.testing.capture_logs() as logs:
        place.writers["ctl"].close()
        await until(lambda: place.ups == [True, False, True], "gone and back")

    assert [x["client_id"] for x in logs if x["event"] == "connection.taken_over"] == ["ctl"]
    assert not place.presence.has_rival


async def test_who_gives_way_does_so_with_every_connection_and_says_so_once(place):
    with structlog.testing.capture_logs() as logs:
        place.presence.give_way()
        place.presence.give_way()
        await until(lambda: not any(x.connected for x in place.links.values()), "all gave way")

    assert place.presence.has_rival
    assert place.ups == [True, False]
    assert [line["id"] for line in logs if line["event"] == "id.taken_over"] == [1]
    assert all(link.gave_way for link in place.links.values())
