"""Words of gateways that are none: they cost what they may, and no more.

docs/security.md, "Threats and answers".
"""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.crowds.test_storms import signed_pair
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import gets_through
from tests.real.polling import until
from tests.real.undisturbed import tell, undisturbed


@pytest.fixture
async def pair(plain, tmp_path):
    """Two brokers, and signed agents."""
    return await signed_pair(plain, tmp_path)


class Impostor(Client):
    """A local client that speaks as gateways do."""

    async def say(self, kind, words):
        """Publish each of ``words`` as soon as there is room."""
        for word in words:
            payload = json.dumps(word).encode()
            await until(
                lambda p=payload: self.link.publish(f"$fed/fed/{kind}", p, qos=1),
                "there is room",
            )


async def longest_answer_s(agent, until_done):
    """The longest time that a page of ``agent`` took, until ``until_done`` is."""
    longest_s = 0.0
    while not until_done.done():
        asked_s = time.monotonic()
        await agent.status()
        longest_s = max(longest_s, time.monotonic() - asked_s)
        await asyncio.sleep(0.05)
    return longest_s


async def attacked(pair, words_of):
    """An impostor says ``words_of`` to agent 2; honest traffic passes, and its page answers."""
    brokers, agents = pair
    steady = Subscriber(brokers[1].port, "steady/#", client_id="steady", qos=1)
    publisher = Publisher(brokers[0].port, "steady/1", client_id="steady-pub", qos=1, rate_hz=50)
    impostor = Impostor(brokers[1].port, "impostor")
    async with running(steady, publisher, impostor):
        await gets_through(publisher, steady)
        kind, words = words_of
        async with undisturbed(f"11 {kind} words", publisher, steady, processes=agents):
            saying = asyncio.create_task(impostor.say(kind, words))
            longest_s = await longest_answer_s(agents[1], saying)
            await saying
            sent = publisher.sent
            after = asyncio.create_task(until(lambda: publisher.sent > sent + 20, "it is worked"))
            longest_s = max(longest_s, await longest_answer_s(agents[1], after))
            await after
    tell(row=f"11 {kind} words, pages", p99_ms=round(1_000 * longest_s, 1))


async def test_a_flood_of_questions_does_not_hold_the_loop(pair):
    questions = (
        {
            "type": "settle",
            "gateway": f"g{number % 7}",
            "token": number,
            "filters": [f"nobody/{number}/{each}" for each in range(40)],
        }
        for number in range(3_000)
    )

    await attacked(pair, ("settle", questions))


@pytest.mark.full
async def test_reports_that_are_never_finished_fill_no_memory(pair):
    client = {"client": "c" * 200, "on": True, "clean": True, "subscribes": ["t" * 100] * 20}
    pages = (
        {"type": "sessions", "gateway": f"g{number}", "epoch": 1, "seq": 1}
        | {"page": 0, "pages": 2, "sessions": [client] * 400}
        for number in range(160)
    )
    before = resident_bytes(pair[1][1])

    await attacked(pair, ("sessions", pages))

    assert named(pair[1][1], "sessions.refused")
    assert resident_bytes(pair[1][1]) - before < 150 * 2**20


def resident_bytes(agent):
    """What the kernel says that the process of ``agent`` has in memory."""
    status = Path(f"/proc/{agent.pid}/status").read_text()
    return 1_024 * int(status.split("VmRSS:")[1].split()[0])
