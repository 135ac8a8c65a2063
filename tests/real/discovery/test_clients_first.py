"""Who subscribed before an agent came: our own programs never count, after a reboot nobody does.

The agents, the gateway and the collector are processes, the brokers real.
"""

import os
import random
import time

import aiomqtt
import pytest

from lab.grid.processes.daemons import CollectorProcess
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real import flow
from tests.real.gateway.clients import V5, V311, GatewayClient
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until


def knows(*filters):
    """Whether an agent asks for exactly these filters, and is sure of that."""

    def judge(status):
        found = status["discovery"]
        return found["trusted"] and not found["widened"] and found["wanted"] == len(filters)

    return judge


@pytest.mark.slow
async def test_gateway_collector_and_their_clients_that_came_first_do_not_count(plain, tmp_path):
    broker = await plain.broker()
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.publish("kept/1", b"0", qos=1, retain=True)
    quick = {"failover": {"settle_ms": 0}}  # there is no agent that could say what is settled
    config = GatewayConfig("gate", {1: broker.url}, federation="fed", more=quick)
    async with (
        GatewayProcess(tmp_path / "gateway", config) as gateway,
        CollectorProcess(tmp_path / "collector", broker.url) as collector,
        GatewayClient(gateway.port, "old", version=V311, subscribes=["kept/#", "a"]) as old,
        GatewayClient(gateway.port, "new", version=V5, subscribes=["kept/#", "b"]) as new,
    ):
        await until(lambda: old.came and new.came, "both have the retained value")

        async def reads():
            return any(each["connected"] for each in (await collector.status())["brokers"])

        await until(reads, "the collector is connected")
        agent = await plain.agent(1, broker)
        status = await eventually(agent, knows("kept/#", "a", "b"), "all of ours are known")

        assert "broker counts" not in agent.log_path.read_text(), "never one more than known"
        assert status["discovery"]["clients"] >= 4
        async with aiomqtt.Client(broker.host, broker.port) as client:
            for topic in ("a", "b", "kept/2"):
                await client.publish(topic, b"1", qos=1)
        await until(lambda: old.came["1"] == new.came["1"] == 2, "live ones come")
        assert old.came["0"] == new.came["0"] == 1, "what is retained came once"


SITE = (1, 2, 3)
COUNTED = (
    {"extra_config": ("max_queued_messages 0",)}  # every 10 s, as brokers do by default
    if os.environ.get("FEDERATOR_TEST_SYS_INTERVAL") == "default"
    else {}
)


class Site:
    """Three brokers in a line, a subscriber of its own at each, and one who publishes at the first.

    Attributes:
        sure_after_s: How long after the last agent was up each was sure of what it wants.
    """

    def __init__(self, plain, brokers, rng):
        self.brokers, self.rng = brokers, rng
        self.agents = {}
        self.sure_after_s = []
        self._plain = plain
        ports = {id_: broker.port for id_, broker in brokers.items()}
        self.subscribers = {
            id_: flow.Subscriber(port, "all/news", client_id=f"sub-{id_}", qos=1)
            for id_, port in ports.items()
        }
        self.publisher = flow.Publisher(ports[1], "all/news", client_id="pub", rate_hz=20, qos=1)
        self.publisher.pause()

    def clients(self):
        return [*self.subscribers.values(), self.publisher]

    async def first(self):
        for id_ in SITE:
            before = [self.brokers[id_ - 1].url] if id_ > 1 else []
            self.agents[id_] = await self._plain.agent(id_, self.brokers[id_], *before)
        await eventually(self.agents[2], linked(1, 3), "linked")

    async def sure(self):
        """Wait until each agent wants what its clients do, and no more."""
        since_s, self.sure_after_s = time.monotonic(), []
        for id_, agent in self.agents.items():
            await eventually(agent, knows("all/news"), f"{id_} is sure")
            self.sure_after_s.append(round(time.monotonic() - since_s, 1))

    async def reboot(self):
        """Everything ends; brokers start, then the clients are there, then agents in any order."""
        for each in self.rng.sample(SITE, 3):
            await self.agents[each].stop()
        for each in self.rng.sample(SITE, 3):
            await self.brokers[each].stop()
        for each in self.rng.sample(SITE, 3):
            await self.brokers[each].start()
        links = [client.link for client in self.clients()]
        await until(lambda: all(link.subscribed for link in links), "clients are back first")
        for each in self.rng.sample(SITE, 3):
            await self.agents[each].start()

    async def gets_all(self):
        """What is published from now on comes to everybody once."""
        first = self.publisher.sent
        self.publisher.resume()
        await until(lambda: self.publisher.sent >= first + 40, "published")
        self.publisher.pause()
        numbers = range(first, self.publisher.sent)
        for each in self.subscribers.values():
            await until(lambda e=each: all(e.came[n] for n in numbers), "nothing is lost")


@pytest.mark.slow
@pytest.mark.parametrize("persistence", [False, True], ids=["forgets", "persists"])
async def test_after_a_reboot_with_clients_first_no_agent_asks_for_more(
    plain, record_property, persistence
):
    brokers = {id_: await plain.broker(persistence=persistence, **COUNTED) for id_ in SITE}
    site = Site(plain, brokers, random.Random())
    await site.first()
    async with flow.running(*site.clients()):
        await site.sure()
        await site.gets_all()

        await site.reboot()
        await site.sure()
        await site.gets_all()


@pytest.mark.parametrize("persistence", [False, True], ids=["forgets", "persists"])
async def test_a_client_that_is_new_since_the_last_run_is_known_or_told(plain, persistence):
    broker = await plain.broker(persistence=persistence)
    agent = await plain.agent(1, broker)
    await eventually(agent, knows(), "it hears the log")
    old = flow.Subscriber(broker.port, "old", client_id="old")
    new = flow.Subscriber(broker.port, "new", client_id="new")
    async with flow.running(old):
        await eventually(agent, knows("old"), "sure")
        await agent.stop()
        await broker.stop()
        await broker.start()
        async with flow.running(new):
            await until(lambda: old.link.subscribed and new.link.subscribed, "clients are first")
            await agent.start()

            if persistence:  # the broker kept our session, and in it the lines of its start
                await eventually(agent, knows("old", "new"), "both are known")
                return
            status = await eventually(agent, lambda s: s["discovery"]["unknown"], "told")

            found = status["discovery"]
            assert (found["widened"], found["unknown"], found["asks_for"]) == (True, 1, ["#"])
            assert found["unheard_before"].endswith("+00:00")
            await until(lambda: "discovery.unknown" in agent.log_path.read_text(), "logged")
            new.link.drop("as told")
            await eventually(agent, knows("old", "new"), "it has come back")
