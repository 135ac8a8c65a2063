"""What a collector does with what its sources tell."""

import time
from types import SimpleNamespace

from mqtt5 import PublishPacket

from federator.collector.sources import Source
from federator.config.brokers import BrokerAddress
from tests.real.polling import until

LONG_S = 0.02


async def test_a_flood_of_guides_does_not_hold_the_loop():
    judged = []

    def judge(source, topic, payload):
        time.sleep(LONG_S)
        judged.append(payload)

    listener = SimpleNamespace(
        federation="fed", on_guide=judge, malformed=0, extra_topics=(), send_queue_bytes_max=1_000
    )
    address = BrokerAddress(url="mqtt://here")
    source = Source(listener, address, client_id="name")
    source.link = SimpleNamespace(connected=True)
    said = [b"%d" % number for number in range(5)]

    source.on_publishes(
        source.link, None, [(PublishPacket("$fed/fed/guide", each), 0, 0) for each in said]
    )

    assert judged == said[:1], "the others wait for their turn"
    await until(lambda: judged == said, "all are judged")
