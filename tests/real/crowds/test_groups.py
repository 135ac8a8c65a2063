"""One client in hundreds of shared groups costs others nothing.

docs/security.md, "Threats and answers"; docs/protocol.md 9 and 12.
"""

import asyncio
import contextlib

import pytest

from federator.errors import LinkError
from tests.real.agent_log import named
from tests.real.crowds.crowd import Rude, subscribe
from tests.real.crowds.test_storms import signed_pair
from tests.real.crowds.test_words import longest_answer_s
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through
from tests.real.polling import until
from tests.real.undisturbed import tell, undisturbed

GROUPS = 900
ENOUGH = 100
AT_ONCE = 90
"""Lines that the broker has room for."""


@pytest.fixture
async def pair(plain, tmp_path):
    """Two brokers, and signed agents."""
    return await signed_pair(plain, tmp_path)


async def test_a_client_in_hundreds_of_groups_does_not_hold_the_loop(pair):
    brokers, agents = pair
    steady = Subscriber(brokers[1].port, "steady/#", client_id="steady", qos=1)
    member = Subscriber(brokers[1].port, "$share/honest/jobs/#", client_id="member", qos=1)
    publisher = Publisher(brokers[0].port, "steady/1", client_id="steady-pub", qos=1, rate_hz=50)
    jobs = Publisher(brokers[0].port, "jobs/1", client_id="jobs-pub", qos=1, rate_hz=50)
    async with (
        running(steady, member, publisher, jobs),
        Rude(brokers[1].port, "greedy") as greedy,
    ):
        await gets_through(publisher, steady)
        await gets_through(jobs, member)

        async def join():
            for start in range(0, GROUPS, AT_ONCE):
                await greedy.send(
                    subscribe([f"$share/g{n}/s/{n}/+/#" for n in range(start, start + AT_ONCE)])
                )
            await eventually(agents[1], all_known, "the agent knows of all")

        async with (
            undisturbed("6 groups", publisher, steady, processes=agents),
            undisturbed("6 groups, an honest one", jobs, member, processes=agents),
        ):
            longest_s = await longest_answer_s(agents[1], joining := asyncio.create_task(join()))
            await joining

    tell(row="6 groups, pages", p99_ms=round(1_000 * longest_s, 1))
    assert named(agents[1], "share.beyond_quota")


def all_known(status):
    """Whether each membership is counted apart, or beyond the quota."""
    beyond = status["discovery"]["groups_beyond_quota"]
    return beyond + status["share"]["groups_total"] == GROUPS + 1


async def test_groups_that_only_mosquitto_grants_widen_nothing_and_change_no_share(pair):
    """``$share/g`` and ``$share/+/x``: granted, logged, counted; others go on as they do."""
    brokers, agents = pair
    members = [
        Subscriber(brokers[n].port, "$share/honest/jobs/#", client_id=f"member-{n}", qos=1)
        for n in range(2)
    ]
    publisher = Publisher(brokers[0].port, "jobs/1", client_id="jobs-pub", qos=1, rate_hz=50)
    async with running(*members, publisher), Rude(brokers[1].port, "odd") as odd:
        await until(lambda: sum(len(m.came) for m in members) > ENOUGH, "the group is served")
        first = publisher.sent
        await odd.send(subscribe(["$share/g", "$share/+", "$share/+/odd/#"]))
        await eventually(agents[1], wants_odd, "the odd group's filter is wanted")
        await until(lambda: publisher.sent > first + ENOUGH, "some are published")
        publisher.pause()
        wanted = range(first, publisher.sent)
        with contextlib.suppress(LinkError):
            await until(lambda: all(sum(m.came[n] for m in members) for n in wanted), "all came")
        came = [sum(m.came[n] for m in members) for n in wanted]
        status = await agents[1].status()

    lost, twice = came.count(0), sum(each > 1 for each in came)
    tell(row="6 groups that only Mosquitto grants", sent=len(wanted), lost=lost, twice=twice)
    assert (lost, twice) == (0, 0)
    assert not status["discovery"]["widened"]


def wants_odd(status):
    return "odd/#" in [mesh["filter"] for mesh in status["meshes"]]
