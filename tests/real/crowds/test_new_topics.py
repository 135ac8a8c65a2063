"""Clients publish as fast as brokers take it, each time on another topic: turns stay short.

docs/security.md, "Threats and answers"; docs/ARCHITECTURE.md, "The link".
"""

import asyncio
import itertools

import pytest

from tests.real.client import Client
from tests.real.crowds.crowd import Rude, publish
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through, linked
from tests.real.polling import ASK_S, until
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import undisturbed

SINGLE = [f"f/{number:x}" for number in range(500)]
"""Filters without wildcards: each topic has a route of its own, and its own frames."""

TRIED = b"try"
UNLIMITED = ("max_inflight_messages 0",)
"""For brokers: an agent may be sent all there is at QoS 1 and 2, not 20 at a time."""


@pytest.fixture
async def pair(plain, tmp_path):
    """Two brokers and signed agents."""
    office = Office(tmp_path / "office")
    brokers = [await plain.broker(extra_config=(*QUICK, *DEEP, *UNLIMITED)) for _ in range(2)]
    agents = []
    for id_, broker in enumerate(brokers, 1):
        neighbours = [brokers[0].url] if id_ > 1 else []
        agents.append(
            await plain.agent(id_, broker, *neighbours, security="signed", more=office.section(id_))
        )
    for agent, neighbour in zip(agents, (2, 1), strict=True):
        await eventually(agent, linked(neighbour), "linked")
    return brokers, agents


class Ear(Client):
    """Counts what it hears of the flood, and hears before it whether it will come."""

    def __init__(self, port, filters):
        super().__init__(port, "ear", *filters)
        self.tried = set()
        self.count = 0
        self._wanted = {each.replace("#", "x") for each in filters}

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            if packet.payload == TRIED:
                self.tried.add(packet.topic)
            else:
                self.count += 1

    async def reached_by(self, client):
        """Returns when all it wants comes from ``client``."""
        while missing := self._wanted - self.tried:
            client.write(b"".join(publish(topic, TRIED) for topic in missing))
            await asyncio.sleep(ASK_S)


def new_topics():
    return (f"f/{number:x}" for number in itertools.count())


@pytest.mark.parametrize(
    ("row", "filters", "topics", "bursts", "options"),
    [
        ("17 new topics, QoS 0", ["f/#"], new_topics(), 10 * [10_000], {}),
        ("17 new topics, QoS 1", ["f/#"], new_topics(), 15 * [4_000], {"qos": 1}),
        ("17 new retained topics", ["f/#"], new_topics(), 10 * [3_000], {"retain": True}),
        ("17 many routes, QoS 0", SINGLE, itertools.cycle(SINGLE), 10 * [2_000], {}),
        ("17 many routes, QoS 1", SINGLE, itertools.cycle(SINGLE), 25 * [2_000], {"qos": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.few(2)
async def test_whatever_is_published_turns_stay_short(pair, row, filters, topics, bursts, options):
    brokers, agents = pair
    steady = Subscriber(brokers[1].port, "steady/#", client_id="steady", qos=1)
    publisher = Publisher(brokers[0].port, "steady/1", client_id="steady-pub", qos=1, rate_hz=50)
    ear = Ear(brokers[1].port, filters)
    async with running(steady, publisher, ear), Rude(brokers[0].port, "flood") as flood:
        await gets_through(publisher, steady)
        await ear.reached_by(flood)
        async with undisturbed(row, publisher, steady, processes=agents):
            wanted = 0
            for at_once in bursts:  # each when the last has crossed: honest traffic waits behind it
                numbered = zip(range(1, at_once + 1), topics, strict=False)
                flood.write(b"".join(publish(t, b"1", packet_id=n, **options) for n, t in numbered))
                wanted += at_once
                await until(lambda n=wanted: ear.count >= n, "all of it crosses")
