"""A gateway that reaches its brokers in WebSockets."""

import pytest

from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from tests.certificates import websocket_listener
from tests.real.gateway.clients import V5, V311, GatewayClient, flowing, grow
from tests.real.plain_agents import DEEP, QUICK, eventually, linked


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_moves_between_brokers_that_are_reached_in_websockets(
    plain, tmp_path, version
):
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    brokers = {
        id_: await plain.broker(extra_config=(*QUICK, *DEEP, *websocket_listener(port)))
        for id_, port in ports.items()
    }
    first = await plain.agent(1, brokers[1])
    await plain.agent(2, brokers[2], brokers[1].url)
    await eventually(first, linked(2), "links")
    config = GatewayConfig(
        "gate",
        {id_: f"ws://127.0.0.1:{port}" for id_, port in ports.items()},
        federation="fed",
        more={"attachment": {"assign": ["one*=1", "two*=2"]}},
    )
    gateway = GatewayProcess(tmp_path / "gateway", config)
    async with gateway:
        subscriber = GatewayClient(gateway.port, "one", version=version, subscribes=("a/#",))
        publisher = GatewayClient(gateway.port, "two", version=version)
        async with flowing(subscriber, {publisher: "a/b"}, rate_hz=100) as settled:
            brokers[1].kill9()
            await grow(subscriber.came, by=50)

            await settled()
            assert (await gateway.clients())["one"]["broker"] == 2
    assert "Traceback" not in gateway.log_path.read_text()
