"""A client moves when its broker dies: over TCP, in WebSockets, and by TLS with certificates."""

import asyncio
import json
import time
from functools import partial

import pytest

from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from tests.certificates import tls_listener, websocket_listener
from tests.real.agent_log import named
from tests.real.gateway.clients import V5, V311, GatewayClient, flowing, grow
from tests.real.gateway.stage import reaches_all
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import DEEP, QUICK, eventually, linked
from tests.real.polling import until


async def pair(plain, listener):
    """Brokers 1 and 2 by id, with their agents, and the ports of their listeners."""
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    brokers = {
        id_: await plain.broker(extra_config=(*QUICK, *DEEP, *listener(port)))
        for id_, port in ports.items()
    }
    first = await plain.agent(1, brokers[1])
    await plain.agent(2, brokers[2], brokers[1].url)
    await eventually(first, linked(2), "links")
    return brokers, ports


def gateway_before(folder, scheme, ports, **broker):
    config = GatewayConfig(
        "gate",
        {id_: f"{scheme}://127.0.0.1:{port}" for id_, port in ports.items()},
        federation="fed",
        more={"attachment": {"assign": ["one*=1", "two*=2"]}},
        broker=broker,
    )
    return GatewayProcess(folder / "gateway", config)


def listeners(keys):
    """The configuration of a broker's listener on a port, by scheme."""
    return {
        "mqtt": lambda port: (f"listener {port} 127.0.0.1",),
        "mqtts": partial(tls_listener, keys),
        "ws": websocket_listener,
    }


def certificates(keys, ours):
    """What the gateway says of itself and of its brokers."""
    return {
        "ca_file": str(keys / "broker.pem"),
        "cert_file": str(keys / f"{ours}.pem"),
        "key_file": str(keys / f"{ours}.key"),
    }


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws"])
async def test_a_client_moves_between_brokers_that_are_reached_so(
    plain, keys, tmp_path, version, scheme
):
    brokers, ports = await pair(plain, listeners(keys)[scheme])
    secure = scheme == "mqtts"
    ours = certificates(keys, "client") if secure else {}
    gateway = gateway_before(tmp_path, scheme, ports, **ours)
    async with gateway:
        await reaches_all(gateway)
        subscriber = GatewayClient(gateway.port, "one", version=version, subscribes=("a/#",))
        publisher = GatewayClient(gateway.port, "two", version=version)
        async with flowing([(subscriber, publisher)], {publisher: "a/b"}, rate_hz=100) as settled:
            brokers[1].kill9()
            await grow(subscriber.came, by=50)

            await settled()
            assert (await gateway.clients())["one"]["broker"] == 2
            await until(lambda: named(gateway, "gateway.moved"), "operators are told")
        page = await metrics(f"http://127.0.0.1:{gateway.http_port}")
        ends_s = values(page, "federator_gateway_tls_certificate_expiry_timestamp_seconds")
        assert list(ends_s) == ([f'file="{ours["cert_file"]}"'] if secure else [])
        assert all(end_s > time.time() for end_s in ends_s.values())
    assert "Traceback" not in gateway.log_path.read_text()


async def test_a_broker_that_refuses_the_gateways_certificate_gets_no_client(plain, keys, tmp_path):
    _, ports = await pair(plain, listeners(keys)["mqtts"])
    gateway = gateway_before(tmp_path, "mqtts", ports, **certificates(keys, "other"))
    starting = asyncio.create_task(gateway.start())
    try:
        await until(lambda: refusals(gateway) >= set(ports.values()), "both brokers refused it")

        assert not (await gateway.status())["ready"]
    finally:
        starting.cancel()
        gateway.kill9()


def refusals(gateway):
    """Ports of brokers that, as the log says, did not know who signed our certificate."""
    if not gateway.log_path.exists():
        return set()
    lines = map(json.loads, gateway.log_path.read_text().splitlines())
    return {
        int(line["broker"].rpartition(":")[2])
        for line in lines
        if line["event"] == "connection.refused" and "unknown ca" in line["reason"]
    }
