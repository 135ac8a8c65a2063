"""A broker that takes only short packets holds up nothing, and what it never takes is named."""

import asyncio
from collections import Counter

import pytest

from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import QUICK, eventually, linked
from tests.real.polling import until

SHORT = 70
WIDE = "max_packet_size 16777216"
"""Mosquitto 2.1 takes 2,000,000 bytes unless told otherwise."""

ROOMY = "max_queued_messages 100000"
"""Mosquitto 2.0.11 hangs up after its answer to a payload that is too long where this is 0."""


class Sizes(Client):
    """Notes what comes, by topic, and how long it is."""

    def __init__(self, port, pattern):
        super().__init__(port, f"sizes-{port}", pattern)
        self.came = Counter()

    def on_publishes(self, link, chunk, publishes):
        self.came.update((packet.topic, len(packet.payload)) for packet, _, _ in publishes)


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        (1_000, "max_packet_size"),
        (1_000, "message_size_limit"),
        (100_000, "max_packet_size"),
        (100_000, "message_size_limit"),
        (2_000_000, "max_packet_size"),
        (2_000_000, "message_size_limit"),
    ],
)
async def test_one_publication_that_is_too_long_is_named_and_all_others_arrive(plain, limit, kind):
    """Brokers 1, 2 and 3 in a line; the second, between them, takes only short packets.

    It says so, or tells nobody (``message_size_limit``).
    """
    one = await plain.broker(extra_config=(*QUICK, WIDE))
    two = await plain.broker(extra_config=(*QUICK, ROOMY, f"{kind} {limit}"))
    three = await plain.broker(extra_config=(*QUICK, WIDE))
    first = await plain.agent(1, one, two.url)
    metrics_on = "[metrics]\nenabled = true"
    second = await plain.agent(2, two, one.url, three.url, more=metrics_on)
    third = await plain.agent(3, three, two.url)
    await eventually(first, linked(2), "linked")
    await eventually(second, linked(1, 3), "linked")
    await eventually(third, linked(2), "linked")
    near, far = Sizes(two.port, "t/#"), Sizes(three.port, "t/#")
    source = Client(one.port, "source").link
    running = [asyncio.create_task(link.run()) for link in (near.link, far.link, source)]

    def publish(topic, size, *, qos=1):
        assert source.publish(topic, bytes(size), qos=qos)

    try:
        await until(lambda: near.link.subscribed and far.link.subscribed, "subscribed")

        def warm():
            source.publish("t/warm", b"", qos=0)
            return near.came["t/warm", 0] and far.came["t/warm", 0]

        await until(lambda: source.connected and warm(), "the way is open")
        publish("t/big", limit + 500_000)
        for number in range(SHORT):
            publish(f"t/small/{number % 2}", 100 + number)
        publish("t/big/again", limit + 500_000)
        publish("t/last", 7)
        publish("t/batch", limit // 3)
        loose = bytes(limit + 500_000)
        await until(lambda: source.publish("t/loose", loose), "there is room")

        wanted = {(f"t/small/{number % 2}", 100 + number) for number in range(SHORT)}
        wanted |= {("t/last", 7), ("t/batch", limit // 3)}
        await until(lambda: wanted <= near.came.keys(), "all others at the narrow broker")
        wanted |= {(f"t/{name}", limit + 500_000) for name in ("big", "big/again", "loose")}
        await until(lambda: wanted <= far.came.keys(), "all at the broker behind it")
        told = {event["topic"]: event for event in named(second, "connection.publication_rejected")}
        assert {"t/big", "t/big/again"} <= told.keys()
        assert told["t/big"]["bytes"] > limit + 500_000
        page = await metrics(f"http://127.0.0.1:{second.http_port}")
        assert values(page, "federator_publications_rejected_total")[""] >= 2
        assert not any(topic.startswith("t/big") for topic, _ in near.came)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
