"""Two brokers with an agent each, and a stream between them that rests."""

import contextlib

from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until


@contextlib.asynccontextmanager
async def resting_stream(plain):
    """The brokers, their agents, a publisher at the first that rests, and a subscriber at the other
    that has everything.
    """
    brokers = one, two = [await plain.broker() for _ in range(2)]
    agents = [await plain.agent(1, one), await plain.agent(2, two, one.url)]
    await eventually(agents[0], linked(2), "linked")
    subscriber = Subscriber(two.port, "plant/#", client_id="sub", qos=1)
    publisher = Publisher(one.port, "plant/1", client_id="pub", qos=1)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        await publisher.rest()
        await until(lambda: subscriber.came[publisher.sent - 1], "all that is under way came")
        yield brokers, agents, publisher, subscriber
