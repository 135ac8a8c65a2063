"""One delivery per group for the whole federation, with members on several brokers.

Issue 3, part 3; docs/protocol.md section 12.
"""

import asyncio
import contextlib

import pytest

from tests.real.agent_log import named
from tests.real.flow import Subscriber, running
from tests.real.plain_agents import eventually
from tests.real.polling import until
from tests.real.sharing.shares import (
    Burst,
    all_came,
    knows,
    line,
    member,
    together,
    triangle,
    warm_up,
)
from tests.real.undisturbed import tell

MESSAGES = 30_000
LINGER_MESSAGES = 3_500
"""At 1,000 a second, what a broker may have confirmed in the 2 s before its death (the default of
share.linger_ms), and what was under way."""


async def publish(numbers, *bursts):
    """Publish ``numbers``, dealt out to the publishers."""
    async with asyncio.TaskGroup() as tasks:
        for at, burst in enumerate(bursts):
            tasks.create_task(burst.publish(numbers[at :: len(bursts)]))


@contextlib.asynccontextmanager
async def a_member_each(plain, *, publishers=1, qos=1):
    """Three brokers with a member at each, which all agents know, and publishers at some."""
    brokers, agents = await triangle(plain)
    members = [member(broker, number, qos=qos) for number, broker in enumerate(brokers)]
    bursts = [
        Burst(broker.port, "jobs/1", client_id=f"pub-{broker.port}", qos=qos)
        for broker in brokers[:publishers]
    ]
    async with running(*members, *bursts):
        for agent in agents:
            await knows(agent, {1: 1, 2: 1, 3: 1}, stand_ins=2)
        yield brokers, agents, members, bursts


@pytest.mark.parametrize("publishers", [1, 3])
@pytest.mark.few(1)
async def test_each_publication_reaches_one_of_three_members_and_all_get_their_share(
    plain, publishers
):
    async with a_member_each(plain, publishers=publishers) as (_, _, members, bursts):
        await publish(range(MESSAGES), *bursts)
        await all_came(members, MESSAGES)

        shares = [sum(m.came.values()) / MESSAGES for m in members]
        assert set(together(members).values()) == {1}
        assert min(shares) > 0, shares
        tell(row=f"shares, {publishers} publishing", share=max(shares), bars={"share": 0.4})


@pytest.mark.parametrize(
    ("victim", "publisher"),
    [
        ("broker", "beside a member"),
        ("broker", "where nobody is a member"),
        ("agent", "beside a member"),
    ],
)
@pytest.mark.few(1)
async def test_nothing_acknowledged_is_lost_when_a_members_broker_or_agent_is_killed(
    plain, publisher, victim
):
    brokers, agents = await triangle(plain)
    at = [0, 1, 2] if publisher == "beside a member" else [0, 2]
    members = [member(brokers[i], i) for i in at]
    burst = Burst(brokers[1].port, "jobs/1", client_id="pub")
    async with running(*members, burst):
        for agent in agents:
            await knows(agent, {i + 1: 1 for i in at})
        await warm_up(burst, members)
        publishing = asyncio.create_task(burst.publish(range(4_000), rate_hz=1_000))
        await until(lambda: len(members[-1].came) > 500, "traffic at the member to be orphaned")

        (brokers if victim == "broker" else agents)[2].kill9()
        await publishing
        await all_came(members, 4_000)

        assert sum(together(members).values()) <= 4_000 + LINGER_MESSAGES
        counted = (await agents[1].status())["share"]
        assert counted["reassigned"] > 0
        assert counted["lost"] == 0
        assert named(agents[1], "share.reassigned")


async def test_members_behind_a_relay_are_served_and_nothing_is_lost_when_its_agent_restarts(plain):
    brokers, (near, relay, _) = await line(plain)
    members = [member(brokers[0], "near"), member(brokers[2], "far")]
    burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
    async with running(*members, burst):
        await knows(near, {1: 1, 3: 1}, stand_ins=1)
        await publish(range(1_000), burst)
        await all_came(members, 1_000)
        assert [len(m.came) for m in members] == [500, 500]
        assert set(together(members).values()) == {1}

        publishing = asyncio.create_task(burst.publish(range(1_000, 4_000), rate_hz=1_000))
        await until(lambda: len(members[1].came) > 600, "traffic at the far member")
        relay.kill9()
        await relay.restart()
        await publishing
        await all_came(members, 4_000)

        assert (await near.status())["share"]["lost"] == 0


async def test_what_is_published_while_no_member_is_in_reach_is_served_when_one_is_again(plain):
    brokers, (near, relay, _) = await line(plain)
    members = [member(brokers[2], "far")]
    burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
    async with running(*members, burst):
        await warm_up(burst, members)
        relay.kill9()
        await eventually(near, out_of_reach, "its group is out of reach")
        await publish(range(1_500), burst)
        await eventually(near, lambda status: status["share"]["owed"] >= 1_500, "all is kept")

        await relay.restart()
        await all_came(members, 1_500)

        assert set(together(members).values()) == {1}


def out_of_reach(status):
    return status["share"]["groups_total"] == 0 and status["links"][0]["state"] != "up"


async def test_an_agent_that_restarts_takes_what_its_broker_kept_for_groups_elsewhere(plain):
    brokers, agents = await triangle(plain)
    members = [member(brokers[i], i) for i in (1, 2)]
    burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
    async with running(*members, burst):
        await knows(agents[0], {2: 1, 3: 1})
        await warm_up(burst, members)
        listed = agents[0].state_dir / "shared_groups.json"
        await until(lambda: b"jobs/#" in read_if_there(listed), "the group is listed")

        agents[0].kill9()
        await publish(range(800), burst)  # fewer than a broker queues by default
        await agents[0].restart()
        await all_came(members, 800)

        assert set(together(members).values()) == {1}


