"""A gateway that reaches its brokers by TLS only, with a certificate of its own."""

import asyncio
import json
import time

import pytest

from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from tests.certificates import tls_listener
from tests.real.gateway.clients import V5, V311, GatewayClient, flowing, grow
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import DEEP, QUICK, Plain, eventually, linked
from tests.real.polling import until


@pytest.fixture
async def secured(tmp_path, keys):
    """Brokers 1 and 2 by id, with their agents, and the ports of their TLS listeners."""
    async with Plain(tmp_path) as plain:
        ports = dict(zip((1, 2), free_ports(2), strict=True))
        brokers = {
            id_: await plain.broker(extra_config=(*QUICK, *DEEP, *tls_listener(keys, port)))
            for id_, port in ports.items()
        }
        first = await plain.agent(1, brokers[1])
        await plain.agent(2, brokers[2], brokers[1].url)
        await eventually(first, linked(2), "links")
        yield brokers, ports


def gateway_config(keys, ports, **broker):
    return GatewayConfig(
        "gate",
        {id_: f"mqtts://127.0.0.1:{port}" for id_, port in ports.items()},
        federation="fed",
        more={"attachment": {"assign": ["one*=1", "two*=2"]}},
        broker={"ca_file": str(keys / "broker.pem"), **broker},
    )


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_moves_between_brokers_that_speak_tls(secured, keys, tmp_path, version):
    brokers, ports = secured
    ours = {"cert_file": str(keys / "client.pem"), "key_file": str(keys / "client.key")}
    gateway = GatewayProcess(tmp_path / "gateway", gateway_config(keys, ports, **ours))
    async with gateway:
        subscriber = GatewayClient(gateway.port, "one", version=version, subscribes=("a/#",))
        publisher = GatewayClient(gateway.port, "two", version=version)
        async with flowing(subscriber, {publisher: "a/b"}, rate_hz=100) as settled:
            brokers[1].kill9()
            await grow(subscriber.came, by=50)

            await settled()
            assert (await gateway.clients())["one"]["broker"] == 2
        page = await metrics(f"http://127.0.0.1:{gateway.http_port}")
        ends_s = values(page, "federator_gateway_tls_certificate_expiry_timestamp_seconds")
        assert list(ends_s) == [f'file="{ours["cert_file"]}"']
        assert min(ends_s.values()) > time.time()
    assert "Traceback" not in gateway.log_path.read_text()


async def test_a_broker_that_refuses_the_gateways_certificate_gets_no_client(
    secured,
    keys,
    tmp_path,
):
    _, ports = secured
    other = {"cert_file": str(keys / "other.pem"), "key_file": str(keys / "other.key")}
    gateway = GatewayProcess(tmp_path / "gateway", gateway_config(keys, ports, **other))
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
