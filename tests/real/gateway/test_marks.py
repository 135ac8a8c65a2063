"""An agent tells a gateway how far it took custody of what its broker acknowledged."""

import pytest

from federator.protocol.messages import gateways, json_codec, topics
from tests.real.gateway.clients import GatewayClient
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until


@pytest.fixture
async def pair(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker(), await plain.broker()]
        first = await plain.agent(1, brokers[0])
        second = await plain.agent(2, brokers[1], brokers[0].url)
        await eventually(first, linked(2), "link")
        yield brokers, (first, second)


class Asker(GatewayClient):
    """Asks as a gateway does, and keeps the answers."""

    def __init__(self, port):
        super().__init__(port, "asker", subscribes=(topics.taken_topic("fed", "g"),))

    async def ask(self, number):
        mark = json_codec.encode(gateways.Mark("g", number))
        await self.client.publish(topics.mark_topic("fed"), mark, qos=1)

    @property
    def taken(self):
        return [json_codec.decode(gateways.Taken, word.encode()).number for word in self.order]


async def test_a_mark_is_answered_when_all_before_it_is_in_the_custody_log(pair):
    brokers, (agent, _) = pair
    subscriber = GatewayClient(brokers[1].port, "s", subscribes=("a/#",))
    publisher = GatewayClient(brokers[0].port, "p")
    async with subscriber, publisher, Asker(brokers[0].port) as asker:
        await until(lambda: not publisher.error, "connected")
        while not subscriber.came["first"]:
            await publisher._one("a/b", "first", 1)
        before = (await agent.status())["custody"]["log_records"]

        agent.pause()
        for number in range(10):
            await publisher._one("a/b", str(number), 1)
        await asker.ask(7)
        agent.resume()
        await until(lambda: asker.taken == [7], "the answer")

        assert (await agent.status())["custody"]["log_records"] > before
        await until(lambda: subscriber.came["9"], "the publications")


async def test_marks_of_an_agent_that_was_killed_are_answered_by_its_successor(pair):
    brokers, (agent, _) = pair
    async with Asker(brokers[0].port) as asker:
        await asker.ask(1)
        await until(lambda: asker.taken == [1], "the answer")
        agent.kill9()
        await asker.ask(2)

        await agent.start()

        await until(lambda: asker.taken[-1] == 2, "the answer")
