"""What clients missed: asked of the agent beside their new broker and of gateways, and sent."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.gateway.clients import catch_up as module
from federator.gateway.clients.catch_up import CatchUp
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session.journal import Journal
from federator.gateway.session.subscriptions import Subscription, Subscriptions
from federator.gateway.wire import NO_LOCAL, V5, write_publish
from federator.protocol.messages.gateways import Fetched, Recall, Recalled
from federator.runtime.process.clocks import monotonic_ms
from tests.real.polling import until

BROKER = 1
RECENT_MS = 8_000
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

    def give_missed(self, publications, *, since_ms):
        self.given.append([(each.payload, each.client) for each in publications])


@pytest.fixture
def broker():
    asked, answered = [], []
    return SimpleNamespace(
        id=BROKER,
        up=True,
        asked=asked,
        ask_agent=asked.append,
        ask_others=asked.append,
        answered=answered,
        answer=lambda *answer: answered.append(answer),
    )


@pytest.fixture
def journal():
    return Journal(recent_ms=60_000, bytes_max=1_000_000)


@pytest.fixture
def gateway(broker, journal):
    return SimpleNamespace(
        settings=SimpleNamespace(name="gate", failover=SimpleNamespace(recent_ms=RECENT_MS)),
        brokers={BROKER: broker},
        journal=journal,
        counters=GatewayCounters(),
        every=[],
    )


@pytest.fixture
async def catch_up(gateway):
    async with asyncio.TaskGroup() as tasks:
        yield CatchUp(gateway, first=100, start=tasks.create_task)


def publish(journal, payload, *, ago_ms=0):
    """A client of this gateway publishes, and its broker acknowledges it."""
    now_ms = monotonic_ms() - ago_ms
    journal.acknowledged([packet(payload)], client="c", version=V5, broker=BROKER, now_ms=now_ms)


async def test_clients_that_move_together_share_a_question_and_each_is_given_all_that_was_found(
    catch_up, broker
):
    clients = [Client(broker, "a/#"), Client(broker, "a/#", "b", "$share/g/c")]
    for client in clients:
        catch_up.ask(client)
    await until(lambda: broker.asked, "the agent is asked")
    (fetch,) = broker.asked
    assert (fetch.gateway, fetch.number, fetch.filters) == ("gate", 101, ("a/#", "b"))
    assert fetch.oldest_ms >= module.BEFORE_MS

    catch_up.on_found(BROKER, Fetched(101, (packet(b"1"),)))
    await until(lambda: all(client.given for client in clients), "it is given")
    catch_up.on_found(BROKER, Fetched(101, (packet(b"2"),)))
    await until(lambda: all(len(client.given) == 2 for client in clients), "more is given")

    for client in clients:
        assert client.given == [[(b"1", "")], [(b"1", ""), (b"2", "")]]


@pytest.mark.parametrize("ago_ms", [0, module.BEFORE_MS + 200])
async def test_who_published_it_here_is_known(catch_up, broker, journal, ago_ms):
    """So that a client with No Local is not given what it published itself.

    The agent's log may have it a little later than its PUBACK came here.
    """
    client = Client(broker, "a/#", options=NO_LOCAL)
    publish(journal, b"1", ago_ms=ago_ms)
    catch_up.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    catch_up.on_found(BROKER, Fetched(101, (packet(b"1"), packet(b"2"))))
    await until(lambda: client.given, "it is given")

    assert client.given == [[(b"1", "c"), (b"2", "")]]


async def test_answers_to_nobody_or_from_elsewhere_are_nothing(catch_up, broker):
    client = Client(broker, "a/#")
    catch_up.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    catch_up.on_found(BROKER + 1, Fetched(101, (packet(b"1"),)))
    catch_up.on_found(BROKER, Fetched(100, (packet(b"1"),)))
    catch_up.on_found(BROKER, Fetched(101, (*NO_PUBLICATIONS, packet(b"2"))))
    await until(lambda: client.given, "it is given")

    assert client.given == [[(b"2", "")]]


async def test_after_two_deaths_in_a_row_it_looks_back_to_the_first(catch_up, broker, monkeypatch):
    monkeypatch.setattr(module, "OPEN_S", 0.3)
    client = Client(broker, "a/#")
    first_ms = client.lost_ms = monotonic_ms() - 400
    catch_up.ask(client)
    await until(lambda: len(broker.asked) == 1, "the agent is asked")

    catch_up.ask(client)  # its next broker died, too
    await until(lambda: len(broker.asked) == 2, "the agent is asked again")
    assert client.lost_ms == first_ms

    await until(lambda: client.lost_ms is None, "nobody waits any more")


async def test_nobody_is_asked_for_clients_of_qos_0_or_such_that_did_not_lose_a_broker(
    catch_up, broker
):
    quiet, moved, last = Client(broker, "a", granted=0), Client(broker, "b"), Client(broker, "c")
    moved.lost_ms = None
    for client in (quiet, moved, last):
        catch_up.ask(client)
    await until(lambda: broker.asked, "the agent is asked")

    assert [fetch.filters for fetch in broker.asked] == [("c",)]
    assert quiet.lost_ms is None


@pytest.fixture
def hasty(monkeypatch):
    for name, value in (("PATIENCE", 0.01), ("WATCH_MS", 400), ("AGAIN_S", 0.05)):
        monkeypatch.setattr(module, name, value)


async def test_after_a_death_all_clients_get_what_clients_of_any_gateway_published_around_it(
    hasty, catch_up, gateway, broker, journal
):
    client = Client(broker, "a/#", "$share/g/c")
    gateway.every.append(client)
    publish(journal, b"long before", ago_ms=module.BEFORE_MS + 100)
    publish(journal, b"ours")

    catch_up.on_death()
    catch_up.on_death()  # a client says it for each broker that it lost
    await until(lambda: broker.asked, "other gateways are asked")
    (recall,) = broker.asked
    assert (recall.gateway, recall.number, recall.filters) == ("gate", 101, ("a/#",))
    assert recall.oldest_ms - recall.newest_ms == module.ROUND * RECENT_MS
    assert recall.oldest_ms < RECENT_MS
    await until(lambda: client.given, "ours is given")
    catch_up.on_found(None, Recalled("other", 101, (packet(b"theirs"),)))
    await until(lambda: len(client.given) == 2, "theirs is given, too")

    assert client.given == [[(b"ours", "c")], [(b"ours", "c"), (b"theirs", "")]]
    assert client.lost_ms is not None, "its agent is asked about that"


async def test_late_and_empty_answers_of_gateways_give_nothing_once_more(
    hasty, catch_up, gateway, broker, journal, monkeypatch
):
    monkeypatch.setattr(module, "GATEWAYS_S", 0.4)
    client = Client(broker, "a/#")
    gateway.every.append(client)
    publish(journal, b"ours")
    catch_up.on_death()
    await until(lambda: client.given, "ours is given")

    catch_up.on_found(None, Recalled("other", 101, ()))
    catch_up.on_found(None, Recalled("other", 101, NO_PUBLICATIONS))
    await asyncio.sleep(0.5)
    catch_up.on_found(None, Recalled("other", 101, (packet(b"late"),)))
    await asyncio.sleep(0.3)

    assert client.given == [[(b"ours", "c")]]


async def test_another_gateway_is_answered_once_and_gets_what_its_clients_want(
    catch_up, broker, journal
):
    publish(journal, b"1")
    recall = Recall("other", 7, ("a/+",), oldest_ms=1_000, newest_ms=0)

    for question in (recall, recall, Recall("gate", 8, ("a/+",), 1_000, 0)):
        catch_up.on_recall(question, broker)
    catch_up.on_recall(Recall("other", 9, ("b",), 1_000, 0), broker)

    ((gateway, answer),) = broker.answered
    assert (gateway, answer.gateway, answer.number) == ("other", "gate", 7)
    assert len(answer.packets) == 1
