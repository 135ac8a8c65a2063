"""A real Prometheus scrapes nine real agents, and has no complaint.

Run by script/test-observability. Not named as tests are: ``script/test`` runs without Prometheus.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from federator.errors import LinkError
from lab.grid.processes.children import Child, get, spawn
from lab.grid.processes.ports import free_ports
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import gets_through

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = RULES.parents[1] / "grafana" / "dashboards" / "federator.json"
QUIET = {"First certificate ends", "Turned away"}
"""Panels that have nothing to show in an open federation where nobody misbehaves."""
DEADLINE_S = 60.0
SCRAPE_S_MAX = 2.0
POLL_S = 0.2
TRAFFIC_HZ = 50
SETTLED_S = 60
"""How long the nine are watched: rates and alerts look back as far."""


def questions():
    """(panel, expression) of all queries of the dashboard, variables filled in."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$federation", ".*").replace("$broker", ".*")
            yield panel["title"], text.replace("$__rate_interval", "30s")


def promtool(what, *arguments, text=None):
    """Have Prometheus' own tool check something."""
    command = ["promtool", "check", what, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus(Child):
    """A server on a free port that scrapes ``targets`` every second."""

    def __init__(self, folder, targets):
        super().__init__("Prometheus", folder / "log")
        folder.mkdir()
        self.folder = folder
        self.port = free_ports(1)[0]
        self._targets = targets

    def _launch(self):
        path = self.folder / "prometheus.yml"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "federator", "static_configs": [{"targets": self._targets}]}
            ],
        }
        path.write_text(json.dumps(config))  # YAML takes JSON
        promtool("config", path)
        command = [
            shutil.which("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self._process = spawn(command, log=self.log_path)

    async def _answers(self):
        with contextlib.suppress(OSError, LinkError):
            return (await get(self.port, "/-/ready", who="Prometheus"))[0] == 200
        return False

    async def api(self, path):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        answer = await asyncio.to_thread(lambda: json.load(urlopen(url, timeout=DEADLINE_S)))
        assert answer["status"] == "success", answer
        return answer["data"]

    async def query(self, expression):
        """(labels, value) of each sample of an instant query."""
        found = (await self.api(f"query?query={quote(expression, safe='')}"))["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in found]

    async def until(self, expression, wanted, what):
        """What ``expression`` gives once ``wanted`` finds it right."""
        end_s = time.monotonic() + DEADLINE_S
        while not wanted(found := await self.query(expression)):
            assert time.monotonic() < end_s, f"not within {DEADLINE_S} s: {what}: {found}"
            await asyncio.sleep(POLL_S)
        return found


async def check_graph(prometheus):
    """Assert that the graph of links is one: Grafana draws nothing if an edge has no end."""
    nodes, edges = [
        await prometheus.query(expression) for title, expression in questions() if "linked" in title
    ]
    ids = {labels["id"] for labels, _ in nodes}
    assert ids == {str(id) for id in range(1, 10)}
    assert len(edges) == len({labels["id"] for labels, _ in edges}) == 24  # 12 links, both ways
    assert {labels[end] for labels, _ in edges for end in ("source", "target")} == ids


@pytest.mark.timeout(600)
async def test_prometheus_scrapes_nine_agents_and_wakes_nobody_until_one_dies(tmp_path):
    options = {"metrics": {"enabled": True}}
    grid = RunningGrid(Grid(3, 3, 1), tmp_path, link_delay_ms=2, agent_options=options)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(grid)
        targets = [agent.http.removeprefix("http://") for agent in grid.agents.values()]
        prometheus = Prometheus(tmp_path / "prometheus", targets)
        stack.push_async_callback(prometheus.stop)
        await prometheus.start()
        near, far = (grid.brokers[id].port for id in (1, 9))
        subscriber = Subscriber(far, "a/#", client_id="sub", qos=1)
        publisher = Publisher(near, "a/b", client_id="pub", qos=1, rate_hz=TRAFFIC_HZ)
        await stack.enter_async_context(running(subscriber, publisher))
        await gets_through(publisher, subscriber)

        await prometheus.until(
            "sum(up)", lambda found: found and found[0][1] == 9, "nine are scraped"
        )
        ids = await prometheus.query("federator_agent_info")
        assert sorted(int(labels["broker"]) for labels, _ in ids) == list(range(1, 10))
        await asyncio.sleep(SETTLED_S)

        for group in (await prometheus.api("rules"))["groups"]:
            for rule in group["rules"]:
                assert rule["health"] == "ok", rule
        assert await prometheus.query('ALERTS{alertstate="firing"}') == []
        for agent in grid.agents.values():
            page = await get(int(agent.http.rpartition(":")[2]), "/metrics", who="an agent")
            promtool("metrics", text=page[1])
        took = await prometheus.query("max(max_over_time(scrape_duration_seconds[1m]))")
        assert took[0][1] < SCRAPE_S_MAX

        for title, expression in questions():
            assert await prometheus.query(expression) or title in QUIET, (title, expression)
        await check_graph(prometheus)

        grid.agents[5].kill9()
        await prometheus.until(
            'ALERTS{alertname="FederatorDown"}', lambda found: len(found) == 1, "one is missed"
        )
        await prometheus.until(
            'federator_link_up{neighbour="5"} == 0',
            lambda found: len(found) == 4,
            "its neighbours say so",
        )
