"""A broker that is killed comes back with the session that it saved, which may be an old one."""

import re

from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until

SESSION = re.compile(r": federator-1-data-[0-9a-f]+ (?:([012]) )?([^$ ]\S*)$", re.MULTILINE)
AFTER = 100


def subscribed(broker):
    """What agent 1 subscribes for its data, as the broker's log tells."""
    filters = set()
    for qos, pattern in SESSION.findall(broker.log_path.read_text()):
        (filters.add if qos else filters.discard)(pattern)
    return filters


async def test_what_a_killed_broker_restores_of_an_old_session_doubles_nothing(tmp_path):
    async with Plain(tmp_path) as plain:
        near, far = await plain.broker(persistence=True), await plain.broker()
        agent = await plain.agent(1, near, far.url)
        other = await plain.agent(2, far)
        first = Subscriber(far.port, "t/#", client_id="first", qos=1)
        second = Subscriber(far.port, "+/x", client_id="second", qos=1)
        publisher = Publisher(near.port, "t/y", client_id="publisher", qos=1)
        await eventually(other, linked(1), "trusted, and listening")
        async with running(first):
            await until(lambda: subscribed(near) == {"t/#"}, "the cover is what is wanted")
            await near.stop()  # it saves
            await near.start()
            await until(lambda: subscribed(near) == {"t/#"}, "as before")
            await eventually(agent, linked(2), "back")
            async with running(second):
                await until(lambda: subscribed(near) == {"#"}, "a wider cover")
                agent.kill9()
                await agent.start()
                await eventually(agent, linked(2), "a new process")

                near.kill9()
                await near.start()  # with t/# in our session
                await eventually(agent, linked(2), "and a new broker")
                async with running(publisher):
                    await until(lambda: first.came, "the way is open")
                    since = publisher.sent
                    await until(lambda: publisher.sent >= since + AFTER, "published")
                    numbers = range(since, since + AFTER)
                    await until(lambda: all(first.came[n] for n in numbers), "all arrive")

        assert {first.came[number] for number in numbers} == {1}
