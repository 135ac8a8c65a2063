"""The launcher of real brokers does what its callers build on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import aiomqtt
import pytest

from federator.errors import LinkError
from lab.grid.processes.broker import BrokerProcess
from tests.real.conftest import StartBroker
from tests.real.polling import until


def client(broker: BrokerProcess, **options) -> aiomqtt.Client:
    return aiomqtt.Client(broker.host, broker.port, protocol=aiomqtt.ProtocolVersion.V5, **options)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_subscription_shows_up_on_the_log_topics(broker: BrokerProcess):
    async with client(broker) as watcher, client(broker, identifier="someone") as someone:
        await watcher.subscribe("$SYS/broker/log/M/subscribe", qos=2)

        await someone.subscribe("a/+/c", qos=1)

        async for message in watcher.messages:
            assert isinstance(message.payload, bytes)
            line = message.payload.decode().partition(": ")[2]
            if line.startswith("someone"):
                assert line == "someone 1 a/+/c"
                break


async def test_a_killed_broker_comes_back_on_the_same_port(broker: BrokerProcess):
    port, pid = broker.port, broker.pid

    broker.kill9()
    assert not broker.running
    await broker.start()

    assert broker.port == port
    assert broker.pid != pid
    async with client(broker):
        pass


async def test_a_clean_restart_keeps_retained_messages_when_persistent(start_broker: StartBroker):
    broker = await start_broker(persistence=True)
    async with client(broker) as publisher:
        await publisher.publish("kept", b"still here", qos=1, retain=True)

    await broker.restart()

    async with client(broker) as reader:
        await reader.subscribe("kept", qos=1)
        message = await anext(reader.messages)
        assert message.payload == b"still here"


async def test_a_paused_broker_answers_nothing_until_it_is_resumed(broker: BrokerProcess):
    async with client(broker) as publisher:
        broker.pause()
        with pytest.raises(aiomqtt.MqttError, match="timed out"):
            await publisher.publish("t", qos=1, timeout=0.2)

        broker.resume()

        await publisher.publish("t", qos=1)


async def test_a_paused_broker_can_be_stopped(broker: BrokerProcess):
    broker.pause()

    await broker.stop()

    assert not broker.running


async def test_a_broker_that_refuses_its_configuration_says_why(start_broker: StartBroker):
    with pytest.raises(LinkError, match=r"Unknown configuration variable .nonsense"):
        await start_broker(extra_config=("nonsense 1",))


async def test_a_port_that_another_broker_holds_is_an_error_not_a_success(
    broker: BrokerProcess, start_broker: StartBroker
):
    with pytest.raises(LinkError, match="Address already in use"):
        await start_broker(port=broker.port)

    assert broker.running


async def test_a_broker_dies_with_its_parent(tmp_path: Path):
    program = (
        "import asyncio, pathlib, signal\n"
        "from lab.grid.processes.broker import BrokerProcess\n"
        "async def main():\n"
        f"    broker = BrokerProcess(pathlib.Path({str(tmp_path)!r}))\n"
        "    await broker.start()\n"
        "    print(broker.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220  # one line is read, then it is killed
        [sys.executable, "-c", program], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)

        parent.kill()
        parent.wait()

        try:
            await until(lambda: not is_alive(pid), "the orphaned broker is gone")
        finally:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
