"""Sessions, wills, keep-alive and takeover of client ids behave as on one broker."""

import asyncio
import os
import signal
import ssl

import pytest

from federator.gateway import wire
from federator.gateway.wire import V5 as FIVE
from federator.gateway.wire import V311 as THREE
from federator.gateway.wire import Reason
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from tests.real.gateway.clients import V5, V311, GatewayClient
from tests.real.gateway.raw import Raw, connect
from tests.real.polling import until


@pytest.fixture
async def raw():
    """Makes them; all are closed when the test ends."""
    made = []

    def make():
        made.append(Raw())
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def attached(gateway, client_id, *brokers):
    """Wait until the client is live on one of ``brokers``; return which."""

    async def there():
        row = (await gateway.clients()).get(client_id, {})
        return row.get("state") == "live" and row["broker"] in brokers and row["broker"]

    return await until(there, f"{client_id} is at {brokers}")


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_session_is_found_again_by_another_gateway(stage, version):
    first = await stage.gateway("first", home=1)
    second = await stage.gateway("second", home=2)
    options = {"version": version, "persistent": True}
    async with GatewayClient(first.port, "sleeper", subscribes=("s/#",), **options):
        await attached(first, "sleeper", 1)
    async with GatewayClient(second.port, "writer") as writer:
        await asyncio.gather(*(writer._one("s/t", str(n), 1) for n in range(5)))

        async with GatewayClient(second.port, "sleeper", **options) as sleeper:
            await until(lambda: len(sleeper.came) == 5, "what waited for it")

            assert await attached(second, "sleeper", 1) == 1


async def test_a_client_id_is_in_use_once_whatever_the_gateways_and_brokers(stage, raw):
    first = await stage.gateway("first", home=1)
    second = await stage.gateway("second", home=2)
    here, there, again = raw(), raw(), raw()
    await here.open(first.port, connect(FIVE))

    await there.open(second.port, connect(FIVE))
    assert await here.packet() == wire.write_disconnect(Reason.SESSION_TAKEN_OVER, FIVE)
    assert await here.packet() is None

    await again.open(second.port, connect(FIVE))
    assert await there.packet() == wire.write_disconnect(Reason.SESSION_TAKEN_OVER, FIVE)
    again.writer.write(wire.PINGREQ)
    assert await again.packet() == wire.PINGRESP


async def test_a_client_that_its_living_broker_throws_out_is_not_kept(stage, raw):
    gateway = await stage.gateway(home=1)
    client, direct = raw(), raw()
    await client.open(gateway.port, connect(THREE, "twin"))

    await direct.open(stage.brokers[1].port, connect(THREE, "twin"))

    assert await client.packet() is None
    direct.writer.write(wire.PINGREQ)
    assert await direct.packet() == wire.PINGRESP


@pytest.mark.parametrize("killed", [False, True])
async def test_the_will_of_a_client_that_vanishes_is_published(stage, killed, raw):
    """Also when its broker is gone at that moment, and another is found for it."""
    gateway = await stage.gateway(home=1)
    heir = GatewayClient(stage.brokers[3].port, "heir", subscribes=("will",))
    client = raw()
    async with heir, GatewayClient(gateway.port, "herald") as herald:

        async def is_heard():
            await herald._one("will", "hear", 1)
            return heir.came["hear"]

        await until(is_heard, "the heir's subscription is known at broker 1")
        await client.open(gateway.port, connect(THREE, will=wire.Will("will", b"mine", 1, False)))
        if killed:
            stage.brokers[1].kill9()

        client.writer.transport.abort()

        await until(lambda: heir.came["mine"] == 1, "the will")


async def test_no_will_is_published_of_a_client_that_says_goodbye(stage, raw):
    gateway = await stage.gateway(home=1)
    heir = GatewayClient(stage.brokers[1].port, "heir", subscribes=("will",))
    first, second = raw(), raw()
    async with heir:
        will = wire.Will("will", b"first", 1, False)
        await first.open(gateway.port, connect(THREE, "first", will=will))
        first.writer.write(wire.write_disconnect(0, THREE))
        assert await first.packet() is None

        # Another one's will marks the time.
        will = wire.Will("will", b"second", 1, False)
        await second.open(gateway.port, connect(THREE, "second", will=will))
        second.writer.transport.abort()
        await until(lambda: heir.came["second"] == 1, "the will")

    assert heir.came["first"] == 0


