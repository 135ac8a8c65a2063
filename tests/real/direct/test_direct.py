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
from tests.real.flow import Subscriber, running
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import eventually, gets_through
from tests.real.polling import until
from tests.real.streams import all_came, begin, none_lost
from tests.real.transport_pair import TransportPair

SECURITIES = ("open", "signed", "sealed", "proven")


class Pair(TransportPair):
    def reach(self, road, port):
        road.target = ("127.0.0.1", port)

    async def start(self, **how):
        async def make_road(number):
            road = Relay(("127.0.0.1", 9), delay_s=0)
            road.listen()
            return road

        return await super().start(make_road, **how)


@pytest.fixture
async def pair(plain, tmp_path):
    made = Pair(plain, tmp_path, transport="direct", section="direct", key="direct")
    yield made
    for road in made.roads:
        road.close()


@pytest.mark.parametrize("security", SECURITIES)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.few(3)
async def test_frames_arrive_once_and_in_order_and_the_broker_carries_none(pair, qos, security):
    await (await pair.start(security=security)).used()
    publisher, subscriber = stream = pair.stream(qos=qos)
    eavesdropper = Overheard(pair.brokers[1].port)
    async with running(subscriber, publisher, eavesdropper):
        begun = await begin([stream])
        heard = eavesdropper.frames
        await until(lambda: publisher.sent >= begun[0] + 600, "600 are published")
        await all_came([stream], begun)
        assert eavesdropper.frames == heard
        page = await metrics(pair.agents[0].http)

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
    publisher, subscriber = stream = pair.stream(qos=qos)
    road = pair.roads[1]
    async with running(subscriber, publisher):
        begun = await begin([stream])
        for turn in range(6):
            road.reset()
            await asyncio.sleep(0.1 + 0.07 * turn)
        await pair.used()
        for way in Way:
            road.swallow((way,))
            await pair.left()
            await pair.used()
        road.silence((Way.FORTH,))
        await pair.left()
        road.heal()
        await pair.used()
        road.cut()
        await pair.left()
        await gets_through(publisher, subscriber)
        await (all_came if qos else none_lost)([stream], begun)
        status = await pair.agents[0].status()

    assert subscriber.duplicates == 0
    assert status["direct"]["by_broker"] > 0
    pair.plain.assert_calm()


async def test_agents_of_one_host_meet_at_a_socket_of_a_folder(pair):
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has little room
        await (await pair.start(lines=[f'folder = "{folder}"'])).used()
        publisher, subscriber = pair.stream(qos=1)
        async with running(subscriber, publisher):
            await gets_through(publisher, subscriber)
        names = sorted(os.listdir(folder))

    assert names == ["fed-1.sock", "fed-2.sock"]
    assert not any(road.connections for road in pair.roads)


async def test_an_agent_without_a_port_for_us_is_reached_by_its_broker(pair):
    await pair.start(second="tcp")
    publisher, subscriber = pair.stream()
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        status = await pair.agents[0].status()

    assert not pair.is_used(status)
    assert subscriber.duplicates == 0


def refuses_most(status):
    return status["direct"]["refused"] > 500


async def test_strangers_at_the_port_disturb_nobody(pair):
    """Garbage, wrong tokens, packets that do not end, and a thousand that say nothing."""
    await (await pair.start()).used()
    publisher, subscriber = stream = pair.stream(qos=1)
    port = (await pair.agents[1].status())["direct"]["port"]
    rng = random.Random(1)
    async with running(subscriber, publisher):
        begun = await begin([stream])
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
        await all_came([stream], begun)

    assert pair.is_used(await pair.agents[0].status())
    assert len(named(pair.agents[0], "direct.left")) == 0
