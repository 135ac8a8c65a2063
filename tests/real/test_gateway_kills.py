"""Brokers killed under fifty clients of a gateway, at 20 messages a second each, QoS 1.

Mixed: 3.1.1 and 5, clean and persistent sessions. No client sees a disconnect, nothing that a
publisher had acknowledged is lost, and traffic flows again soon.
"""

import asyncio
import contextlib
from itertools import pairwise

import pytest

from federator.grid.gateway_process import GatewayConfig, GatewayProcess
from tests.real.gateway_clients import V5, V311, GatewayClient
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until

CLIENTS = 50
RATE_HZ = 20
BROKERS = (1, 2, 3, 4)
SILENCE_S_MAX = 5.0  # measured: 0.2 to 0.6 s
FLOW_S = 3.0


def heard(index):
    """Whom a client listens to."""
    return (index + 1) % CLIENTS, (index + 7) % CLIENTS


async def fifty(port, stack):
    """The clients, connected and subscribed."""
    clients = []
    for index in range(CLIENTS):
        client = GatewayClient(
            port,
            f"c{index}",
            version=V5 if index % 2 else V311,
            persistent=index % 4 < 2,
            subscribes=tuple(f"t/{other}" for other in heard(index)),
        )
        clients.append(await stack.enter_async_context(client))
    return clients


def lost(clients, since):
    """What a subscriber did not get of what a publisher had acknowledged."""
    return [
        (client.client_id, payload)
        for index, client in enumerate(clients)
        for other in heard(index)
        for payload in clients[other].acknowledged
        if int(payload.split(":")[1]) >= since[other] and payload not in client.came
    ]


@pytest.fixture
async def federation(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers = {id_: await plain.broker() for id_ in BROKERS}
        for id_ in BROKERS:
            earlier = [brokers[other].url for other in BROKERS if other < id_]
            agent = await plain.agent(id_, brokers[id_], *earlier)
        await eventually(agent, linked(1, 2, 3), "links")
        urls = {id_: broker.url for id_, broker in brokers.items()}
        config = GatewayConfig("gate", urls, federation="fed")
        async with GatewayProcess(tmp_path / "gateway", config) as gateway:
            yield brokers, gateway
        assert "Traceback" not in gateway.log_path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "pause_s"),
    [((2,), 0.0), ((1, 2), FLOW_S), ((2, 3, 4), 0.0)],
    ids=["a broker", "the controller's broker, twice in a row", "all brokers but one at once"],
)
async def test_no_client_notices_and_nothing_acknowledged_is_lost(federation, kills, pause_s):
    brokers, gateway = federation
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        clients = await fifty(gateway.port, stack)
        flows = [
            asyncio.create_task(client.publish(f"t/{index}", rate_hz=RATE_HZ, stop=stop))
            for index, client in enumerate(clients)
        ]
        await until(
            lambda: all(
                any(payload.startswith(f"c{other}:") for payload in client.came)
                for index, client in enumerate(clients)
                for other in heard(index)
            ),
            "everybody hears everybody he listens to",
        )
        since = [len(client.acknowledged) for client in clients]
        await asyncio.sleep(1.0)  # traffic to be hurt

        killed_s = []
        for id_ in kills:
            killed_s.append(loop.time())
            brokers[id_].kill9()
            await asyncio.sleep(pause_s)
        await asyncio.sleep(FLOW_S)
        stop.set()
        await asyncio.gather(*flows)
        await until(lambda: not lost(clients, since), "nothing acknowledged is lost")

        assert [client.client_id for client in clients if client.error] == []
        for at_s in killed_s:
            for client in clients:
                came_s = [s for s in client.at_s if at_s - 1 < s < at_s + FLOW_S]
                silence_s = max(b - a for a, b in pairwise(came_s))
                assert silence_s < SILENCE_S_MAX
        twice = sum(client.came.total() - len(client.came) for client in clients)
        # At most what was not safe yet: half a second of publications for each death.
        assert twice <= len(kills) * CLIENTS * RATE_HZ * 2 * 0.5
        where = {row["broker"] for row in (await gateway.clients()).values()}
        assert where.isdisjoint(kills)
