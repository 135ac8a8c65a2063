"""A real Telegraf with ``deploy/telegraf/telegraf.conf``, at brokers of a real federation.

Run by script/test-telegraf. Not named as tests are: ``script/test`` runs without Telegraf.
"""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.grid.processes.children import Child, spawn
from tests.real.gateway.stage import standing
from tests.real.polling import until

CONFIG = Path(__file__).parents[2] / "deploy" / "telegraf" / "telegraf.conf"
TELEGRAF = os.environ["TELEGRAF"]
"""The program, which script/test-telegraf has built."""


class Telegraf(Child):
    """A Telegraf with the configuration as it is shipped, but for the waits of ten seconds."""

    def __init__(self, folder, **told):
        super().__init__("Telegraf", folder / "log")
        folder.mkdir()
        (folder / "telegraf.conf").write_text(CONFIG.read_text().replace('l = "10s"', 'l = "1s"'))
        self.folder, self._told = folder, told

    def _launch(self):
        variables = [f"{name}={value}" for name, value in self._told.items()]
        config = ["--config", str(self.folder / "telegraf.conf"), "--strict-env-handling"]
        self._process = spawn(["env", *variables, TELEGRAF, *config], log=self.log_path)

    async def _answers(self):
        return any("[inputs.mqtt_consumer] Connected" in line for line in self.log_lines())

    def wrote(self, *words):
        """Whether its output, which goes to its log, has a line with all ``words``."""
        return any(all(word in line for word in words) for line in self.log_lines())


@pytest.fixture
async def stage(tmp_path):
    """Brokers 1, 2 and 3 in a line, and their agents."""
    async with standing(tmp_path) as made:
        yield made


def publish(broker, topic, payload):
    command = ["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-t", topic, "-m", payload]
    subprocess.run(command, check=True, timeout=30)


@contextmanager
def listening(broker, topic, into):
    """A client that writes what it hears to the file ``into``."""
    with into.open("wb") as output:
        command = ["mosquitto_sub", "-p", str(broker.port), "-v", "-t", topic]
        client = subprocess.Popen(command, stdout=output)
    try:
        yield
    finally:
        client.terminate()
        client.wait(timeout=10)


def url(broker):
    return f"tcp://127.0.0.1:{broker.port}"


@pytest.mark.timeout(300)
async def test_one_telegraf_hears_all_brokers_tells_all_of_its_agent_and_outlives_its_broker(
    stage, tmp_path
):
    one, two, three = (stage.brokers[id_] for id_ in (1, 2, 3))
    told = {
        "FEDERATOR_METRICS": f"{stage.agents[1].http}/metrics",
        "MQTT_SERVER": url(one),
        "MQTT_SECOND": url(two),
    }
    heard = tmp_path / "heard"
    with listening(three, "telegraf/#", heard):
        async with Telegraf(tmp_path / "telegraf", **told) as telegraf:

            def arrives(broker, payload):
                publish(broker, "sensors/hall/temperature", payload)
                words = ("mqtt_consumer,", "topic=sensors/hall/temperature", f"value={payload}")
                return telegraf.wrote(*words)

            for broker, payload in ((one, "20.5"), (three, "21.5")):
                await until(lambda b=broker, p=payload: arrives(b, p), f"{payload} is written")
            await until(
                lambda: telegraf.wrote("prometheus,", "federator_neighbours_up=1"), "metrics"
            )
            await until(
                lambda: b"federator_ready=1" in heard.read_bytes(), "broker 3 hears of agent 1"
            )
            assert not telegraf.wrote("topic=telegraf/")  # what it publishes does not come back

            stage.agents[1].kill9()
            one.kill9()

            await until(lambda: arrives(three, "22.5"), "it goes on at broker 2")
