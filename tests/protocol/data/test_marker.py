"""Custody's marker goes behind all that we published on our broker, and costs it as little."""

import pytest
from mqtt5 import PublishPacket, read

from federator.protocol.data.delivery import Delivery
from federator.protocol.data.features import Features
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.types import BrokerId

TOPIC = "$fed/fed/delivered/1"


class Link:
    """Notes what goes to the broker at once, and what waits behind the rest."""

    def __init__(self, *, waiting=0, room=True):
        self.waiting, self.room = waiting, room
        self.at_once, self.behind = [], []

    def write_packets(self, parts, count, *, urgent=False):
        if self.room:
            self.at_once += map(parsed, parts)
        return self.room

    def publish_packet(self, packet, packet_id_at, qos):
        assert packet[packet_id_at : packet_id_at + 2] == b"\0\1"
        self.behind.append(parsed(bytes(packet)))
        return True


def parsed(wire):
    packet, _ = read(memoryview(wire))
    return packet


def delivery(link):
    return Delivery(BrokerId(1), TOPIC, DataCounters(), print, Features(link=link))


def test_where_nothing_waits_it_follows_at_once_and_asks_for_no_answer():
    link = Link()

    delivery(link).mark(b"5")

    assert link.at_once == [PublishPacket(TOPIC, b"5", retain=True)]
    assert not link.behind


@pytest.mark.parametrize(
    ("link", "asks"),
    [(Link(waiting=1), False), (Link(room=False), False), (Link(), True)],
    ids=["behind what waits", "behind what has no room", "when we want to know"],
)
def test_else_it_waits_its_turn_and_the_broker_answers(link, asks):
    delivery(link).mark(b"5", asks=asks)

    [marker] = link.behind
    assert (marker.topic, marker.payload, marker.qos, marker.retain) == (TOPIC, b"5", 1, True)
    assert not link.at_once
