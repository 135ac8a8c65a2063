"""Who wants a few retained values does not wait for who wants very many. docs/protocol.md, 13."""

import contextlib

from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client

MANY, FEW, LATE = 5_000, 20, 4
SLOW = "[retained]\nvalues_per_s = 100\n"


async def test_late_ones_have_their_few_values_while_many_are_fetched_for_another(plain):
    far, near = await plain.broker(), await plain.broker()
    agents = [await plain.agent(1, far), await plain.agent(2, near, far.url, more=SLOW)]
    await eventually(agents[0], linked(2), "linked")
    await eventually(agents[1], linked(1), "linked")
    async with contextlib.AsyncExitStack() as stack:
        setter = await stack.enter_async_context(client(far, "setter"))
        for number in range(MANY):
            setter.send(f"many/{number}", b"1")
            if number % 100 == 0:
                await until(lambda: setter.link.unacknowledged < 100, "the broker keeps up")
        for late in range(LATE):
            for number in range(FEW):
                setter.send(f"few/{late}/{number}", b"1")
        await until(lambda: not setter.link.unacknowledged, "the broker has all values")

        greedy = await stack.enter_async_context(client(near, "greedy", "many/#"))
        await until(lambda: greedy.came, "the many values begin to come")
        for late in range(LATE):
            one = client(near, f"late-{late}", f"few/{late}/#")
            waits = await stack.enter_async_context(one)
            await until(lambda waits=waits: len(waits.latest) == FEW, "few values come")

        assert len(greedy.latest) < MANY, "the many values are still on their way"
        before = len(greedy.latest)
        await until(lambda: len(greedy.latest) > before, "and go on to come")
