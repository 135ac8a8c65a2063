"""What stands in the place of agents: their words on real brokers, from a federation in numbers."""

import asyncio
import contextlib

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.errors import DecodeError
from federator.protocol.messages import topics
from federator.protocol.messages.guide import GUIDE_VERSION, Guide, GuideBroker
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.steering import Plan
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.trust.words import Wanted, at
from federator.protocol.types import Now
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms, wall_clock_us
from federator.runtime.trust.words import SignedWords

FED = "fed"
TELL_S = 0.25


class StandIn(LinkObserver):
    """Tells a guide, and the load of one broker while a plan holds there."""

    def __init__(self, id_, broker, urls, world, words=None):
        self.id, self.world, self.words = id_, world, words or SignedWords(None)
        self.book, self.plans, self.refused, self.cleared = PlanBook(FED, id_), [], [], 0
        brokers = tuple(GuideBroker(each, address=url) for each, url in sorted(urls.items()))
        self.guide = Guide(GUIDE_VERSION, FED, id_, id_, 1, 0, brokers)
        self.link = MqttLink(Endpoint("127.0.0.1", broker.port), self, client_id=f"stand-in-{id_}")
        self.plan = topics.plan_topic(FED)
        self.link.subscribe([TopicFilter(self.plan, max_qos=QoS.AT_LEAST_ONCE)])

    @property
    def held(self):
        return self.book.holds(monotonic_ms())

    @property
    def trees(self):
        return self.held.trees if self.held is not None else ()

    def on_up(self, link, session_present):
        topic = topics.guide_topic(FED)
        self.say(topic, self.guide, retain=True)

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            payload = bytes(packet.payload)
            if not payload:
                self.cleared += 1
                if not self.words.judges:
                    self.book.clear()
                continue
            plan = decode(Plan, payload)
            wanted = Wanted("steerer", plan.steerer, to=at(self.id), stays=True)
            if not self.words.believes(self.plan, payload, wanted):
                self.refused.append("not believed")
                continue
            try:
                self.book.take(plan, Now(monotonic_ms(), wall_clock_us()))
            except DecodeError as error:
                self.refused.append(str(error))
            else:
                self.plans.append(plan)

    def say(self, topic, word, *, retain=False):
        payload = self.words.sign(topic, encode(word))
        self.link.write_packets((PublishPacket(topic, payload, retain=retain).write(),), 1)

    async def run(self):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run())
            while True:
                if self.held is not None and self.link.connected:
                    self.world.now_ms = wall_clock_ms()
                    self.say(topics.load_topic(FED), self.world.told(self.id))
                await asyncio.sleep(TELL_S)


@contextlib.asynccontextmanager
async def standing(world, brokers, words=None):
    """A stand-in at each of ``brokers``, by their ids; they follow the trees of the plans."""
    urls = {id_: broker.url for id_, broker in brokers.items()}
    agents = {
        id_: StandIn(id_, broker, urls, world, words and words(id_))
        for id_, broker in brokers.items()
    }

    async def follow():
        while True:
            origin = {}
            for agent in agents.values():
                origin |= {(t.origin, t.filters): t for t in agent.trees if t.origin == agent.id}
            world.trees = origin
            await asyncio.sleep(TELL_S)

    running = [asyncio.create_task(agent.run()) for agent in agents.values()]
    running.append(asyncio.create_task(follow()))
    try:
        yield agents
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
