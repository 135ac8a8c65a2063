"""A real gateway before real brokers and agents."""

import asyncio

import pytest

from federator.grid.gateway_process import GatewayConfig, GatewayProcess
from tests.real.gateway_clients import V5, V311, GatewayClient
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until


@pytest.fixture
async def three(tmp_path):
    """Brokers 1, 2 and 3 in a line, their agents, and a gateway."""
    async with Plain(tmp_path) as plain:
        brokers = {id_: await plain.broker() for id_ in (1, 2, 3)}
        await plain.agent(1, brokers[1])
        middle = await plain.agent(2, brokers[2], brokers[1].url)
        await plain.agent(3, brokers[3], brokers[2].url)
        await eventually(middle, linked(1, 3), "links")
        urls = {id_: broker.url for id_, broker in brokers.items()}
        more = {"attachment": {"assign": ["one*=1", "two*=2", "three*=3"]}}
        config = GatewayConfig("gate", urls, federation="fed", more=more)
        gateway = GatewayProcess(tmp_path / "gateway", config)
        async with gateway:
            yield brokers, gateway
        assert "Traceback" not in gateway.log_path.read_text()


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_of_a_killed_broker_goes_on_elsewhere_and_misses_nothing(three, version):
    brokers, gateway = three
    subscriber = GatewayClient(gateway.port, "one", version=version, subscribes=("a/#",))
    publisher = GatewayClient(gateway.port, "three", version=version)
    stop = asyncio.Event()
    async with subscriber, publisher:
        flow = asyncio.create_task(publisher.publish("a/b", rate_hz=100, stop=stop))
        await until(lambda: len(subscriber.came) > 50, "publications flow")

        brokers[1].kill9()
        seen = len(subscriber.came)
        await until(lambda: len(subscriber.came) > seen + 50, "publications flow again")

        stop.set()
        await flow
        await until(lambda: set(publisher.acknowledged) <= set(subscriber.came), "all of it came")
        assert subscriber.error is publisher.error is None
        assert (await gateway.clients())["one"]["broker"] in (2, 3)
        await until(
            lambda: '"gateway.moved"' in gateway.log_path.read_text(), "operators hear of it"
        )


async def test_what_a_broker_acknowledged_right_before_its_death_is_not_lost(three):
    brokers, gateway = three
    subscriber = GatewayClient(gateway.port, "three", subscribes=("a/#",))
    publisher = GatewayClient(gateway.port, "one", version=V5)
    stop = asyncio.Event()
    async with subscriber, publisher:
        flow = asyncio.create_task(publisher.publish("a/b", rate_hz=200, stop=stop))
        await until(lambda: len(subscriber.came) > 50, "publications flow")

        brokers[1].kill9()
        acknowledged = len(publisher.acknowledged)
        await until(lambda: len(publisher.acknowledged) > acknowledged + 100, "it goes on")

        stop.set()
        await flow
        await until(lambda: set(publisher.acknowledged) <= set(subscriber.came), "all of it came")
        assert subscriber.error is publisher.error is None


async def test_at_qos_2_everything_comes_once_though_the_subscribers_broker_is_killed(three):
    brokers, gateway = three
    subscriber = GatewayClient(gateway.port, "one", version=V5, subscribes=("a/#",), qos=2)
    publisher = GatewayClient(gateway.port, "three")
    stop = asyncio.Event()
    async with subscriber, publisher:
        flow = asyncio.create_task(publisher.publish("a/b", rate_hz=50, stop=stop, qos=2))
        await until(lambda: len(subscriber.came) > 50, "publications flow")

        brokers[1].kill9()
        seen = len(subscriber.came)
        await until(lambda: len(subscriber.came) > seen + 100, "publications flow again")

        stop.set()
        await flow
        await until(lambda: set(publisher.acknowledged) <= set(subscriber.came), "all of it came")
        assert set(subscriber.came.values()) == {1}
        assert subscriber.error is publisher.error is None
