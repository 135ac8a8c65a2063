"""Agents that are stopped in order while they hand a burst to their broker."""

import contextlib

from lab.grid.processes.relay import Relay
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until, until_none

BURST = 300
SLOW_S = 0.05
"""From an agent to its broker: at twenty messages a round trip the burst takes 1.5 s."""


async def test_a_burst_is_handed_over_whole_before_the_agent_goes(tmp_path):
    """Of a part of it without the marker behind, all would come again."""
    async with Plain(tmp_path) as plain:
        near, far = await plain.broker(), await plain.broker()
        way = Relay(("127.0.0.1", far.port), delay_s=SLOW_S)
        origin = await plain.agent(1, near)
        agent = await plain.agent(2, f"mqtt://127.0.0.1:{way.listen()}", near.url)
        subscriber = Subscriber(far.port, "t", client_id="s", qos=1)
        publisher = Publisher(near.port, "t", client_id="p", qos=1, rate_hz=10_000)
        await eventually(agent, linked(1), "both are there")
        async with running(subscriber), contextlib.AsyncExitStack() as stack:
            await eventually(origin, has_mesh, "the subscription is known")
            await stack.enter_async_context(running(publisher))
            await until(lambda: subscriber.came, "the way is open")
            publisher.pause()
            await until_none(lambda: missing(subscriber, publisher), "all so far")
            before = publisher.sent
            publisher.resume()
            await until(lambda: publisher.sent > before + BURST, "a burst")
            publisher.pause()
            await until(lambda: max(subscriber.came) >= before, "it begins to come")

            await agent.stop()
            await agent.start()

            await until_none(lambda: missing(subscriber, publisher), "all of it")
        assert subscriber.duplicates == 0
        way.close()


def has_mesh(status):
    return [mesh["filter"] for mesh in status["meshes"]] == ["t"]


def missing(subscriber, publisher):
    since = min(subscriber.came)
    return [n for n in range(since, publisher.sent) if n not in subscriber.came]
