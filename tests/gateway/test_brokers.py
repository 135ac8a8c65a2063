"""What is said to a gateway on a broker: to judge it takes long, and the loop goes on meanwhile."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from mqtt5 import PublishPacket

from federator.config.reading import load_gateway
from federator.gateway.brokers import Broker
from federator.protocol.messages.gateways import Settled, Taken
from federator.protocol.messages.json_codec import encode
from federator.runtime.mqtt.inbox import TURN_S
from tests.real.polling import until

CONFIG = """
federation = "fed"
name = "g"
[[brokers]]
id = 1
url = "mqtt://127.0.0.1:1883"
[[listeners]]
port = 1884
"""


class Slow:
    """Believes agent 1's words, which takes long."""

    signs = True

    def sign(self, topic, payload, to):
        return payload

    def is_agents(self, broker, topic, payload):
        time.sleep(TURN_S)
        return broker == 1


@pytest.fixture
def told():
    return []


@pytest.fixture
def broker(tmp_path, told):
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG)
    settings = load_gateway(path, {})
    observer = SimpleNamespace(
        on_taken=lambda *what: told.append(what),
        on_settled=lambda *what: told.append(what),
        counters=SimpleNamespace(malformed=0),
    )
    broker = Broker(settings.brokers[0], settings, observer, Slow())
    broker.link = SimpleNamespace(connected=True)
    return broker


def says(broker, *words):
    """Each of ``words`` comes, all in one read."""
    kinds = {Taken: "taken", Settled: "settled"}
    packets = [PublishPacket(f"$fed/fed/{kinds[type(w)]}/g", encode(w)) for w in words]
    broker.on_publishes(broker.link, memoryview(b""), [(packet, 0, 0) for packet in packets])


async def test_the_loop_has_its_turn_between_words_that_take_long(broker, told):
    says(broker, Taken(1), Taken(2), Settled(3, True, (4, 5)))
    assert told == [(1, 1)]

    await until(lambda: len(told) == 5, "all are read")
    assert told == [(1, 1), (1, 2), *((1, token, True) for token in (3, 4, 5))]


async def test_what_was_said_before_the_connection_ended_is_not_read(broker, told):
    says(broker, Taken(1), Taken(2))

    broker.link.connected = False
    for _ in range(10):
        await asyncio.sleep(0)

    assert told == [(1, 1)]


@pytest.mark.parametrize(("reason", "unheard"), [(0x00, False), (0x10, True), (0x87, True)])
def test_a_question_that_no_agent_can_hear_is_answered_at_once(broker, told, reason, unheard):
    asked = []
    broker.link.publish = lambda *_, **how: asked.append(how) or True

    assert broker.ask_settled(7, ("a",))
    asked[0]["on_answer"](reason)

    assert asked[0]["qos"] == 1
    assert told == ([(1, 7, False)] if unheard else [])


def test_nothing_is_asked_of_a_broker_that_is_away(broker):
    broker.link.connected = False

    assert not broker.ask_settled(7, ("a",))
