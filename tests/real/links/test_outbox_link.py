"""The connection into an outbox: what has no credit waits, in turns, within a bound."""

import contextlib

import pytest
from mqtt5 import PublishPacket

from federator.protocol.links.outbox import Credit
from federator.runtime.links.outbox_link import OutboxLink
from federator.runtime.mqtt.link import Endpoint, LinkObserver
from tests.real.client import Client
from tests.real.flow import running
from tests.real.polling import until

TOPIC = "$fed/fed/outbox/1/data"
QUEUE_BYTES = 65_536
WINDOW = 4
"""Packets."""


class Keeper(LinkObserver):
    """An outbox link whose credit is small, and the marks that it wanted to make."""

    def __init__(self, port):
        self.marks = []
        self.link = OutboxLink(
            Endpoint("127.0.0.1", port),
            self,
            client_id="keeper",
            will=None,
            keep_alive_s=10,
            reconnect_min_ms=100,
            reconnect_max_ms=200,
            send_queue_bytes_max=QUEUE_BYTES,
            window_bytes=10**9,
        )
        self.link.mark = lambda: self.marks.append(self.link.credit.mark())

    def say(self, payload, *, urgent=False):
        packet = PublishPacket(TOPIC, payload).write()
        return self.link.write_packets((packet,), 1, urgent=urgent)


@contextlib.asynccontextmanager
async def kept(broker):
    keeper = Keeper(broker.port)
    ear = Client(broker.port, "ear", TOPIC, qos=0)
    async with running(keeper, ear):
        await until(lambda: keeper.link.connected and ear.link.subscribed, "connected")
        keeper.link.credit = Credit(window_bytes=10**9, window_packets=WINDOW)
        yield keeper, ear


async def test_what_has_no_credit_waits_and_goes_when_more_was_taken(broker):
    async with kept(broker) as (keeper, ear):
        for number in range(10):
            assert keeper.say(b"%d" % number)
        assert keeper.say(b"urgent", urgent=True)
        await until(lambda: len(ear.came) == WINDOW, "the window arrives")
        assert not keeper.link.idle
        assert keeper.link.queued_bytes > keeper.link.urgent_bytes > 0
        before = keeper.link.stint

        while not keeper.link.idle:
            keeper.link.on_taken(*keeper.marks[-1])
        await until(lambda: len(ear.came) == 11, "all of it arrives")

    came = [payload for _, payload in ear.came]
    assert [each for each in came if each != b"urgent"] == [b"%d" % n for n in range(10)]
    assert came.index(b"urgent") < WINDOW + 2
    assert keeper.link.stint != before


async def test_beyond_its_bound_it_refuses_and_counts(broker):
    payload = b"x" * 10_000
    async with kept(broker) as (keeper, _):
        taken = [keeper.say(payload) for _ in range(20)]

        fit = WINDOW + QUEUE_BYTES // 10_000
        assert taken == [True] * fit + [False] * (20 - fit)
        assert keeper.link.counters.publishes_dropped == 20 - fit
        keeper.link.discard()
        assert keeper.link.idle
        assert keeper.link.counters.publishes_dropped == 20 - WINDOW


async def test_a_new_connection_begins_with_full_credit_and_forgets_what_waited(broker):
    async with kept(broker) as (keeper, _):
        for _ in range(10):
            keeper.say(b"old")

        keeper.link.drop("for this test")
        await until(lambda: keeper.link.counters.connects == 2, "it is back")

        assert keeper.link.queued_bytes == 0
        assert keeper.link.credit.owed_packets == 0
        assert keeper.link.credit.open


@pytest.mark.parametrize("urgent", [False, True])
async def test_without_a_connection_nothing_is_taken(broker, urgent):
    assert not Keeper(broker.port).say(b"x", urgent=urgent)
