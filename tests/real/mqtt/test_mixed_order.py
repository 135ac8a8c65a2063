"""QoS 1 among QoS 2: publications keep their order, however full either side's window is.

Mosquitto 2.0 lets a publication past its queue when a PUBACK comes while a whole window of others
before it is not complete. So a link completes publications in the order in which they came. And a
broker hands QoS 2 on when it is released. So a link publishes QoS 1 after that.
"""

import asyncio
import itertools

from tests.real.client import Client
from tests.real.flow import running
from tests.real.polling import until

SOURCES = 4
BURSTS = 60
BURST = 60  # of each: three windows
AMONG_THEM = 20


def numbers(subscriber):
    """What came, by topic."""
    found = {}
    for topic, payload in subscriber.came:
        found.setdefault(topic, []).append(int(payload))
    return found


async def test_publications_keep_their_order_when_qos_1_comes_among_qos_2(broker):
    subscriber = Client(broker.port, "subscriber", "#", qos=2)
    hasty = Client(broker.port, "hasty")
    sources = [Client(broker.port, f"source-{n}") for n in range(SOURCES)]
    clients = (subscriber, hasty, *sources)
    sent = itertools.count(1)
    async with running(*clients):
        await until(lambda: all(c.link.connected for c in clients), "all are connected")
        for burst in range(BURSTS):
            for number, source in itertools.product(range(BURST), sources):
                topic = source.link.client_id
                assert source.link.publish(topic, b"%d" % (burst * BURST + number), qos=2)
                count = next(sent)
            for number in range(AMONG_THEM):
                await asyncio.sleep(0.0002)
                assert hasty.link.publish("hasty", b"%d" % (burst * AMONG_THEM + number), qos=1)
                count = next(sent)
            await until(lambda n=count: len(subscriber.came) == n, "the burst has come")

    wanted = {f"source-{n}": list(range(BURSTS * BURST)) for n in range(SOURCES)}
    assert numbers(subscriber) == {**wanted, "hasty": list(range(AMONG_THEM * BURSTS))}


async def test_a_burst_of_both_reaches_a_subscriber_of_qos_1_in_order(broker):
    subscriber, source = Client(broker.port, "subscriber", "#"), Client(broker.port, "source")
    async with running(subscriber, source):
        await until(lambda: subscriber.link.connected and source.link.connected, "both connect")
        for number in range(BURSTS * BURST):
            assert source.link.publish("mixed", b"%d" % number, qos=1 + number // 3 % 2)
        await until(lambda: len(subscriber.came) == BURSTS * BURST, "all have come")

    assert numbers(subscriber) == {"mixed": list(range(BURSTS * BURST))}