def read_if_there(path):
    return path.read_bytes() if path.exists() else b""


async def test_a_broker_that_comes_back_gets_its_share_again(plain):
    async with a_member_each(plain) as (brokers, agents, members, bursts):
        brokers[2].kill9()
        for agent in agents[:2]:
            await knows(agent, {1: 1, 2: 1}, stand_ins=1)
        await brokers[2].restart()
        for agent in agents:
            await knows(agent, {1: 1, 2: 1, 3: 1}, stand_ins=2)

        await publish(range(3_000), *bursts)
        await all_came(members, 3_000)

        assert set(together(members).values()) == {1}
        assert len(members[2].came) >= 600


async def test_members_that_come_and_go_change_the_shares(plain):
    brokers, agents = await triangle(plain)
    first, second, third = [member(brokers[at], n) for n, at in enumerate((0, 0, 2))]
    burst = Burst(brokers[1].port, "jobs/1", client_id="pub")
    async with running(burst, first):
        async with running(second, third):
            await knows(agents[1], {1: 2, 3: 1})
            await warm_up(burst, [first, second, third])
            await publish(range(900), burst)
            await all_came([first, second, third], 900)
            shares = [sum(n in m.came for n in range(900)) for m in (first, second, third)]
        await knows(agents[1], {1: 1})

        await publish(range(900, 1_000), burst)
        await all_came([first, second, third], 1_000)

        assert set(together([first, second, third]).values()) == {1}
        assert max(shares) - min(shares) <= 5, shares  # those of warm_up took their turns, too
        assert set(range(900, 1_000)) <= set(first.came)


@pytest.mark.parametrize("qos", [0, 2])
async def test_other_qualities_of_service_are_shared_alike(plain, qos):
    async with a_member_each(plain, qos=qos) as (_, _, members, bursts):
        await publish(range(900), *bursts)
        await all_came(members, 900)

        assert set(together(members).values()) == {1}
        assert [len(m.came) for m in members] == [300, 300, 300]


async def test_two_groups_and_ordinary_subscribers_elsewhere_each_get_everything_once(plain):
    brokers, agents = await triangle(plain)
    group_g = [member(brokers[0], "g0"), member(brokers[1], "g1")]
    group_h = [member(brokers[i], f"h{i}", shared="$share/h/jobs/+") for i in (0, 1)]
    ordinary = Subscriber(brokers[2].port, "jobs/1", client_id="ordinary", qos=1)
    bursts = [Burst(b.port, "jobs/1", client_id=f"pub-{b.port}") for b in brokers]
    async with running(*group_g, *group_h, ordinary, *bursts):
        for agent in agents:
            await knows(agent, {1: 1, 2: 1}, group="g")
            await knows(agent, {1: 1, 2: 1}, group="h")
        for burst in bursts:
            await warm_up(burst, group_g, group_h, [ordinary])

        await publish(range(900), *bursts)
        for receivers in (group_g, group_h, [ordinary]):
            await all_came(receivers, 900)

        for receivers in (group_g, group_h, [ordinary]):
            assert set(together(receivers).values()) == {1}


async def test_whoever_watches_everything_sees_nothing_twice(plain):
    brokers, agents = await triangle(plain)
    members = [member(broker, number) for number, broker in enumerate(brokers)]
    explorer = Subscriber(brokers[1].port, "#", client_id="explorer", qos=1)
    burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
    async with running(*members, explorer, burst):
        await knows(agents[0], {1: 1, 2: 1, 3: 1}, stand_ins=2)
        await knows(agents[1], {1: 1, 2: 1, 3: 1}, stand_ins=0)

        await publish(range(900), burst)
        await all_came(members, 900)

        assert set(together(members).values()) == {1}
        await until(lambda: explorer.came.keys() >= members[1].came.keys(), "it sees all of them")
        assert set(explorer.came) == set(members[1].came)
        assert explorer.duplicates == 0


async def test_a_group_beside_ordinary_subscribers_misses_nothing_and_the_agent_says_what_is_amiss(
    plain,
):
    brokers, agents = await triangle(plain)
    members = [member(broker, number) for number, broker in enumerate(brokers)]
    ordinary = Subscriber(brokers[2].port, "jobs/1", client_id="ordinary", qos=1)
    burst = Burst(brokers[0].port, "jobs/1", client_id="pub")
    async with running(*members, ordinary, burst):
        await until(lambda: bool(named(agents[0], "share.inexact")), "the agent complains")
        await warm_up(burst, members, [ordinary])

        await publish(range(300), burst)
        await all_came(members, 300)
        await all_came([ordinary], 300)

        (group,) = (await agents[0].status())["share"]["groups"]
        assert "ordinary subscribers" in group["inexact"]


async def test_with_the_scope_of_a_broker_each_brokers_group_counts_for_itself(plain):
    brokers, agents = await triangle(plain, share={"scope": "broker"})
    at_first = [member(brokers[0], "a"), member(brokers[0], "b")]
    elsewhere = member(brokers[2], "c")
    burst = Burst(brokers[1].port, "jobs/1", client_id="pub")
    async with running(*at_first, elsewhere, burst):
        await warm_up(burst, at_first, [elsewhere])

        await publish(range(300), burst)
        await all_came(at_first, 300)
        await all_came([elsewhere], 300)

        assert set(together(at_first).values()) == {1}
        assert set(together([elsewhere]).values()) == {1}
        assert (await agents[1].status())["share"]["groups"] == []
