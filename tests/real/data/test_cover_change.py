"""Interest that changes under traffic: a publication still enters the federation exactly once.

A broker sends one copy per matching subscription, and a client cannot swap two subscriptions at
once. Here a remote client keeps one filter, so that every publication is wanted all the time, and
other filters come and go around it, so that the origin's agent must widen and narrow what it
subscribes.
"""

import asyncio
import contextlib

import aiomqtt
import mqtt5
import pytest

from federator.errors import LinkError
from federator.runtime.data.cover_subscriber import SessionFilters
from federator.runtime.storage.filter_file import SUBSCRIBED, FilterFile
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK
from tests.real.polling import until

TOPIC = "a/b"
CHANGES = ("a/#", "+/b", "a/+", "+/+", "a/b/#")
"""Each overlaps the filter that is kept and most of the others."""

ROUNDS = 6
PUBLISHERS = 6
TICK_S = 0.007  # not a part of the pauses between changes, or the two keep one phase
PER_TICK = 4  # of each publisher: 3,400 a second in all
TRIES = 20  # until a change meets traffic, which one time through nearly always does


class Source(Client):
    """Publishes every ``PUBLISHERS``-th number, a few at a time, until stopped."""

    def __init__(self, port, first, *, qos):
        super().__init__(port, f"source-{first}")
        self.numbers = []
        self._next = first
        self._qos = qos

    async def run(self):
        while True:
            for _ in range(PER_TICK):
                assert self.link.publish(TOPIC, b"%d" % self._next, qos=self._qos)
                self.numbers.append(self._next)
                self._next += PUBLISHERS
            await asyncio.sleep(TICK_S)


@contextlib.asynccontextmanager
async def publishing(sources):
    tasks = [asyncio.create_task(source.run()) for source in sources]
    yield
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended


async def come_and_go(client):
    """Subscribe and unsubscribe everything, one by one, then overlapping pairs in one go."""
    for number in range(ROUNDS):
        for filter, other in zip(CHANGES, CHANGES[1:] + CHANGES[:1], strict=True):
            await client.subscribe(filter)
            await asyncio.sleep(0.01 * (number % 3))
            await client.subscribe(other)
            await client.unsubscribe(filter)
            await asyncio.sleep(0.01 * (number % 2))
            await client.unsubscribe(other)
            await asyncio.sleep(0.02)


@pytest.fixture
async def pair(tmp_path):
    options = {"broker_options": (*QUICK, *DEEP), "redundancy": 1}
    async with RunningGrid(Grid(1, 2), tmp_path, link_delay_ms=0, **options) as made:
        yield made


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.few(1)
async def test_publications_arrive_once_while_overlapping_filters_come_and_go(pair, qos):
    here, there = (broker.port for broker in pair.brokers.values())
    constant = Subscriber(there, TOPIC, client_id="constant", qos=qos)
    sources = [Source(here, n, qos=qos) for n in range(PUBLISHERS)]
    async with running(constant, *sources), aiomqtt.Client("127.0.0.1", there) as fickle:
        await until(lambda: all(s.link.connected for s in sources), "publishers are connected")
        async with publishing(sources[:1]):
            await until(lambda: len(constant.came) > 20, "traffic flows")
        before = max(constant.came)

        (origin, *_) = pair.agents.values()
        copies = 0
        async with publishing(sources):
            for _ in range(TRIES):
                await come_and_go(fickle)
                copies = (await origin.status())["counters"]["copies_dropped"]
                if copies or qos == 0:
                    break
        sent = {n for source in sources for n in source.numbers if n > before}
        with contextlib.suppress(LinkError):
            await until(lambda: sent <= set(constant.came), "all have come")

        lost = sent - set(constant.came)
        twice = [n for n, times in constant.came.items() if times > 1]
        assert (len(lost), len(twice)) == (0, 0), f"lost and twice, of {len(sent)}"
        assert copies or qos == 0, "no change met a copy, and QoS 1 and 2 make copies for sure"


class Arriving(Client):
    """Stands for an agent that is killed in a transition: its session keeps what it subscribed."""

    def __init__(self, id, port):
        kept = {"clean_start": False, "session_expiry_s": 60}
        super().__init__(port, f"federator-{id}-data", acknowledge=False, **kept)
        self.link.subscribe([mqtt5.TopicFilter("a/#", max_qos=mqtt5.QoS(2))], identifier=7)


@pytest.mark.parametrize("qos", [1, 2])
async def test_publications_arrive_once_that_a_session_queued_after_a_kill_in_a_transition(
    pair, qos
):
    here, there = pair.brokers.values()
    constant = Subscriber(there.port, TOPIC, client_id="constant", qos=qos)
    source = Publisher(here.port, TOPIC, client_id="source", rate_hz=100, qos=qos)
    async with running(constant, source):
        await until(lambda: len(constant.came) > 20, "traffic flows")
        source.pause()
        # Not that all have come: what left before the interest had spread is owed to nobody.
        await until(lambda: source.sent - 1 in constant.came, "the last one arrives")
        first = source.sent

        id, agent = next(iter(pair.agents.items()))
        agent.kill9()
        listed = FilterFile(agent.state_dir / "custody", SUBSCRIBED)
        SessionFilters(listed).note(["a/#"])
        listed.close()
        arriving = Arriving(id, here.port)
        async with running(arriving):
            await until(lambda: arriving.link.subscribed, "both filters stand")
        source.resume()
        await until(lambda: source.sent > first + 100, "publications are queued, twice")
        await agent.start()
        await until(lambda: source.sent > first + 400, "more come while it begins")
        source.pause()
        owed = range(first, source.sent)
        with contextlib.suppress(LinkError):
            await until(lambda: constant.came.keys() >= set(owed), "all have come")

    assert {n: times for n, times in constant.came.items() if n >= first} == dict.fromkeys(owed, 1)
