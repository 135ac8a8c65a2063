"""A real gateway before real brokers and agents."""

import pytest

from tests.real.gateway.clients import V5, V311, GatewayClient, flowing, grow
from tests.real.polling import until


@pytest.fixture
async def gateway(stage):
    """Clients whose ids begin with a number are attached to that broker."""
    return await stage.gateway(assign=("one*=1", "two*=2", "three*=3"))


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_of_a_killed_broker_goes_on_elsewhere_and_misses_nothing(
    stage, gateway, version
):
    subscriber = GatewayClient(gateway.port, "one", version=version, subscribes=("a/#",))
    publisher = GatewayClient(gateway.port, "three", version=version)
    async with flowing(subscriber, {publisher: "a/b"}, rate_hz=100) as settled:
        stage.brokers[1].kill9()
        await grow(subscriber.came, by=50)

        await settled()
        assert (await gateway.clients())["one"]["broker"] in (2, 3)
        await until(
            lambda: '"gateway.moved"' in gateway.log_path.read_text(), "operators hear of it"
        )


async def test_what_a_broker_acknowledged_right_before_its_death_is_not_lost(stage, gateway):
    subscriber = GatewayClient(gateway.port, "three", subscribes=("a/#",))
    publisher = GatewayClient(gateway.port, "one", version=V5)
    async with flowing(subscriber, {publisher: "a/b"}, rate_hz=200) as settled:
        stage.brokers[1].kill9()
        await grow(publisher.acknowledged, by=100)

        await settled()


async def test_at_qos_2_everything_comes_once_though_the_subscribers_broker_is_killed(
    stage, gateway
):
    subscriber = GatewayClient(gateway.port, "one", version=V5, subscribes=("a/#",), qos=2)
    publisher = GatewayClient(gateway.port, "three")
    async with flowing(subscriber, {publisher: "a/b"}, rate_hz=50, qos=2) as settled:
        stage.brokers[1].kill9()
        await grow(subscriber.came, by=100)

        await settled()
        assert set(subscriber.came.values()) == {1}
