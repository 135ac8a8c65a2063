"""Clients at a hub and two edges, as a description of traffic says, and what crosses because of it.

The hub is broker 2, between the edges 1 and 3.
"""

import asyncio

from lab.papers.placement.edges import Broker, Description
from tests.real.client import Client
from tests.real.polling import until

HUB, EDGES = 2, (1, 3)
TOPICS = 12
ROUNDS = 20
TOLERANCE = 0.05


def described():
    """Each edge: some topics wanted here, some elsewhere, some nowhere."""
    brokers = [Broker(HUB, {}, {"city/1/t1": 1})]
    for here, there in (EDGES, EDGES[::-1]):
        wants = {f"city/{here}/t{k}": 1 for k in range(4)}
        wants |= {f"city/{there}/t{k}": 1 for k in range(3, 6)}
        brokers.append(Broker(here, {f"city/{here}/t{k}": 1.0 for k in range(TOPICS)}, wants))
    return Description(brokers, HUB, ["city/#"])


class Counting(Client):
    """Subscribes at one broker and publishes there; notes how often each topic came."""

    def __init__(self, port, name, filters):
        super().__init__(port, name, *filters)
        self.came = {}

    async def counts(self):
        return dict(self.came)

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            self.came[packet.topic] = self.came.get(packet.topic, 0) + 1


async def crossing(counters, description, clients):
    """Publish everything, wait until every subscription was served; per edge (up, down).

    ``counters`` asks all agents for those of their data paths.
    """
    before = await counters()
    had = {here: dict(client.came) for here, client in clients.items()}
    for number in range(ROUNDS):
        for broker in description.brokers:
            for topic in broker.publishes:
                clients[broker.id].link.publish(topic, b"%d" % number, qos=1)
    promised = [(b.id, f) for b in description.brokers for f in b.subscribes]

    def served():
        return all(
            clients[here].came.get(topic, 0) - had[here].get(topic, 0) == ROUNDS
            for here, topic in promised
        )

    await until(served, "every subscription is served, whatever the policy", deadline_s=60)
    after = await settled(counters)
    return {
        edge: tuple(
            after[edge][counter] - before[edge][counter]
            for counter in ("publications_out", "delivered_publications")
        )
        for edge in EDGES
    }


async def settled(counters):
    """What ``counters`` tells once it stands still: nothing is under way any more."""
    seen = None
    while (now := await counters()) != seen:
        seen = now
        await asyncio.sleep(0.5)
    return now
