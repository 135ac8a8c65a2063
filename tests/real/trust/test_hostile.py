"""Hostile clients and mistaken operators against real agents: nothing crashes, nobody else notices.

docs/security.md, "Threats and answers"; docs/guarantees.md, "Sizes and unusual input".
"""

import asyncio
import contextlib
import random

import pytest
from mqtt5 import PublishPacket

from federator.protocol.forwarding.frames import pack
from federator.protocol.messages.codec import CONTROL_KINDS, encode, kind_of
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.protocol.frames import made_frame
from tests.protocol.hostile import UNLINKED, mutated, samples
from tests.real.agent_log import assert_calm, named, tally
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through
from tests.real.polling import until
from tests.real.undisturbed import undisturbed

FLOOD = 10_000
MEGABYTE = 1_048_576
TOPIC = "plant/7/temp"


def frame(sender):
    """One that nobody sent, as late as can be."""
    last = 2**64 - 1
    late = {"hop_limit": 64, "epoch": last, "seq": last, "origin_time_us": last}
    body = PublishPacket(TOPIC, b"-1").write()
    return pack(made_frame(origin=0, sender=sender, body=body, **late))


def hostile_payloads(rng):
    """(last topic level, payload), for ever: whole, mutated and out of place."""
    whole = [(kind_of(m), encode(m)) for m in samples(UNLINKED)]
    whole += [("data", frame(UNLINKED)), ("data", frame(2**32 - 1))]
    topics = [*CONTROL_KINDS, "data", "new_regular_topic"]
    while True:
        kind, payload = rng.choice(whole)
        yield kind, payload
        yield kind, mutated(rng, payload)
        yield rng.choice(topics), payload
        yield rng.choice(topics), rng.randbytes(rng.randrange(64))
        yield "new_regular_topic", rng.choice((b"#/#", b"$SYS/#", b"$share/g/$x", b"\xff", b""))


def picture(status):
    """Everything that decides where the traffic goes."""
    return (
        status["epoch"],
        [(link["neighbour"], link["state"]) for link in status["links"]],
        [(core["core"], core["epoch"], core["parents"]) for core in status["cores"]],
        [
            (mesh["filter"], mesh["core"], mesh["next_hops"])
            for mesh in status["meshes"]
            if mesh["filter"] == "plant/#"
        ],
    )


@pytest.fixture
async def line(tmp_path):
    """Brokers 0, 1, 2 in a row, and what each test wants to say about them at its end."""
    quick = ("sys_interval 1",)  # subscriptions are counted every second, not every tenth
    async with RunningGrid(Grid(1, 3, 0), tmp_path, link_delay_ms=0, broker_options=quick) as grid:
        yield grid
        for agent in grid.agents.values():
            assert_calm(agent)


@contextlib.asynccontextmanager
async def traffic(grid, row, *others):
    """100 msg/s from end to end, from before the block until after it: all arrive, and once."""
    subscriber = Subscriber(grid.brokers[2].port, "plant/#", client_id="sub")
    publisher = Publisher(grid.brokers[0].port, TOPIC, client_id="pub", rate_hz=100)
    async with running(subscriber, publisher, *others):
        await until(lambda: len(subscriber.came) > 20, "traffic flows")
        agents = grid.agents.values()
        async with undisturbed(row, publisher, subscriber, processes=agents):
            yield
            await gets_through(publisher, subscriber)

    assert -1 not in subscriber.came


async def test_a_flood_of_garbage_on_every_topic_disturbs_nothing(line):
    agent = line.agents[1]
    vandal = Client(line.brokers[1].port, "vandal")
    rng = random.Random(1)
    async with traffic(line, "garbage at QoS 0", vandal):
        await until(lambda: vandal.link.connected, "the vandal is in")
        before = await agent.status()

        payloads = hostile_payloads(rng)
        for number in range(FLOOD):
            kind, payload = next(payloads)
            await vandal.put(f"$fed/grid/{kind}", payload, retain=number % 4 == 0)
            if number % 100 == 0:
                await asyncio.sleep(0.01)  # a burst, not a queue overflow in the broker
        for kind in (*CONTROL_KINDS, "data", "new_regular_topic"):
            await vandal.put(f"$fed/grid/{kind}", b"\x91" * (MEGABYTE + 1))
        heard = await counters(agent, lambda c: sum(c["control_malformed"].values()) > FLOOD / 5)
        after = await agent.status()

    assert picture(after) == picture(before)
    assert set(heard["control_malformed"]) == set(CONTROL_KINDS)
    assert heard["data"]["malformed_frames"] > 100
    assert heard["data"]["frames_of_strangers"] > 100
    lines = tally(agent)
    assert lines["control.malformed"] <= len(CONTROL_KINDS)
    assert lines["frame.malformed"] == 1
    assert sum(lines.values()) < 60, lines


async def counters(agent, wanted):
    """The counters of ``agent`` once they are as ``wanted``."""
    found = await eventually(agent, lambda s: wanted(s["counters"]), "counters", deadline_s=20)
    return found["counters"]


async def test_retained_garbage_is_not_heard_by_an_agent_that_starts(line):
    vandal = Client(line.brokers[1].port, "vandal")
    agent = line.agents[1]
    async with running(vandal):
        await until(lambda: vandal.link.connected, "the vandal is in")
        for kind in (*CONTROL_KINDS, "data"):
            await vandal.put(f"$fed/grid/{kind}", b"garbage", retain=True)
        # What an agent has not heard when it stops waits in its session.
        await counters(agent, lambda told: set(told["control_malformed"]) == set(CONTROL_KINDS))
        await agent.restart()
        await line.until(line.links_up)

    told = (await agent.status())["counters"]
    assert told["control_malformed"] == {}
    assert told["data"]["malformed_frames"] == 0


async def test_an_agent_is_not_moved_by_what_is_said_in_its_own_name(line):
    agent = line.agents[1]
    vandal = Client(line.brokers[1].port, "vandal")
    async with traffic(line, "its own name at QoS 0", vandal):
        await until(lambda: vandal.link.connected, "the vandal is in")
        before = await agent.status()
        for message in samples(1):
            for _ in range(20):
                await vandal.put(f"$fed/grid/{kind_of(message)}", encode(message))
        await until(lambda: named(agent, "neighbour.has_own_id"), "the agent complains")
        after = await agent.status()

    assert picture(after) == picture(before)
    assert len(named(agent, "neighbour.has_own_id")) == 1
