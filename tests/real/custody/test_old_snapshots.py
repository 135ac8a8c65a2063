"""A broker is killed, and comes back with a snapshot that it took with publications in flight."""

import asyncio
import os
import random
import signal
import time

import pytest

from tests.real.agent_log import named
from tests.real.custody.withheld import Withheld
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, gets_through, linked, settled
from tests.real.polling import until

RATE_HZ = 100
"""Of each of two publishers."""

QUIET_S = 0.2

STANDS_S = 50
"""Ten times the time within which publications arrive again."""


def saved_at(broker):
    """When it saved what it holds."""
    try:
        return (broker.folder / "mosquitto.db").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


async def save(broker):
    """Have it save what it holds."""
    before = saved_at(broker)
    os.kill(broker.pid, signal.SIGUSR1)
    await until(lambda: saved_at(broker) > before, "it saves")


async def kill(broker, *subscribers):
    """Kill it in the middle of everything, once subscribers have read what it sent.

    What a kernel had not handed to them yet would be lost with the connection.
    """
    broker.pause()
    before = None
    while before != (now := [len(each.order) for each in subscribers]):
        before = now
        await asyncio.sleep(QUIET_S)
    broker.kill9()


def data_connection_ended(agent):
    """How often."""
    return sum(event["client_id"].endswith("-data") for event in named(agent, "connection.down"))


@pytest.mark.parametrize(
    ("kills", "between"), [(2, 50), pytest.param(20, 600, marks=pytest.mark.slow)]
)
@pytest.mark.few(1)
async def test_a_broker_restored_with_publications_in_flight_loses_nothing(
    tmp_path, kills, between
):
    rng = random.Random(38)
    stale = [20, 1, *(rng.randint(1, 20) for _ in range(kills - 2))]
    kept = {"clean_start": False, "session_expiry_s": 3_600}
    took_s = []
    async with Plain(tmp_path) as plain:
        near, far = await plain.broker(), await plain.broker(persistence=True)
        async with Withheld(far.port) as way:
            await plain.agent(1, near, far.url)
            agent = await plain.agent(2, way, near.url)
            ones = Subscriber(far.port, "one/#", client_id="ones", qos=1, **kept)
            twos = Subscriber(far.port, "two/#", client_id="twos", qos=2, **kept)
            one = Publisher(near.port, "one/x", client_id="one", rate_hz=RATE_HZ, qos=1)
            two = Publisher(near.port, "two/x", client_id="two", rate_hz=RATE_HZ, qos=2)
            await eventually(agent, linked(1), "ready")
            async with running(ones, twos, one, two):
                since = await settled(one, ones), await settled(two, twos)
                for count in stale:
                    way.withhold(count)
                    await until(lambda n=count: way.withheld == n, f"{count} are in flight")
                    await save(far)
                    way.let_go()
                    number = two.sent + between
                    await until(lambda n=number: twos.came[n], "it goes on")
                    await kill(far, ones, twos)
                    await far.start()
                    began_s = time.monotonic()
                    await gets_through(two, twos)
                    await gets_through(one, ones)
                    took_s.append(time.monotonic() - began_s)
                one.pause()
                two.pause()
                wanted = range(since[0], one.sent), range(since[1], two.sent)
                await until(lambda: all(ones.came[n] for n in wanted[0]), "all of QoS 1 arrive")
                await until(lambda: all(twos.came[n] for n in wanted[1]), "all of QoS 2 arrive")
            ended = data_connection_ended(agent)

    repeated = sum(count - 1 for count in twos.came.values())
    assert ended == kills
    assert repeated <= kills * 20  # what is in flight when it saves, and when it is killed
    assert max(took_s) < STANDS_S, sorted(took_s)
