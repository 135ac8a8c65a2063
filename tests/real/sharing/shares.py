"""Three brokers in a triangle or a line, groups with members on them, and what each member got."""

import asyncio
import itertools
import time
from collections import Counter

from tests.real.client import Client
from tests.real.flow import Subscriber
from tests.real.plain_agents import eventually, linked
from tests.real.polling import DEADLINE_S, POLL_S, until

WARM_UP = 999_999_999
"""Numbers from here on are published before it counts."""

_warm_ups = itertools.count(WARM_UP)

UNACKNOWLEDGED_MAX = 200
"""Of a publisher; few enough for the queues of a broker with default limits."""


class Burst(Client):
    """Publishes numbers as fast as the broker acknowledges them, or at a rate."""

    def __init__(self, port, topic, *, client_id, qos=1):
        super().__init__(port, client_id)
        self._topic = topic
        self._qos = qos
        self._up = asyncio.Event()

    def on_up(self, link, session_present):
        self._up.set()

    async def publish(self, numbers, *, rate_hz=None):
        """Publish ``numbers``; returns once the broker has acknowledged all, where it does."""
        await self._up.wait()
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for number in numbers:
            if self.link.unacknowledged >= UNACKNOWLEDGED_MAX:
                await self._acknowledged(UNACKNOWLEDGED_MAX // 2)
            assert self.link.publish(self._topic, b"%d" % number, qos=self._qos)
            if rate_hz:
                due_s += 1 / rate_hz
                await asyncio.sleep(max(0.0, due_s - loop.time()))
        await self._acknowledged(0)

    async def _acknowledged(self, rest):
        await until(lambda: self.link.unacknowledged <= rest, "acknowledgements")


async def triangle(plain, **sections):
    """Brokers and agents 1, 2 and 3, all linked, and settled."""
    brokers = [await plain.broker() for _ in range(3)]
    first = await plain.agent(1, brokers[0], **sections)
    second = await plain.agent(2, brokers[1], brokers[0].url, **sections)
    third = await plain.agent(3, brokers[2], brokers[0].url, brokers[1].url, **sections)
    agents = [first, second, third]
    for id, agent in enumerate(agents, 1):
        others = {1, 2, 3} - {id}
        await eventually(agent, linked(*others), f"{id} is linked to {others}")
    return brokers, agents


async def line(plain):
    """Brokers and agents 1, 2 and 3, of which the second alone is linked with both others."""
    brokers = [await plain.broker() for _ in range(3)]
    near = await plain.agent(1, brokers[0])
    relay = await plain.agent(2, brokers[1], brokers[0].url, brokers[2].url)
    far = await plain.agent(3, brokers[2])
    for agent, others in ((near, [2]), (relay, [1, 3]), (far, [2])):
        await eventually(agent, linked(*others), f"links to {others}")
    return brokers, (near, relay, far)


def member(broker, number, *, shared="$share/g/jobs/#", qos=1):
    return Subscriber(broker.port, shared, client_id=f"member-{number}", qos=qos)


async def knows(agent, members, *, stand_ins=None, group="g"):
    """Wait until ``agent`` knows ``members``, by broker id, and has its stand-ins in place."""

    def right(status):
        share = status["share"]
        found = [g for g in share["groups"] if g["group"] == group]
        here = found[0]["stand_ins"] if found else 0
        return (
            status["discovery"]["trusted"]
            and bool(found) is bool(members)
            and (not found or found[0]["members"] == {str(k): v for k, v in members.items()})
            and (stand_ins is None or here == stand_ins == share["stand_ins_standing"])
        )

    return await eventually(agent, right, f"members {members}, {stand_ins} stand-ins")


def together(members):
    """How often each number came, at all members together; without those of ``warm_up``."""
    total = Counter()
    for each in members:
        total.update(each.came)
    return Counter({number: count for number, count in total.items() if number < WARM_UP})


async def warm_up(burst, *receivers):
    """Publish until something comes through to each of ``receivers`` (lists of subscribers)."""
    deadline_s = time.monotonic() + DEADLINE_S
    number = next(_warm_ups)
    while not all(any(each.came[number] for each in group) for group in receivers):
        assert time.monotonic() < deadline_s, "nothing comes through"
        await burst.publish([number])
        await asyncio.sleep(POLL_S)


async def all_came(members, count, *, deadline_s=60.0):
    await until(
        lambda: len(together(members)) >= count, f"all {count} served", deadline_s=deadline_s
    )
