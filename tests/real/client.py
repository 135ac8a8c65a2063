"""The one client of tests."""

from mqtt5 import PublishPacket

from federator.runtime.mqtt.link import Endpoint
from lab.grid import clients
from tests.real.polling import until


class Client(clients.Client):
    """It connects and subscribes again by itself, as good clients do, and keeps what came.

    ``at`` is a port of this machine, or an ``Endpoint``.

    Attributes:
        packets: All publications that came, and
        came: their topics and payloads.
        present: Whether the broker knew its session, at the last connection.
        downs: How often the connection ended.
    """

    def __init__(self, at, client_id, *filters, qos=1, login=(), **session):
        self.packets, self.came = [], []
        self.present, self.downs = None, 0
        endpoint = Endpoint("127.0.0.1", at, *login) if isinstance(at, int) else at
        session = {"session_expiry_s": 0, **session}
        super().__init__(endpoint, client_id, *filters, qos=qos, **session)

    @property
    def last(self):
        """By topic, the payload that came last."""
        return dict(self.came)

    async def put(self, topic, payload, *, retain=False):
        """Publish at QoS 0, once there is room."""
        packet = PublishPacket(topic, payload, retain=retain).write()
        await until(lambda: self.link.write_packets([packet], 1), "there is room")

    def on_up(self, link, session_present):
        self.present = session_present

    def on_down(self, link, reason):
        self.downs += 1

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            self.packets.append(packet)
            self.came.append((packet.topic, packet.payload))