async def test_a_silent_client_is_disconnected(stage, raw):
    gateway = await stage.gateway(home=1)
    client = raw()

    await client.open(gateway.port, connect(FIVE, keep_alive=1))

    assert await client.packet() == wire.write_disconnect(Reason.KEEP_ALIVE_TIMEOUT, FIVE)
    assert await client.packet() is None


async def test_pings_are_answered_while_there_is_no_broker_and_then_it_is_told(stage, raw):
    gateway = await stage.gateway(home=1, failover={"hold_ms": 2_000, "attempt_ms": 200})
    client = raw()
    await client.open(gateway.port, connect(FIVE))
    for broker in stage.brokers.values():
        broker.kill9()

    client.writer.write(wire.PINGREQ)

    assert await client.packet() == wire.PINGRESP
    assert await client.packet() == wire.write_disconnect(Reason.SERVER_BUSY, FIVE)
    assert await client.packet() is None


async def test_a_broker_that_hangs_is_left(stage):
    gateway = await stage.gateway(home=2)
    subscriber = GatewayClient(gateway.port, "s", subscribes=("h/#",))
    publisher = GatewayClient(gateway.port, "p", version=V5)
    async with subscriber, publisher:
        await publisher._one("h/1", "before", 1)
        await until(lambda: subscriber.came["before"], "publications flow")
        stage.brokers[2].pause()
        try:
            await attached(gateway, "p", 1, 3)
            await attached(gateway, "s", 1, 3)
            await publisher._one("h/1", "after", 1)
            await until(lambda: subscriber.came["after"], "publications flow again")
        finally:
            stage.brokers[2].resume()
        assert subscriber.error is publisher.error is None


async def test_a_session_that_moved_is_ended_where_it_was_when_that_broker_is_back(stage, raw):
    gateway = await stage.gateway(home=2)
    broker = stage.brokers[2]
    options = {"version": V311, "persistent": True, "subscribes": ("s/#",)}
    async with GatewayClient(gateway.port, "mover", **options):
        await attached(gateway, "mover", 2)
        await broker.stop()  # SIGTERM: it saves nothing, but a session of 3.1.1 could be restored
        await attached(gateway, "mover", 1, 3)
        await broker.start()
        await until(lambda: "mover" in broker.log_path.read_text().split("terminating")[-1], "wipe")

        client = raw()
        answer = await client.open(broker.port, connect(THREE, "mover", clean=False))

        assert answer == wire.write_connack(wire.Connack(session_present=False, reason=0), THREE)


async def test_clients_are_told_when_the_gateway_stops(stage, raw):
    gateway = await stage.gateway(home=1)
    client = raw()
    await client.open(gateway.port, connect(FIVE))

    os.kill(gateway.pid, signal.SIGTERM)

    assert await client.packet() == wire.write_disconnect(Reason.SERVER_SHUTTING_DOWN, FIVE)
    assert await client.packet() is None


async def test_who_publishes_what_comes_into_the_session_flow_table(stage):
    gateway = await stage.gateway(home=2)
    async with GatewayClient(gateway.port, "writer", subscribes=("x/#",)) as writer:
        await writer._one("a/b", "1", 1)

        async def is_told():
            table = (await stage.agents[1].page("/controller"))["table"]
            rows = {(row["topic"], row["action"]) for row in table if row["client"] == "writer"}
            return {("a/b", "pub"), ("x/#", "sub")} <= rows

        await until(is_told, "both are in the table")


async def test_a_tls_listener_lets_clients_in(broker, tmp_path, keys, raw):
    (port,) = free_ports(1)
    tls = {
        "port": port,
        "cert_file": str(keys / "broker.pem"),
        "key_file": str(keys / "broker.key"),
        "client_ca_file": str(keys / "client.pem"),
    }
    config = GatewayConfig("tls", {1: broker.url}, federation="fed", listeners=(tls,))
    context = ssl.create_default_context(cafile=keys / "broker.pem")
    stranger = ssl.create_default_context(cafile=keys / "broker.pem")
    context.load_cert_chain(keys / "client.pem", keys / "client.key")
    async with GatewayProcess(tmp_path / "gateway", config):
        client = raw()
        answer = await client.open(port, connect(THREE), ssl=context)
        assert answer[0] == 0x20
        with pytest.raises((ConnectionError, ssl.SSLError, AssertionError)):
            assert await raw().open(port, connect(THREE, "other"), ssl=stranger) is not None
