"""A read of very many packets, or of costly ones, is handed over in several turns of the loop."""

import mqtt5

from federator.runtime.mqtt.link import PACKETS_PER_TURN_MAX, Endpoint, LinkObserver, MqttLink


class Ear(LinkObserver):
    def __init__(self):
        self.topics = []

    def on_publishes(self, link, chunk, publishes):
        self.topics.append([packet.topic for packet, _, _ in publishes])


async def connected(ear):
    """A link that a broker has accepted, as far as it knows."""
    link = MqttLink(Endpoint("127.0.0.1", 1), ear, client_id="c")
    link._up = True
    return link


def stream_of(topics):
    return memoryview(b"".join(mqtt5.PublishPacket(topic, b"").write() for topic in topics))


async def test_short_packets_are_taken_so_many_at_a_time():
    ear, stream = Ear(), stream_of(["t"] * (PACKETS_PER_TURN_MAX + 1))
    link = await connected(ear)

    used = link._on_read(stream)
    assert link._on_read(stream[used:]) == len(stream) - used

    assert list(map(len, ear.topics)) == [PACKETS_PER_TURN_MAX, 1]


async def test_what_a_turn_does_not_take_was_not_looked_at_either():
    ear, first, second = Ear(), stream_of("abc"), stream_of("de")
    link = await connected(ear)
    ear.share_of_turn = lambda publishes: min(2, len(publishes))
    stream = memoryview(bytes(first) + mqtt5.DisconnectPacket().write() + bytes(second))

    used = link._on_read(stream)

    assert ear.topics == [["a", "b"]]
    assert used == len(stream_of("ab"))
