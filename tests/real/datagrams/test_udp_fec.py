"""Real agents whose frames travel in datagrams over a road that loses some of them."""

import asyncio
import contextlib
import socket
import sys
from functools import partial

import pytest

from tests.real.agent_log import named
from tests.real.datagrams.lossy_road import LossyRoad
from tests.real.flow import running
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import PlainConfig, eventually, gets_through
from tests.real.polling import until
from tests.real.streams import begin, none_lost
from tests.real.transport_pair import TransportPair
from tests.real.trust.test_signed import Office


@pytest.fixture
async def pair(plain, tmp_path):
    """Two agents that are not started; ``roads`` takes what ``LossyRoad`` does."""
    async with contextlib.AsyncExitStack() as stack:
        made = TransportPair(plain, tmp_path, transport="udp-fec", section="udp", key="datagrams")
        made.roads_of = lambda **road: partial(lossy_road, stack, road)
        yield made


async def lossy_road(stack, road, number):
    return await stack.enter_async_context(LossyRoad(seed=number, **road))


@pytest.mark.parametrize(("qos", "security"), [(0, "signed"), (1, "sealed")])
async def test_everything_arrives_once_and_in_order_over_a_road_that_loses(pair, qos, security):
    await pair.start(pair.roads_of(plr=0.05, delay_s=0.02), security=security)
    await pair.used()
    publisher, subscriber = pair.stream(qos=qos)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        first = publisher.sent
        await until(lambda: publisher.sent >= first + 900, "900 are published")
        publisher.pause()
        wanted = set(range(first, publisher.sent))
        enough = len(wanted) if qos else 0.95 * len(wanted)  # QoS 0 promises nothing
        await until(lambda: len(wanted & set(subscriber.came)) >= enough, "they arrive")
        status = await pair.agents[0].status()
        page = await metrics(pair.agents[0].http)

    assert subscriber.duplicates == 0
    assert pair.roads[1].lost > 0
    for name in ("parts_sent", "repairs_sent"):
        assert values(page, f"federator_link_datagram_{name}_total")['neighbour="2"'] > 0
    assert values(page, "federator_datagrams_sent_total")[""] > 100
    out = pair.link(status)["out"]
    assert out["frames"] > 100
    assert out["repairs"] > 0
    if qos:
        order = [n for n in subscriber.order if n >= first]
        assert order == sorted(order)
    pair.plain.assert_calm()


async def test_a_road_that_dies_costs_nothing_but_datagrams(pair):
    await (await pair.start(pair.roads_of())).used()
    publisher, subscriber = stream = pair.stream(qos=1, rate_hz=100)
    async with running(subscriber, publisher):
        begun = await begin([stream])
        losses = pair.roads[1].losses
        losses.plr, losses.abl = 0.999, 1_000
        await pair.left()
        await gets_through(publisher, subscriber)
        await none_lost([stream], begun)
        losses.plr, losses.abl = 0.0, 1.0
        await pair.used()

    assert subscriber.duplicates == 0


@pytest.mark.parametrize("how", [{"second": "tcp"}, {"named": 'transport = "tcp"'}], ids=str)
async def test_an_agent_that_has_no_datagrams_for_us_is_reached_by_its_broker(pair, how):
    await pair.start(pair.roads_of(), **how)
    publisher, subscriber = pair.stream()
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        status = await pair.agents[0].status()

    assert pair.link(status) is None
    assert status["datagrams"]["datagrams_out"] == 0


async def test_an_address_that_cannot_be_looked_up_costs_a_line(pair):
    impossible = "x" * 70 + ".invalid"
    await pair.start(pair.roads_of(), advertised=f"{impossible}:9")
    publisher, subscriber = pair.stream()
    async with running(subscriber, publisher):
        await until(lambda: named(pair.agents[0], "datagrams.bad_address"), "it is told")
        await gets_through(publisher, subscriber)

    (line,) = named(pair.agents[0], "datagrams.bad_address")
    assert (line["neighbour"], line["address"]) == (2, f"{impossible}:9")


async def test_forged_and_recorded_datagrams_are_not_taken(pair):
    await (await pair.start(pair.roads_of())).used()
    publisher, subscriber = pair.stream()
    road = pair.roads[1]
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        await until(lambda: len(road.keep) >= 50, "some are recorded")
        recorded = list(road.keep)
        before = (await pair.agents[1].status())["datagrams"]["refused"]
        for at, data in enumerate(recorded):
            road.inject(data)
            changed = bytearray(data)
            changed[at % len(data)] ^= 1
            road.inject(bytes(changed))
            road.inject(data[: len(data) // 2])
        await eventually(
            pair.agents[1],
            lambda s: s["datagrams"]["refused"] >= before + 3 * len(recorded),
            "all are refused",
        )
        await gets_through(publisher, subscriber)

    assert subscriber.duplicates == 0


async def test_a_port_that_is_taken_is_said_in_one_line(tmp_path):
    office = Office(tmp_path / "office")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        more = "\n".join(["[udp]", f'listen = "{listen}"', office.section(1)])
        config = PlainConfig(
            1, "mqtt://127.0.0.1:1", links={"transport": "udp-fec"}, more=more, security="signed"
        )
        path = tmp_path / "federator.toml"
        path.write_text(config.toml(tmp_path / "state"))
        command = ("-m", "federator", "run", "-c", path)
        run = await asyncio.create_subprocess_exec(
            sys.executable, *command, stderr=asyncio.subprocess.PIPE
        )
        _, told = await asyncio.wait_for(run.communicate(), 60)

    assert run.returncode == 69, told
    wanted = f"federator: udp.listen = '{listen}': address already in use: choose an address"
    assert told.splitlines()[-1].startswith(wanted.encode()), told
