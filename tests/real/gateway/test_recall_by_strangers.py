"""Who asks a gateway what its clients published: other gateways are told, strangers are not."""

import asyncio

import pytest

from federator.protocol.messages.gateways import Recall
from federator.protocol.messages.json_codec import encode
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.logins import login, write_acl, write_passwords, write_secret
from tests.real.plain_agents import gets_through
from tests.real.polling import until
from tests.real.trust.test_signed import Office, line_of_three
from tests.real.undisturbed import undisturbed

GUARDED = {"failover": {"recall": "guarded"}}  # the default
QUESTIONS = 10_000


class Asker(Client):
    """Asks as a gateway does, and keeps the answers."""

    def __init__(self, port, *login):
        super().__init__(port, "asker", "$fed/fed/recalled/asker", qos=0, login=login)
        self.number = 0

    @property
    def answers(self):
        return [payload for _, payload in self.came]

    def ask(self):
        self.number += 1
        question = Recall("asker", self.number, ("#",), oldest_ms=60_000, newest_ms=0)
        return self.link.publish("$fed/fed/recall", encode(question))


@pytest.fixture
def with_acl(tmp_path):
    """Lines of mosquitto.conf, and the gateway's login."""
    passwords = write_passwords(tmp_path / "passwords", "federator-gateway", "alice")
    acl, secret = write_acl(tmp_path / "acl"), write_secret(tmp_path / "secret")
    us = {"username": "federator-gateway", "password_file": str(secret)}
    return (f"password_file {passwords}", f"acl_file {acl}"), us


@pytest.mark.usefixtures("turns_told")
async def test_without_an_acl_no_gateway_hands_out_what_its_clients_published(plain, tmp_path):
    brokers, agents = await line_of_three(plain, Office(tmp_path / "office"))
    config = GatewayConfig("gate", {1: brokers[0].url}, federation="fed", more=GUARDED)
    async with GatewayProcess(tmp_path / "gate", config) as gateway:
        publisher = Publisher(gateway.port, "private/1", client_id="pub", qos=1)
        friend = Subscriber(brokers[2].port, "private/#", client_id="friend", qos=1)
        stranger = Asker(brokers[0].port)
        async with running(publisher, friend, stranger):
            await until(lambda: named(gateway, "acl.missing"), "it is said loudly")
            await gets_through(publisher, friend)
            await until(lambda: publisher.sent > 100 and stranger.link.subscribed, "published")
            watched = (*agents, gateway)
            async with undisturbed("12 recall", publisher, friend, processes=watched):
                for _ in range(QUESTIONS):
                    await until(stranger.ask, "there is room")
                    await asyncio.sleep(0)
                await gets_through(publisher, friend)  # time for an answer

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
