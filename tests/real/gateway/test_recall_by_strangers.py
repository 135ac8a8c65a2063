"""Who asks a gateway what its clients published: other gateways are told, strangers are not."""

import mqtt5
import pytest

from federator.protocol.messages.gateways import Recall
from federator.protocol.messages.json_codec import encode
from federator.runtime.mqtt.link import Endpoint, MqttLink
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.agent_log import named
from tests.real.flow import Publisher, running
from tests.real.handler import Handler
from tests.real.logins import login, write_acl, write_passwords, write_secret
from tests.real.polling import until

GUARDED = {"failover": {"recall": "guarded"}}  # the default


class Asker(Handler):
    """Asks as a gateway does, and keeps the answers."""

    def __init__(self, port, *login):
        self.link = MqttLink(Endpoint("127.0.0.1", port, *login), self, client_id="asker")
        self.link.subscribe([mqtt5.TopicFilter("$fed/fed/recalled/asker")])
        self.answers = []
        self.number = 0

    def on_publishes(self, link, chunk, publishes):
        self.answers += [bytes(packet.payload) for packet, _, _ in publishes]

    def ask(self):
        self.number += 1
        question = Recall("asker", self.number, ("#",), oldest_ms=60_000, newest_ms=0)
        self.link.publish("$fed/fed/recall", encode(question))


@pytest.fixture
def with_acl(tmp_path):
    """Lines of mosquitto.conf, and the gateway's login."""
    passwords = write_passwords(tmp_path / "passwords", "federator-gateway", "alice")
    acl, secret = write_acl(tmp_path / "acl"), write_secret(tmp_path / "secret")
    us = {"username": "federator-gateway", "password_file": str(secret)}
    return (f"password_file {passwords}", f"acl_file {acl}"), us


async def test_without_an_acl_no_gateway_hands_out_what_its_clients_published(plain, tmp_path):
    broker = await plain.broker()
    config = GatewayConfig("gate", {1: broker.url}, federation="fed", more=GUARDED)
    async with GatewayProcess(tmp_path / "gate", config) as gateway:
        publisher = Publisher(gateway.port, "private/1", client_id="pub", qos=1)
        stranger = Asker(broker.port)
        async with running(publisher, stranger):
            await until(lambda: named(gateway, "acl.missing"), "it is said loudly")
            await until(lambda: publisher.sent > 100 and stranger.link.subscribed, "published")
            sent = publisher.sent
            while publisher.sent < sent + 200:
                asked_at = publisher.sent
                stranger.ask()
                await until(lambda n=asked_at: publisher.sent > n + 20, "time for an answer")

    assert stranger.number > 5
    assert stranger.answers == []


async def test_with_an_acl_other_gateways_are_told(plain, tmp_path, with_acl):
    lines, us = with_acl
    broker = await plain.broker(allow_anonymous=False, extra_config=lines)
    config = GatewayConfig("gate", {1: broker.url}, federation="fed", more=GUARDED, broker=us)
    async with GatewayProcess(tmp_path / "gate", config) as gateway:
        user = login("alice")
        publisher = Publisher(gateway.port, "private/1", client_id="pub", qos=1, login=user)
        other = Asker(broker.port, *login("federator-gateway"))
        async with running(publisher, other):
            await until(lambda: publisher.sent > 100 and other.link.subscribed, "published")
            while not other.answers:
                asked_at = publisher.sent
                other.ask()
                await until(lambda n=asked_at: publisher.sent > n + 20, "time for an answer")

    assert b"gate" in other.answers[0]
    assert not named(gateway, "acl.missing")
