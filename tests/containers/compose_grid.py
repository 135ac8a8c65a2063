"""The grid of docker-compose.yml as its own project, beside one that may run here already.

Containers are killed, cut off and restarted through the engine, and asked by running in them what
their health checks run.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from docker.errors import APIError
from docker.models.containers import Container, ExecResult
from testcontainers.compose import DockerCompose
from testcontainers.core.docker_client import DockerClient

from lab.grid.topology import Grid, Link

ROOT = Path(__file__).parents[2]
PROJECT = "federator-test"
HOST = "127.0.0.2"
"""So that its ports are free although another grid runs on this machine."""

FIRST_PORT = 18830
PORTS = {"agent": 9883, "gateway": 9884, "collector": 9885, "console": 9887, "dashboard": 8650}
GATEWAY_PORTS = {"west": 18841, "east": 18842}
DEADLINE_S = 300.0
POLL_S = 0.25


class Compose(DockerCompose):
    """Also by docker-compose 1.29, where there is no ``docker compose``."""

    @cached_property
    def compose_command_property(self) -> list[str]:
        """The program and its options."""
        plugin = ["docker", "compose"]
        known = subprocess.run([*plugin, "version"], capture_output=True, check=False)
        alone = shutil.which("docker-compose")
        program = plugin if known.returncode == 0 or alone is None else [alone]
        return [
            *program,
            *(word for profile in self.profiles or [] for word in ("--profile", profile)),
        ]


class ComposeGrid:
    """Nine brokers and nine agents, gateways and the collector, in containers."""

    def __init__(self, profiles: list[str] | None = None) -> None:
        os.environ |= {"COMPOSE_PROJECT_NAME": PROJECT, "FEDERATOR_BIND": HOST}
        self.compose = Compose(ROOT, build=True, wait=False, profiles=profiles)
        self.topology = Grid(3, 3)
        self.engine = DockerClient().client

    def up(self) -> None:
        """Start everything, from nothing, and wait until all are ready."""
        self.compose.stop()  # what a run that was killed left behind
        self.compose.start()
        self.until_ready()
        for service in [*self.brokers, *self.agents, *self.gateways, "collector"]:
            until(lambda service=service: self.is_healthy(service), f"{service} is healthy")

    def down(self) -> None:
        """Stop everything and remove its volumes."""
        self.compose.stop()

    def container(self, service: str) -> Container:
        """The one container of ``service``, which may have ended."""
        label = [f"com.docker.compose.project={PROJECT}", f"com.docker.compose.service={service}"]
        (found,) = self.engine.containers.list(all=True, filters={"label": label})
        return found

    def page(self, service: str, path: str) -> bytes | None:
        """What its listener answers with 200 over the network of pages; ``None``: it does not."""
        container = self.container(service)
        network = container.attrs["NetworkSettings"]["Networks"].get(f"{PROJECT}_management", {})
        port = PORTS.get(service.partition("-")[0], 9883)
        try:
            # A bridge network of this machine: as the engine's own host we are on it, too.
            with urlopen(f"http://{network.get('IPAddress')}:{port}{path}", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except (OSError, HTTPException):
            return None

    def is_ready(self, service: str) -> bool:
        """Whether an agent or a gateway says so."""
        return self.page(service, "/readyz") is not None

    def is_healthy(self, service: str) -> bool:
        """What its health check says."""
        return bool(self.container(service).attrs["State"]["Health"]["Status"] == "healthy")

    def broker_of_client(self, gateway: str, client: str) -> int | None:
        """Where ``gateway`` has attached ``client`` just now."""
        rows = json.loads(self.page(gateway, "/routes") or b"[]")
        brokers: list[int | None] = [row["broker"] for row in rows if row["client"] == client]
        return brokers[0] if brokers else None

    def report(self) -> str:
        """The page, as an operator writes it to a file of his own."""
        program = self.compose.docker_compose_command()
        command = [*program, "run", "--rm", "-T", "report"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    def run(self, service: str, command: str) -> ExecResult:
        """Run ``command`` in its container; exit code 137 when it has ended meanwhile."""
        try:
            return self.container(service).exec_run(command, stderr=False)
        except APIError:
            return ExecResult(137, b"")

    def until_ready(self, services: Iterable[str] = ()) -> None:
        """Wait for ``services``, or all agents and gateways, and for all links between agents."""
        for service in services or [*self.agents, *self.gateways]:
            until(lambda service=service: self.is_ready(service), f"{service} is ready")
        for broker, others in self.topology.neighbours.items():
            until(
                lambda broker=broker, others=others: self._links_up(broker) >= set(others),
                f"agent {broker} has links to {others}",
            )

    def _links_up(self, broker: int) -> set[int]:
        told = self.page(f"agent-{broker}", "/status")
        links = json.loads(told)["links"] if told else []
        return {link["neighbour"] for link in links if link["state"] == "up"}

    @property
    def agents(self) -> list[str]:
        """Services."""
        return [f"agent-{broker}" for broker in self.topology.ids]

    @property
    def brokers(self) -> list[str]:
        """Services."""
        return [f"broker-{broker}" for broker in self.topology.ids]

    @property
    def gateways(self) -> list[str]:
        """Services."""
        return [f"gateway-{name}" for name in GATEWAY_PORTS]

    def cut(self, links: Iterable[Link]) -> None:
        """Take each end's agent off the other end's network."""
        for agent, site in _crossings(links):
            self._network(site).disconnect(self.container(agent))

    def heal(self, links: Iterable[Link]) -> None:
        """Undo ``cut``."""
        for agent, site in _crossings(links):
            self._network(site).connect(self.container(agent))

    def _network(self, site: str) -> Any:
        (found,) = self.engine.networks.list(names=[f"{PROJECT}_{site}"])
        return found


def _crossings(links: Iterable[Link]) -> list[tuple[str, str]]:
    both = [(link.a, link.b) for link in links] + [(link.b, link.a) for link in links]
    return [(f"agent-{here}", f"site-{there}") for here, there in both]


def until(condition: Any, what: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Returns as soon as ``condition()`` holds.

    Raises:
        AssertionError: it did not within ``deadline_s``; the text names ``what``.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(POLL_S)
