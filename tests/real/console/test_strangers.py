"""Strangers at the pages of an agent and of a console: probes, viewers and operators are answered.

docs/security.md, "Threats and answers"; docs/console.md, "What it takes".
"""

import asyncio
import http.client
import socket

import pytest

from lab.grid.processes.daemons import ConsoleProcess
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.undisturbed import undisturbed

pytestmark = pytest.mark.usefixtures("turns_told")

ADDRESSES = 6
AT_CONSOLE, AT_AGENT = 600, 100
PROBES = 24


@pytest.fixture
async def pair(plain):
    """Two brokers and their agents, linked."""
    brokers = [await plain.broker() for _ in range(2)]
    agents = [await plain.agent(1, brokers[0])]
    agents.append(await plain.agent(2, brokers[1], brokers[0].url))
    await eventually(agents[0], linked(2), "linked")
    return brokers, agents


def crowd(port, size):
    """Connections from several addresses, some of which begin a request, and no more."""
    made = []
    for number in range(size):
        stranger = socket.socket()
        stranger.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
        stranger.connect(("127.0.0.1", port))
        stranger.sendall((b"", b"GET /healthz HT")[number % 2])
        made.append(stranger)
    return made


def probe(port, path):
    """How a probe is answered; 0 if it is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


async def test_a_crowd_that_asks_nothing_keeps_no_probe_from_its_answer(pair, tmp_path):
    brokers, agents = pair
    ear = Subscriber(brokers[1].port, "honest/#", client_id="ear", qos=1)
    mouth = Publisher(brokers[0].port, "honest/x", client_id="mouth", qos=1, rate_hz=50)
    async with ConsoleProcess(tmp_path / "console", brokers[0].url) as console:
        ports = {console.http_port: AT_CONSOLE, **{a.http_port: AT_AGENT for a in agents}}
        async with running(ear, mouth):
            await gets_through(mouth, ear)
            async with undisturbed("silent at pages", mouth, ear, processes=agents):
                strangers = []
                for port, size in ports.items():
                    strangers += await asyncio.to_thread(crowd, port, size)
                answers = [
                    await asyncio.to_thread(probe, port, path)
                    for _ in range(PROBES // 2)
                    for port in ports
                    for path in ("/healthz", "/readyz")
                ]
        for each in strangers:
            each.close()

    assert answers == [200] * len(answers)
