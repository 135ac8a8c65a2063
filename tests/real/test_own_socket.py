"""An agent that talks to its own broker by a Unix socket; the others still use its URL."""

import asyncio

from federator.runtime.mqtt_endpoint import Endpoint
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, Plain, eventually, linked
from tests.real.polling import until


async def test_publications_pass_agents_on_sockets_also_after_a_broker_has_died(tmp_path):
    async with Plain(tmp_path) as plain:
        agents, brokers, neighbours = [], [], ()
        for id in (1, 2):
            socket = str(tmp_path / f"{id}.sock")
            broker = await plain.broker(extra_config=(*QUICK, *DEEP, f"listener 0 {socket}"))
            section = {"socket": socket}
            agents.append(await plain.agent(id, broker, *neighbours, broker=section))
            brokers.append(broker)
            neighbours = (broker.url,)
        await eventually(agents[0], linked(2), "linked")

        subscriber = Subscriber(brokers[1].port, "a/#", client_id="sub", qos=2)
        publisher = Publisher(brokers[0].port, "a/b", client_id="pub", qos=1)
        async with running(subscriber, publisher):
            await until(lambda: len(subscriber.came) > 100, "publications come")
            assert subscriber.duplicates == 0
            assert f"{tmp_path}/1.sock:0 as federator-1-data" in brokers[0].log_path.read_text()

            brokers[0].kill9()
            await asyncio.sleep(1)
            await brokers[0].start()
            here = max(subscriber.came)
            await until(lambda: max(subscriber.came) > here + 100, "they come again")


def test_a_socket_is_what_logs_and_reasons_name():
    assert Endpoint("127.0.0.1", 1883, socket="/run/m.sock").place == "/run/m.sock"
