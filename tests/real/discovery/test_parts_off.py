"""An agent that is restarted with a part off subscribes less than its session has."""

import asyncio

from tests.real.flow import Subscriber, running
from tests.real.plain_agents import eventually, linked

COUNTED_TWICE_S = 3


async def test_what_a_part_had_subscribed_does_not_hide_or_invent_clients(plain):
    broker = await plain.broker()
    agent = await plain.agent(1, broker)
    await eventually(agent, linked(), "the agent hears the log")
    async with running(Subscriber(broker.port, "t", client_id="taker")):
        await eventually(agent, knows_one, "the client is known")
        await agent.stop()
        agent.config.more = "[retained]\nenabled = false"
        await agent.start()
        await asyncio.sleep(COUNTED_TWICE_S)

        await eventually(agent, knows_one, "the client is known, and the broker counts no more")
        assert (await agent.status())["discovery"]["unknown"] == 0


def knows_one(told):
    return told["discovery"]["wanted"] == 1 and not told["discovery"]["widened"]
