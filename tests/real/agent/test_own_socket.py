"""An agent that talks to its own broker by a Unix socket; the others still use its URL."""

import asyncio

from federator.runtime.mqtt.endpoint import Endpoint
from lab.grid.processes.children import python
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


async def test_a_socket_that_is_not_there_is_named(tmp_path):
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        agent = await plain.agent(1, broker, broker={"socket": str(tmp_path / "none.sock")})

        status = await eventually(
            agent, lambda s: "not connected yet" not in s["ready_reason"], "it has tried"
        )

        wanted = f"broker {tmp_path}/none.sock: No such file or directory"
        assert status["ready_reason"] == wanted


async def test_the_doctor_comes_by_the_socket_too(tmp_path):
    socket = str(tmp_path / "m.sock")
    async with Plain(tmp_path) as plain:
        broker = await plain.broker(extra_config=(*QUICK, *DEEP, f"listener 0 {socket}"))
        agent = await plain.agent(1, broker, broker={"socket": socket})
        command = python("federator", "doctor", "-c", str(agent.config_path))

        asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await asked.communicate()

        assert said.decode().startswith(f"broker 1 at {socket}\n")
        assert asked.returncode == 0, said.decode()
        assert f"{socket}:0 as federator-1-doctor" in broker.log_path.read_text()


def test_a_socket_is_what_logs_and_reasons_name():
    assert Endpoint("127.0.0.1", 1883, socket="/run/m.sock").place == "/run/m.sock"
