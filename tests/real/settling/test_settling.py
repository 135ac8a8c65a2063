"""A gateway asks whether subscriptions are known everywhere; afterwards nothing is missed.

docs/protocol.md section 14.
"""

import asyncio
import contextlib
import json
from itertools import count

import pytest

from federator.protocol.messages import gateways, json_codec, topics
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.topology import Grid
from tests.real.client import Client
from tests.real.gateway.clients import GatewayClient
from tests.real.plain_agents import QUICK
from tests.real.polling import until

ROUNDS = 15


@contextlib.asynccontextmanager
async def connected(*clients):
    tasks = [asyncio.create_task(client.link.run()) for client in clients]
    try:
        for client in clients:
            await until(lambda c=client: c.link.subscribed, "subscribed")
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settled(gateway, token, *filters):
    """Ask, and return what is answered."""
    word = gateways.Settle("g", token, filters)
    assert gateway.link.publish(topics.settle_topic(FEDERATION), json_codec.encode(word), qos=1)
    topic = topics.settled_topic(FEDERATION, "g")

    def answers():
        words = [
            json_codec.decode(gateways.Settled, payload)
            for at, payload in gateway.came
            if at == topic
        ]
        return [word.known for word in words if word.token == token]

    await until(answers, f"an answer to {filters}")
    return answers()[0]


@pytest.mark.parametrize("strategy", ["mesh", "shortest-path"])
async def test_what_is_published_once_a_subscription_is_known_arrives_from_everywhere(
    tmp_path, strategy
):
    grid = RunningGrid(
        Grid(2, 2),
        tmp_path,
        link_delay_ms=5,
        agent_options={"routing": {"strategy": strategy}},
        broker_options=QUICK,
    )
    async with grid:
        gateway = Client(grid.brokers[3].port, "gateway", topics.settled_topic(FEDERATION, "g"))
        others = [Client(broker.port, "p") for broker in grid.brokers.values()]
        async with connected(gateway, *others):
            tokens = count(1_000)
            for number in range(ROUNDS):
                topic = f"new/{number}"
                mine, theirs = f"new/{number}/#", f"new/{number}/+"
                subscriber = Client(grid.brokers[3].port, f"s{number}", mine)
                crowd = Client(grid.brokers[number % 3].port, f"o{number}", theirs, mine)
                async with connected(subscriber, *([crowd] if number % 2 else [])):
                    # Again: the agents of a busy machine may give up a wave.
                    await until(lambda m=mine: settled(gateway, next(tokens), m), "known")

                    for here, other in enumerate(others):
                        other.link.publish(f"{topic}/x", b"from %d" % here)
                    wanted = {(f"{topic}/x", b"from %d" % here) for here in range(4)}
                    await until(lambda s=subscriber, w=wanted: set(s.came) >= w, "all four come")
                    assert len(subscriber.came) == 4

            assert not await settled(gateway, 100, "nobody/subscribed"), (
                "not before it is asked for"
            )
            assert await settled(gateway, 101, "#"), "which is served from this broker only"
            malformed = json.dumps({"gateway": "g", "token": 102, "filters": ["a/#/b"]}).encode()
            gateway.link.publish(topics.settle_topic(FEDERATION), malformed, qos=1)
            assert await settled(gateway, 103)
            log = grid.agents[3].log_path.read_text()
            assert "settle.malformed" in log
            assert "Traceback" not in log


async def test_what_is_published_once_a_gateways_client_has_its_suback_arrives(tmp_path):
    """Without settling, most of these publications would come too early to be wanted."""
    grid = RunningGrid(Grid(1, 3), tmp_path, link_delay_ms=5, broker_options=QUICK)
    async with grid:
        urls = {id_: broker.url for id_, broker in grid.brokers.items()}
        more = {"attachment": {"assign": ["s*=2"]}, "failover": {"settle_ms": 5_000}}
        config = GatewayConfig("gate", urls, federation=FEDERATION, more=more)
        publisher = Client(grid.brokers[0].port, "p")
        async with GatewayProcess(tmp_path / "gateway", config) as gateway, connected(publisher):
            for number in range(ROUNDS):
                filters = (f"suback/{number}/+",)
                async with GatewayClient(gateway.port, f"s{number}", subscribes=filters) as client:
                    publisher.link.publish(f"suback/{number}/x", b"%d" % number)
                    await until(lambda c=client, n=number: c.came[str(n)] == 1, "it arrives")
