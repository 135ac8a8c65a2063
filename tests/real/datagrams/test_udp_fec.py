"""Real agents whose frames travel in datagrams over a road that loses some of them."""

import asyncio
import contextlib
import socket
import sys

import pytest

from tests.real.agent_log import named
from tests.real.datagrams.lossy_road import LossyRoad
from tests.real.flow import Publisher, Subscriber, running
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import PlainConfig, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Office


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


class Pair:
    """Two agents; ``roads[i]`` leads to agent i."""

    def __init__(self, plain, office):
        self.plain, self.office = plain, office
        self.roads, self.brokers, self.agents = [], [], []

    async def start(
        self,
        stack,
        *,
        security="signed",
        transports=("udp-fec", "udp-fec"),
        advertised=(None, None),
        named="",  # what the second agent says of its neighbour
        **road,
    ):
        for i, transport in enumerate(transports):
            self.roads.append(await stack.enter_async_context(LossyRoad(seed=i, **road)))
            self.brokers.append(await self.plain.broker())
            there = f"{advertised[i]}:9" if advertised[i] else f"127.0.0.1:{self.roads[i].port}"
            udp = "\n".join(
                [
                    "[udp]",
                    'listen = "127.0.0.1:0"',
                    f'advertise = "{there}"',
                    self.office.section(i + 1),
                ]
            )
            neighbours = [broker.url for broker in self.brokers[:i]]
            if named and i == 1:
                udp += f'\n[[neighbours]]\nid = 1\nurl = "{self.brokers[0].url}"\n{named}\n'
                neighbours = []
            agent = await self.plain.agent(
                i + 1,
                self.brokers[i],
                *neighbours,
                security=security,
                links={"transport": transport},
                more=udp,
            )
            self.agents.append(agent)
            if transport == "udp-fec":
                self.roads[i].target = (await agent.status())["datagrams"]["port"]
        await eventually(self.agents[0], linked(2), "linked")
        return self

    async def used(self):
        for agent in self.agents:
            await eventually(agent, uses_datagrams, "datagrams are used")
        return self


def link(status):
    return status["links"][0]["datagrams"]


def uses_datagrams(status):
    return bool(link(status)) and link(status)["used"]


@pytest.fixture
async def pair(plain, office):
    async with contextlib.AsyncExitStack() as stack:
        made = Pair(plain, office)
        made.stack = stack
        yield made


@pytest.mark.parametrize(("qos", "security"), [(0, "signed"), (1, "sealed")])
async def test_everything_arrives_once_and_in_order_over_a_road_that_loses(pair, qos, security):
    await pair.start(pair.stack, security=security, plr=0.05, delay_s=0.02)
    await pair.used()
    subscriber = Subscriber(pair.brokers[1].port, "a/#", client_id="sub", qos=qos)
    publisher = Publisher(pair.brokers[0].port, "a/b", client_id="pub", qos=qos, rate_hz=300)
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
    out = link(status)["out"]
    assert out["frames"] > 100
    assert out["repairs"] > 0
    if qos:
        order = [n for n in subscriber.order if n >= first]
        assert order == sorted(order)
    pair.plain.assert_calm()


async def test_a_road_that_dies_costs_nothing_but_datagrams(pair):
    await (await pair.start(pair.stack)).used()
    subscriber = Subscriber(pair.brokers[1].port, "a/#", client_id="sub", qos=1)
    publisher = Publisher(pair.brokers[0].port, "a/b", client_id="pub", qos=1, rate_hz=100)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        first = publisher.sent
        losses = pair.roads[1].losses
        losses.plr, losses.abl = 0.999, 1_000
        await eventually(pair.agents[0], lambda s: not uses_datagrams(s), "they are given up")
        await gets_through(publisher, subscriber)
        publisher.pause()
        wanted = set(range(first, publisher.sent))
        await until(lambda: wanted <= set(subscriber.came), "all arrive")
        losses.plr, losses.abl = 0.0, 1.0
        await pair.used()

    assert subscriber.duplicates == 0


@pytest.mark.parametrize(
    "how", [{"transports": ("udp-fec", "tcp")}, {"named": 'transport = "tcp"'}], ids=str
)
async def test_an_agent_that_has_no_datagrams_for_us_is_reached_by_its_broker(pair, how):
    await pair.start(pair.stack, **how)
    subscriber = Subscriber(pair.brokers[1].port, "a/#", client_id="sub")
    publisher = Publisher(pair.brokers[0].port, "a/b", client_id="pub")
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        status = await pair.agents[0].status()

    assert link(status) is None
    assert status["datagrams"]["datagrams_out"] == 0


async def test_an_address_that_cannot_be_looked_up_costs_a_line(pair):
    impossible = "x" * 70 + ".invalid"
    await pair.start(pair.stack, advertised=(None, impossible))
    subscriber = Subscriber(pair.brokers[1].port, "a/#", client_id="sub")
    publisher = Publisher(pair.brokers[0].port, "a/b", client_id="pub")
    async with running(subscriber, publisher):
        await until(lambda: named(pair.agents[0], "datagrams.bad_address"), "it is told")
        await gets_through(publisher, subscriber)

    (line,) = named(pair.agents[0], "datagrams.bad_address")
    assert (line["neighbour"], line["address"]) == (2, f"{impossible}:9")


async def test_forged_and_recorded_datagrams_are_not_taken(pair):
    await (await pair.start(pair.stack)).used()
    subscriber = Subscriber(pair.brokers[1].port, "a/#", client_id="sub")
    publisher = Publisher(pair.brokers[0].port, "a/b", client_id="pub")
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


async def test_a_port_that_is_taken_is_said_in_one_line(office, tmp_path):
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
