"""Real Node-REDs at different brokers speak to each other by the flow of ``deploy/node-red``.

Run by script/test-node-red. Not named as tests are: ``script/test`` runs without Node-RED.
"""

import asyncio
import contextlib
import json
import os
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from federator.errors import LinkError
from lab.grid.processes.children import Child, get, spawn
from lab.grid.processes.ports import free_ports
from tests.real.gateway.stage import standing
from tests.real.polling import until

FLOW = Path(__file__).parents[2] / "deploy" / "node-red" / "federation.json"
PROGRAM = Path(os.environ["NODE_RED"])
"""``red.js``, which script/test-node-red has installed."""

SAY = next(each["id"] for each in json.loads(FLOW.read_text()) if each["type"] == "inject")
TAB = next(each["id"] for each in json.loads(FLOW.read_text()) if each["type"] == "tab")
TIMEOUT_S = 30.0


class NodeRed(Child):
    """A Node-RED whose flow is told a broker by two variables, and nothing else."""

    def __init__(self, folder, broker_port):
        super().__init__("Node-RED", folder / "log")
        folder.mkdir()
        self.folder, self.broker_port = folder, broker_port
        self.port = free_ports(1)[0]

    def _launch(self):
        settings = self.folder / "settings.js"
        settings.write_text('module.exports = {uiHost: "127.0.0.1", telemetry: {enabled: false}};')
        told = ["MQTT_HOST=127.0.0.1", f"MQTT_PORT={self.broker_port}"]
        node = ["env", *told, "node", str(PROGRAM), f"--userDir={self.folder}"]
        arguments = [f"--port={self.port}", f"--settings={settings}"]
        self._process = spawn([*node, *arguments], log=self.log_path)

    async def _answers(self):
        with contextlib.suppress(OSError, LinkError):
            return (await get(self.port, "/flows", who="Node-RED"))[0] == 200
        return False

    async def ask(self, path, body=None, **headers):
        """What its admin API answers."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = Request(url, data, {"Content-Type": "application/json", **headers})

        def asked():
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.read()

        return await asyncio.to_thread(asked)

    async def load(self):
        """Import the flow and deploy it."""
        flows = json.loads(FLOW.read_text())
        await self.ask("/flows", flows, **{"Node-RED-API-Version": "v1"})

    async def say(self, text):
        """As a click on the inject node, with another text."""
        props = [{"p": "payload", "v": text, "vt": "str"}]
        await self.ask(f"/inject/{SAY}", {"__user_inject_props__": props})

    async def kept(self, key):
        """What the flow keeps under ``key``; ``None`` before it keeps anything."""
        try:
            told = json.loads(await self.ask(f"/context/flow/{TAB}/{key}"))
        except HTTPError:
            return None
        return json.loads(told["msg"]) if told.get("format") == "Object" else told.get("msg")


@pytest.fixture
async def stage(tmp_path):
    """Brokers 1, 2 and 3 in a line, and their agents."""
    async with standing(tmp_path) as made:
        yield made


async def is_heard(speaker, listener, text):
    """Have ``speaker`` say ``text`` until ``listener`` heard it."""

    async def said():
        await speaker.say(text)
        return await listener.kept("heard") == text

    await until(said, f"{text!r} goes from flow to flow")


@pytest.mark.timeout(300)
async def test_one_flow_at_two_brokers_speaks_through_the_federation_and_shows_its_state(
    stage, tmp_path
):
    async with (
        NodeRed(tmp_path / "a", stage.brokers[1].port) as one,
        NodeRed(tmp_path / "b", stage.brokers[3].port) as three,
    ):
        for each in (one, three):
            await each.load()

        await is_heard(one, three, "from broker 1")
        await is_heard(three, one, "from broker 3")

        async def sees_all():
            brokers, agent = await one.kept("brokers"), await one.kept("agent")
            return brokers == {"up": 3, "gone": [], "takeovers": []} and agent["word"] == "joined"

        await until(sees_all, "the flow at broker 1 sees three brokers")
        stage.agents[3].kill9()
        stage.brokers[3].kill9()

        async def sees_who_is_gone():
            brokers = await one.kept("brokers")
            return brokers["gone"] == [3] and len(brokers["takeovers"]) == 1

        await until(sees_who_is_gone, "the flow at broker 1 sees that broker 3 is gone")


@pytest.mark.timeout(300)
async def test_a_node_red_at_a_gateway_keeps_its_connection_when_its_broker_dies(stage, tmp_path):
    gateway = await stage.gateway(home=3)
    async with (
        NodeRed(tmp_path / "a", stage.brokers[1].port) as one,
        NodeRed(tmp_path / "b", gateway.port) as behind,
    ):
        for each in (one, behind):
            await each.load()
        await is_heard(one, behind, "before")

        stage.brokers[3].kill9()

        await is_heard(one, behind, "after")
        await is_heard(behind, one, "back")
        connections = [line for line in behind.log_lines() if "onnected" in line]
        assert len(connections) == 1, connections  # "Connected to broker", once
