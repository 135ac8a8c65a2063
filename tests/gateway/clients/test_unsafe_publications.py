"""What a dead broker had acknowledged waits for its client, or is published by the gateway."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.gateway import wire
from federator.gateway.clients import unsafe_publications
from federator.gateway.clients.unsafe_publications import UnsafePublications
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session.journal import Journal
from federator.gateway.session.orders import State
from tests.real.polling import until

DEAD = 1
ORPHANS_S = 0.01


class Stage:
    """Clients whose broker died, and another broker that takes what the gateway publishes."""

    def __init__(self, *seeking):
        self.asked = 0
        self.published = []
        self.seeking = set(seeking)
        self.counters = GatewayCounters()
        self.journal = Journal(recent_ms=1_000, bytes_max=100_000)
        self.settings = SimpleNamespace(failover=SimpleNamespace(custody_mark_ms=1_000))
        self.brokers = {}
        self.clients = self
        self.serving = [SimpleNamespace(link=SimpleNamespace(publish_packet=self._publish))]
        self.unsafe = UnsafePublications(self)

    def acknowledge(self, client_id):
        """The broker that will die acknowledges a publication."""
        packet = wire.write_publish("t", client_id.encode(), version=4, qos=1, packet_id=7)
        self.journal.acknowledged([packet], client=client_id, version=4, broker=DEAD, now_ms=0)

    def get(self, client_id):
        """The client, which has no broker; ``None`` when it is gone."""
        self.asked += 1
        session = SimpleNamespace(state=State.AWAY)
        return SimpleNamespace(session=session) if client_id in self.seeking else None

    def _publish(self, packet, _id_at, _qos):
        self.published.append(wire.read_payload(bytes(packet), wire.V5)[1])
        return True


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(unsafe_publications, "ORPHANS_S", ORPHANS_S)


async def test_the_gateway_publishes_for_clients_that_are_gone_and_once_for_those_that_give_up():
    stage = Stage("a", "b")
    for client_id in ("a", "b", "gone"):
        stage.acknowledge(client_id)

    stage.unsafe.on_death(DEAD)
    await until(lambda: stage.published == [b"gone"], "nobody else will publish it")
    stage.seeking.clear()

    await until(lambda: stage.published == [b"gone", b"a", b"b"], "nobody waits any more")
    assert stage.counters.republished == 3


async def test_clients_that_wait_together_are_looked_after_by_one_timer():
    stage = Stage("a", "b", "c")
    for client_id in ("a", "b", "c"):
        stage.acknowledge(client_id)

    stage.unsafe.on_death(DEAD)
    await asyncio.sleep(20 * ORPHANS_S)

    assert stage.asked <= 3 * 21, "each is asked once each time"
    assert stage.published == []


async def test_a_client_gets_back_what_its_own_version_can_say():
    stage = Stage("a")
    stage.acknowledge("a")
    stage.unsafe.on_death(DEAD)
    of_5 = SimpleNamespace(client_id="a", session=SimpleNamespace(version=5))
    of_4 = SimpleNamespace(client_id="a", session=SimpleNamespace(version=4))

    assert stage.unsafe.take(of_5) == []
    assert [wire.read_payload(each, 4)[1] for each in stage.unsafe.take(of_4)] == [b"a"]
    assert stage.unsafe.take(of_4) == []
