"""Real agents whose frames go straight from one to the other, over roads that are cut."""

import asyncio
import contextlib
import os
import random
import socket
import tempfile

import pytest
from mqtt5 import ConnectPacket

from lab.grid.processes.relay import Relay, Way
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Office

SECURITIES = ("open", "signed", "sealed", "proven")


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


class Pair:
    """Two agents, each with its broker; ``roads[i]`` leads straight to agent i."""

    def __init__(self, plain, office):
        self.plain, self.office = plain, office
        self.roads, self.brokers, self.agents = [], [], []

    async def start(self, *, security="signed", transports=("direct", "direct"), folder=None):
        for i, transport in enumerate(transports):
            road = Relay(("127.0.0.1", 9), delay_s=0)
            road.listen()
            self.roads.append(road)
            self.brokers.append(await self.plain.broker())
            lines = ["[direct]", 'listen = "127.0.0.1:0"']
            lines += [f'advertise = "127.0.0.1:{road.port}"']
            lines += [f'folder = "{folder}"'] if folder else []
            lines += [self.office.section(i + 1)] if security != "open" else []
            agent = await self.plain.agent(
                i + 1,
                self.brokers[i],
                *(broker.url for broker in self.brokers[:i]),
                security=security,
                links={"transport": transport},
                more="\n".join(lines),
            )
            self.agents.append(agent)
            if transport == "direct":
                road.target = ("127.0.0.1", (await agent.status())["direct"]["port"])
        await eventually(self.agents[0], linked(2), "linked")
        return self

    async def used(self):
        for agent in self.agents:
            await eventually(agent, goes_straight, "frames go straight")
        return self

    def clients(self, *, qos, rate_hz=300):
        subscriber = Subscriber(self.brokers[1].port, "a/#", client_id="sub", qos=qos)
        publisher = Publisher(
            self.brokers[0].port, "a/b", client_id="pub", qos=qos, rate_hz=rate_hz
        )
        return publisher, subscriber


def goes_straight(status):
    return bool(status["links"][0]["direct"]) and status["links"][0]["direct"]["used"]


@pytest.fixture
async def pair(plain, office):
    made = Pair(plain, office)
    yield made
    for road in made.roads:
        road.close()


@pytest.mark.parametrize("security", SECURITIES)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.few(3)
async def test_frames_arrive_once_and_in_order_and_the_broker_carries_none(pair, qos, security):
    await (await pair.start(security=security)).used()
    publisher, subscriber = pair.clients(qos=qos)
    eavesdropper = Overheard(pair.brokers[1].port)
    async with running(subscriber, publisher, eavesdropper):
        await gets_through(publisher, subscriber)
        first, heard = publisher.sent, eavesdropper.frames
        await until(lambda: publisher.sent >= first + 600, "600 are published")
        publisher.pause()
        wanted = list(range(first, publisher.sent))
        await until(lambda: set(wanted) <= set(subscriber.came), "they arrive")
        assert eavesdropper.frames == heard
        page = await metrics(pair.agents[0].http)

    assert [number for number in subscriber.order if number >= first] == wanted
    assert values(page, "federator_link_direct_used")['neighbour="2"'] == 1
    assert values(page, "federator_link_direct_sent_bytes_total")['neighbour="2"'] > 10_000
    pair.plain.assert_calm()


class Overheard(Subscriber):
    """Counts the frames that a broker carries."""

    def __init__(self, port):
        super().__init__(port, "$fed/fed/data", client_id="eavesdropper")
        self.frames = 0

    def on_publishes(self, link, chunk, publishes):
        self.frames += len(publishes)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.few(1)
async def test_what_a_broken_connection_lost_goes_by_the_broker(pair, qos):
    """Reset, half open in either direction, silenced, cut: nothing is lost, nothing comes twice."""
    await (await pair.start()).used()
    publisher, subscriber = pair.clients(qos=qos)
    road = pair.roads[1]
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        first = publisher.sent
        for turn in range(6):
            road.reset()
            await asyncio.sleep(0.1 + 0.07 * turn)
        await pair.used()
        for way in Way:
            road.swallow((way,))
            await eventually(pair.agents[0], lambda s: not goes_straight(s), "it is given up")
            await pair.used()
        road.silence((Way.FORTH,))
        await eventually(pair.agents[0], lambda s: not goes_straight(s), "it is given up")
        road.heal()
        await pair.used()
        road.cut()
        await eventually(pair.agents[0], lambda s: not goes_straight(s), "it is given up")
        await gets_through(publisher, subscriber)
        publisher.pause()
        wanted = list(range(first, publisher.sent))
        await until(lambda: set(wanted) <= set(subscriber.came), "all arrive")
        status = await pair.agents[0].status()

    assert subscriber.duplicates == 0
    assert status["direct"]["by_broker"] > 0
    if qos:
        assert [number for number in subscriber.order if number >= first] == wanted
    pair.plain.assert_calm()


async def test_agents_of_one_host_meet_at_a_socket_of_a_folder(pair):
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has little room
        await (await pair.start(folder=folder)).used()
        publisher, subscriber = pair.clients(qos=1)
        async with running(subscriber, publisher):
            await gets_through(publisher, subscriber)
        names = sorted(os.listdir(folder))

    assert names == ["fed-1.sock", "fed-2.sock"]
    assert not any(road.connections for road in pair.roads)


async def test_an_agent_without_a_port_for_us_is_reached_by_its_broker(pair):
    await pair.start(transports=("direct", "tcp"))
    publisher, subscriber = pair.clients(qos=0)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        status = await pair.agents[0].status()

    assert not goes_straight(status)
    assert subscriber.duplicates == 0


def refuses_most(status):
    return status["direct"]["refused"] > 500


async def test_strangers_at_the_port_disturb_nobody(pair):
    """Garbage, wrong tokens, packets that do not end, and a thousand that say nothing."""
    await (await pair.start()).used()
    publisher, subscriber = pair.clients(qos=1)
    port = (await pair.agents[1].status())["direct"]["port"]
    rng = random.Random(1)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        first = publisher.sent
        with contextlib.ExitStack() as stack:
            for _ in range(1_000):
                idle = stack.enter_context(socket.socket())
                idle.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    idle.connect(("127.0.0.1", port))
                await asyncio.sleep(0)
            for number in range(300):
                known = ConnectPacket("1", password=rng.randbytes(16)).write()
                said = [rng.randbytes(200), known, b"\x10\xff\xff\xff\x7f" + bytes(2_000)]
                caller = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                with contextlib.suppress(OSError):
                    caller.sendall(said[number % 3])
                caller.close()
                await asyncio.sleep(0.002)
            await gets_through(publisher, subscriber)
            await eventually(pair.agents[1], refuses_most, "most are refused")
        publisher.pause()
        wanted = list(range(first, publisher.sent))
        await until(lambda: set(wanted) <= set(subscriber.came), "all arrive")

    assert [number for number in subscriber.order if number >= first] == wanted
    assert goes_straight(await pair.agents[0].status())
    assert len(named(pair.agents[0], "direct.left")) == 0
