"""Real agents that follow a plan which somebody wrote by hand, in a triangle of brokers.

Broker 1 publishes, broker 3 subscribes, and the plan leads by broker 2, although 1 and 3 are
neighbours.
"""

import asyncio
import contextlib
import time

import pytest

from federator.protocol.messages.steering import tree_of
from federator.protocol.types import BrokerId
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, gets_through
from tests.real.polling import ASK_S, DEADLINE_S, until
from tests.real.sharing.shares import triangle
from tests.real.steering.by_hand import plan, retain

STRAIGHT = '[routing]\nstrategy = "shortest-path"\n'
TOPIC = "flow/1"
ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
AROUND = tree_of(ONE, [TOPIC], {TWO: ONE, THREE: TWO})
FALLBACK_S = 1.0
STUCK_S = 1.0

SLOW = 10
"""No test asserts a time tighter than ten times of what it takes."""


class Steerer:
    """Writes plans on brokers; ``number`` is of the last one."""

    def __init__(self):
        self.number = 0

    async def tell(self, broker, id_, *trees, valid_ms=60_000):
        self.number += 1
        await retain(broker, plan(id_, *trees, number=self.number, valid_ms=valid_ms))


async def next_hops(agent):
    """Where agent 1 sends the flow, and whether by a tree."""
    found = await agent.page(f"/explain?topic={TOPIC}")
    return found["next_hops"], "tree" in found["why"]


async def goes(agent, hops, *, planned):
    deadline_s = time.monotonic() + DEADLINE_S
    while (found := await next_hops(agent)) != (hops, planned):
        assert time.monotonic() < deadline_s, f"{found}; wanted {hops}, planned: {planned}"
        await asyncio.sleep(ASK_S)


@contextlib.asynccontextmanager
async def flowing(tmp_path, *, qos=1, **sections):
    async with Plain(tmp_path) as plain:
        brokers, agents = await triangle(plain, more=STRAIGHT, **sections)
        publisher = Publisher(brokers[0].port, TOPIC, client_id="p", rate_hz=200, qos=qos)
        subscriber = Subscriber(brokers[2].port, TOPIC, client_id="s", qos=qos)
        async with running(publisher, subscriber):
            await gets_through(publisher, subscriber)
            first = max(subscriber.came)
            yield brokers, agents, publisher, subscriber
            publisher.pause()
            await until(
                lambda: all(subscriber.came[n] for n in range(first, publisher.sent)), "all came"
            )
            assert subscriber.duplicates == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_flow_goes_by_a_plan_while_it_holds_and_nothing_is_lost_in_the_change(
    tmp_path, qos
):
    async with flowing(tmp_path, qos=qos) as (brokers, agents, publisher, subscriber):
        steerer = Steerer()
        assert await next_hops(agents[0]) == ([3], False)
        for id, broker in enumerate(brokers, 1):
            await steerer.tell(broker, id, AROUND)

        await goes(agents[0], [2], planned=True)
        await gets_through(publisher, subscriber)
        status = await agents[1].status()
        assert status["counters"]["data"]["relayed"] > 0
        await steerer.tell(brokers[0], 1, valid_ms=500)  # gives it back, and ends
        await goes(agents[0], [3], planned=False)
        await gets_through(publisher, subscriber)


async def test_a_flow_that_moves_stays_in_order_when_its_former_way_is_stuck_for_a_moment(tmp_path):
    patient = {"hello_timeout_ms": 60_000}  # no link counts as down on a machine that is busy
    async with flowing(tmp_path, qos=0, links=patient) as (brokers, agents, publisher, subscriber):
        steerer = Steerer()
        for id, broker in enumerate(brokers, 1):
            await steerer.tell(broker, id, AROUND)
        await goes(agents[0], [2], planned=True)
        await gets_through(publisher, subscriber)
        since = len(subscriber.order)

        agents[1].pause()  # what comes to it waits, at its broker
        await asyncio.sleep(STUCK_S / 2)
        await steerer.tell(brokers[0], 1)
        await goes(agents[0], [3], planned=False)
        await asyncio.sleep(STUCK_S / 2)
        agents[1].resume()
        await gets_through(publisher, subscriber)

        moved = subscriber.order[since:]
        assert moved == sorted(moved)


async def test_a_planned_relay_that_is_killed_costs_nothing_at_qos_1(tmp_path):
    async with flowing(tmp_path) as (brokers, agents, publisher, subscriber):
        steerer = Steerer()
        for id, broker in enumerate(brokers, 1):
            await steerer.tell(broker, id, AROUND)
        await goes(agents[0], [2], planned=True)

        killed_s = time.monotonic()
        brokers[1].kill9()

        await gets_through(publisher, subscriber)
        gap_s = subscriber.longest_gap_s(killed_s, time.monotonic())
        assert gap_s < FALLBACK_S * SLOW, f"{gap_s:.2f} s"


@pytest.mark.parametrize("payload", [b"", b"{", b"null", b'{"version":1}'])
async def test_what_is_no_plan_changes_nothing(tmp_path, payload):
    async with flowing(tmp_path) as (brokers, agents, publisher, subscriber):
        await retain(brokers[0], payload)
        await gets_through(publisher, subscriber)
        assert await next_hops(agents[0]) == ([3], False)
