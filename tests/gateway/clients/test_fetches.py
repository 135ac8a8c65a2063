"""What clients that moved missed: asked of the agent beside their new broker, and given to them."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.gateway.clients import fetches as module
from federator.gateway.clients.fetches import Fetches
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session.journal import Journal
from federator.gateway.session.subscriptions import Subscription, Subscriptions
from federator.gateway.wire import NO_LOCAL, V5, write_publish
from federator.protocol.messages.gateways import Fetched
from federator.runtime.process.clocks import monotonic_ms
from tests.real.polling import until

BROKER = 1
NO_PUBLICATIONS = (
    b"",
    b"\x32",
    b"\x32\x00",
    b"\xc0\x00",
    write_publish("a/b", b"x", version=V5, qos=0, packet_id=0),
    write_publish("a/b", b"x", version=V5, qos=1, packet_id=1)[:-4],
    write_publish("a/b", b"x", version=V5, qos=1, packet_id=1) * 2,
    write_publish("$fed/fed/data", b"x", version=V5, qos=1, packet_id=1),
    write_publish("a/+", b"x", version=V5, qos=1, packet_id=1),
    write_publish("a/b", b"x", version=V5, qos=1, packet_id=1).replace(b"a/b", b"a\xff\xff"),
)


def packet(payload):
    return write_publish("a/b", payload, version=V5, qos=1, packet_id=1)


class Client:
    """One that lost its broker just now, and stands at another."""

    def __init__(self, broker, *filters, granted=1, options=0):
        self.broker = broker
        self.lost_ms = monotonic_ms()
        self.given = []
        subscriptions = Subscriptions(V5, filters_max=10)
        for filter in filters:
            subscriptions.granted[filter] = Subscription(options, 0, granted, 0)
        self.session = SimpleNamespace(subscriptions=subscriptions)

    def give_missed(self, from_ms, to_ms, *, qos, others):
        assert to_ms < from_ms, "the journal has its own checks"
        self.given.append([(each.payload, each.client) for each in others])


@pytest.fixture
def broker():
    asked = []
    return SimpleNamespace(id=BROKER, asked=asked, ask_agent=asked.append)


@pytest.fixture
def journal():
    return Journal(recent_ms=60_000, bytes_max=1_000_000)


@pytest.fixture
async def fetches(broker, journal):
    async with asyncio.TaskGroup() as tasks:
        yield Fetches(
            "gate",
            {BROKER: broker},
            journal,
            GatewayCounters(),
            first=100,
            start=tasks.create_task,
        )


async def test_clients_that_move_together_share_a_question_and_each_is_given_all_that_was_found(
    fetches, broker
):
    clients = [Client(broker, "a/#"), Client(broker, "a/#", "b", "$share/g/c")]
    for client in clients:
        fetches.ask(client)
    await until(lambda: broker.asked, "the agent is asked")
    (fetch,) = broker.asked
    assert (fetch.gateway, fetch.number, fetch.filters) == ("gate", 101, ("a/#", "b"))
    assert fetch.oldest_ms >= module.BEFORE_MS

    fetches.on_fetched(BROKER, Fetched(101, (packet(b"1"),)))
    await until(lambda: all(client.given for client in clients), "it is given")
    fetches.on_fetched(BROKER, Fetched(101, (packet(b"2"),)))
    await until(lambda: all(len(client.given) == 2 for client in clients), "more is given")

    for client in clients:
        assert client.given == [[(b"1", "")], [(b"1", ""), (b"2", "")]]


async def test_who_published_it_here_is_known(fetches, broker, journal):
    """So that a client with No Local is not given what it published itself."""
    client = Client(broker, "a/#", options=NO_LOCAL)
    now_ms = monotonic_ms()
    journal.acknowledged([packet(b"1")], client="c", version=V5, broker=BROKER, now_ms=now_ms)
    fetches.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    fetches.on_fetched(BROKER, Fetched(101, (packet(b"1"), packet(b"2"))))
    await until(lambda: client.given, "it is given")

    assert client.given == [[(b"1", "c"), (b"2", "")]]


async def test_answers_to_nobody_or_from_elsewhere_are_nothing(fetches, broker):
    client = Client(broker, "a/#")
    fetches.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    fetches.on_fetched(BROKER + 1, Fetched(101, (packet(b"1"),)))
    fetches.on_fetched(BROKER, Fetched(100, (packet(b"1"),)))
    fetches.on_fetched(BROKER, Fetched(101, (*NO_PUBLICATIONS, packet(b"2"))))
    await until(lambda: client.given, "it is given")

    assert client.given == [[(b"2", "")]]


async def test_after_two_deaths_in_a_row_it_looks_back_to_the_first(fetches, broker, monkeypatch):
    monkeypatch.setattr(module, "OPEN_S", 0.3)
    client = Client(broker, "a/#")
    first_ms = client.lost_ms = monotonic_ms() - 400
    fetches.ask(client)
    await until(lambda: len(broker.asked) == 1, "the agent is asked")

    fetches.ask(client)  # its next broker died, too
    await until(lambda: len(broker.asked) == 2, "the agent is asked again")
    assert client.lost_ms == first_ms

    await until(lambda: client.lost_ms is None, "nobody waits any more")


async def test_nobody_is_asked_for_clients_of_qos_0_or_such_that_did_not_lose_a_broker(
    fetches, broker
):
    quiet, moved, last = Client(broker, "a", granted=0), Client(broker, "b"), Client(broker, "c")
    moved.lost_ms = None
    for client in (quiet, moved, last):
        fetches.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    assert [fetch.filters for fetch in broker.asked] == [("c",)]
    assert quiet.lost_ms is None
