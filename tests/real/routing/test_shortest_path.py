"""Shortest-path routing on real brokers: what rides on meshes rides on it, too.

docs/protocol.md section 14. Custody under it: test_custody.py; delays: `federator-lab grid`.
"""

from dataclasses import replace

import pytest

from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, Plain, settled
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.sharing.shares import Burst, all_came, knows, member, together, triangle

STRAIGHT = {"routing": {"strategy": "shortest-path"}}
MESH = {"routing": {"strategy": "mesh"}}
RING = Grid(2, 2)


def grid_of(folder, brokers=RING, options=STRAIGHT):
    deep = (*QUICK, *DEEP)
    return RunningGrid(brokers, folder, link_delay_ms=5, agent_options=options, broker_options=deep)


def knows_destinations(filter_, *ids):
    """What keeps every agent from routing ``filter_`` to the brokers ``ids``."""

    def fault(statuses):
        for here, status in statuses.items():
            rows = [row for row in status["destinations"] if row["filter"] == filter_]
            found = {row["to"] for row in rows if row["path/topic"]}
            if found != set(ids):
                return f"broker {here} has ways to {found}"
        return None

    return fault


async def test_a_late_subscriber_gets_retained_values_wherever_they_were_set(tmp_path):
    async with grid_of(tmp_path, Grid(1, 3)) as grid:
        first, middle, last = grid.brokers.values()
        async with client(first, "setter") as setter, client(middle, "other") as other:
            await setter.set("early/a", b"1")
            await other.set("early/b", b"2")
            await setter.set("early/gone", b"3")
            await setter.set("early/gone", b"")
            async with client(last, "late", "early/#") as late:
                await until(lambda: late.latest == {"early/a": b"1", "early/b": b"2"}, "values")
                await setter.set("early/a", b"4")
                await until(lambda: late.latest["early/a"] == b"4", "the change comes, too")

                assert sorted(late.came) == [
                    ("early/a", b"1"),
                    ("early/a", b"4"),
                    ("early/b", b"2"),
                ]


async def test_each_publication_reaches_one_member_of_a_group(tmp_path):
    async with Plain(tmp_path) as plain:
        straight = '[routing]\nstrategy = "shortest-path"\n'
        brokers, agents = await triangle(plain, more=straight)
        members = [member(broker, number) for number, broker in enumerate(brokers)]
        burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
        async with running(*members, burst):
            for agent in agents:
                await knows(agent, {1: 1, 2: 1, 3: 1}, stand_ins=2)

            await burst.publish(range(3_000))
            await all_came(members, 3_000)

            assert set(together(members).values()) == {1}
            assert all(600 <= sum(m.came.values()) <= 1_200 for m in members)


async def test_a_federation_changes_its_strategy_broker_by_broker_and_loses_nothing(tmp_path):
    """Four brokers in a ring; every agent is restarted with the other strategy, under traffic."""
    async with grid_of(tmp_path, options=MESH) as grid:
        subscribers = [
            Subscriber(grid.brokers[at].port, "plant/#", client_id=f"s{at}", qos=1) for at in (1, 3)
        ]
        publisher = Publisher(grid.brokers[0].port, "plant/t", client_id="p", qos=1)
        async with running(*subscribers, publisher):
            for each in subscribers:
                await until(lambda s=each: len(s.came) > 20, "traffic at both subscribers")
            first = await settled(publisher, *subscribers)

            for at in (3, 0, 1, 2):
                agent = grid.agents[at]
                agent.config = replace(agent.config, more={**agent.config.more, **STRAIGHT})
                sent = publisher.sent
                await agent.restart()
                for each in subscribers:
                    await until(lambda s=each, n=sent: max(s.came) > n + 20, "it goes on")
            await grid.until(knows_destinations("plant/#", 1, 3))
            assert not any(s["meshes_total"] for s in (await grid.statuses()).values())
            publisher.pause()
            last = publisher.sent - 1
            for each in subscribers:
                await until(lambda s=each: last in s.came, "the last one comes")

        for each in subscribers:
            assert set(range(first, last + 1)) <= each.came.keys(), "nothing is lost"
            assert each.duplicates == 0
            assert each.order == sorted(each.order)


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_cut_path_is_replaced_at_once_and_each_copy_still_comes_once(tmp_path, qos):
    """In a ring of four the backup of either way is the other one."""
    async with grid_of(tmp_path) as grid:
        subscriber = Subscriber(grid.brokers[3].port, "plant/#", client_id="s", qos=qos)
        publisher = Publisher(grid.brokers[0].port, "plant/t", client_id="p", qos=qos)
        async with running(subscriber, publisher):
            first = await settled(publisher, subscriber)
            await grid.until(knows_destinations("plant/#", 3))
            rows = (await grid.statuses())[0]["destinations"]
            assert [(r["path/topic"], r["weight"], r["backup"]) for r in rows] == [
                ("1-3/plant/#", 2, "2-3/plant/#")
            ]

            (link,) = [link for link in grid.grid.links if (link.a, link.b) == (1, 3)]
            await grid.order("cut", link)
            sent = publisher.sent
            await until(lambda: max(subscriber.came) > sent + 20, "it goes the other way")

        assert subscriber.duplicates == 0
        if qos:
            assert set(range(first, max(subscriber.came) + 1)) <= subscriber.came.keys()


async def test_with_cost_by_delay_the_way_leaves_a_link_that_became_slow(tmp_path):
    options = {**STRAIGHT, "links": {"cost": "delay", "hello_interval_ms": 100}}
    async with grid_of(tmp_path, options=options) as grid:
        subscriber = Subscriber(grid.brokers[3].port, "plant/#", client_id="s")
        async with running(subscriber):
            await grid.until(knows_destinations("plant/#", 3))
            slow, fast = [link for link in grid.grid.links if link.b == 3]
            for link, other in ((slow, fast.a), (fast, slow.a)):
                await grid.order("delay", slow, delay_ms=5)
                await grid.order("delay", link, delay_ms=60)
                await grid.until(goes_by("plant/#", other))


def goes_by(filter_, next_hop):
    """What keeps broker 0 from sending what matches ``filter_`` by way of ``next_hop``."""

    def fault(statuses):
        rows = [row for row in statuses[0]["destinations"] if row["filter"] == filter_]
        return None if [row["next_hop"] for row in rows] == [next_hop] else f"ways {rows}"

    return fault
