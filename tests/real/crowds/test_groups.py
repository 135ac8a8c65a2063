"""One client in hundreds of shared groups costs others nothing.

docs/security.md, "Threats and answers"; docs/protocol.md 9 and 12.
"""

import asyncio

import pytest

from tests.real.agent_log import named
from tests.real.crowds.crowd import Rude, subscribe
from tests.real.crowds.test_storms import signed_pair
from tests.real.crowds.test_words import longest_answer_s
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through
from tests.real.undisturbed import undisturbed

GROUPS = 900
ANSWER_S = 10.0
"""In which a page answers, at most; it took longer while each line looked at each group."""

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

    assert longest_s < ANSWER_S
    assert named(agents[1], "share.beyond_quota")


def all_known(status):
    """Whether each membership is counted apart, or beyond the quota."""
    beyond = status["discovery"]["groups_beyond_quota"]
    return beyond + status["share"]["groups_total"] == GROUPS + 1
