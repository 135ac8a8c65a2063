"""How soon a subscription made on one broker is served from every other: no timer is in the way.

Clients publish all the time on every other broker of a line. The first publication that arrives
tells when its broker served the subscription: when it was published, less when the subscription was
sent, less the delay of the links that the news had to cross. The figures are logged:
``pytest --log-cli-level=info tests/real/data/test_service_time.py``.
"""

import logging
import time
from statistics import median

import mqtt5
import pytest

from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.agent_log import assert_calm
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import QUICK
from tests.real.polling import until

BROKERS = 4
LINK_DELAY_MS = 10
RATE_HZ = 500
ROUNDS = 10
WANTED_S = 0.05
"""What we promise beside the link delays; asserted tenfold, for a busy machine."""

_log = logging.getLogger(__name__)


class Movable(Publisher):
    """Its topic can be changed."""

    def publish_on(self, topic):
        self._topic = topic


class Sorting(Subscriber):
    """Counts what came by topic: ``firsts`` has the first number of each."""

    def __init__(self, port, *, client_id):
        super().__init__(port, "nothing/yet", client_id=client_id)
        self.firsts = {}

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            self.firsts.setdefault(packet.topic, int(packet.payload))


async def one_round(subscriber, publishers, topics):
    """Subscribe to what is being published; returns when each broker served it, in seconds."""
    for n, publisher in publishers.items():
        publisher.publish_on(topics[n])
    sent = {n: publisher.sent + 10 for n, publisher in publishers.items()}
    await until(lambda: all(publishers[n].sent > sent[n] for n in sent), "it is being published")

    began_s = time.monotonic()
    subscriber.link.subscribe([mqtt5.TopicFilter(f"{topics[1].split('/')[0]}/#")])
    firsts = subscriber.firsts
    await until(lambda: set(topics.values()) <= set(firsts), "served from everywhere")
    return {n: publishers[n].sent_at_s[firsts[topics[n]]] - began_s for n in topics}


@pytest.fixture
async def line(tmp_path):
    async with RunningGrid(
        Grid(1, BROKERS, 0), tmp_path, link_delay_ms=LINK_DELAY_MS, broker_options=QUICK
    ) as grid:
        yield grid
        for agent in grid.agents.values():
            assert_calm(agent)


async def test_a_new_subscription_is_served_from_every_other_broker_at_once(line):
    others = range(1, BROKERS)
    publishers = {
        n: Movable(line.brokers[n].port, "x", client_id=f"p{n}", rate_hz=RATE_HZ) for n in others
    }
    subscriber = Sorting(line.brokers[0].port, client_id="sub")
    added_s = {n: [] for n in others}
    async with running(subscriber, *publishers.values()):
        await until(lambda: subscriber.link.subscribed, "subscribed")
        for round_ in range(ROUNDS):
            topics = {n: f"round{round_}/{n}" for n in others}
            for n, served_s in (await one_round(subscriber, publishers, topics)).items():
                added_s[n].append(served_s - n * LINK_DELAY_MS / 1_000)

    for n, rounds in added_s.items():
        told = " ".join(f"{1_000 * each:.1f}" for each in sorted(rounds))
        _log.info("over %d links, in ms beside their delays: %s", n, told)
    # A test's own process that had to wait is late in one round; what the agents do, in all.
    assert max(median(rounds) for rounds in added_s.values()) <= 10 * WANTED_S
