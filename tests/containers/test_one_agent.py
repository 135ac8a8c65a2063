"""One agent in a container beside a broker of this host, by the commands of its how-to page."""

import shutil
from pathlib import Path

import pytest

from lab.grid.processes.ports import free_ports
from tests.containers.compose_grid import until
from tests.docs.page import Shell, steps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "one-agent-in-a-container.md"
HERE = ROOT / "deploy" / "compose" / "one-agent"
LOG_LINES = "".join(
    f"log_{key}\n"
    for key in ("dest stderr", "dest topic", "type notice", "type subscribe", "type unsubscribe")
)
PEER = """\
state_dir = "peer-state"
{security}
[broker]
id = 1
url = "mqtt://127.0.0.1:{port}"
[[neighbours]]
url = "mqtt://127.0.0.1:{other}"
[http]
port = {http}
"""
PEER_KEYS = """
[keys]
agent_file = "office/agent-1.key"
federation_files = ["office/federation.pub"]
"""


class Site:
    """Two brokers of this host, an agent at the first, and a shell that follows the page."""

    def __init__(self, folder: Path, shell: Shell) -> None:
        self.folder, self.shell = folder, shell
        self.one, self.two, self.peer_http, self.http = free_ports(4)
        self.commands = [step.commands for step in steps(PAGE)]
        self.name = f"federator-test-{self.http}"
        for port in (self.one, self.two):
            conf = f"listener {port} 127.0.0.1\nallow_anonymous true\n{LOG_LINES}"
            (folder / f"{port}.conf").write_text(conf)
            shell.run(f"mosquitto -c {port}.conf > {port}.log 2>&1 &")

    def in_place(self, text: str) -> str:
        """What the page or a file of it says, with the ports and names of this run."""
        here = {
            "mqtt://127.0.0.1:1883": f"mqtt://127.0.0.1:{self.two}",
            "mqtt://site-2:1883": f"mqtt://127.0.0.1:{self.two}",
            "mqtt://site-1:1883": f"mqtt://127.0.0.1:{self.one}",
            "--name federator ": f"--name {self.name} ",
            "--volume federator:": f"--volume {self.name}:",
            "rm --force federator": f"rm --force {self.name}",
            "volume rm federator": f"volume rm {self.name}",
            "--env FEDERATOR_SECURITY": f"--env FEDERATOR_HTTP__PORT={self.http} "
            "--env FEDERATOR_SECURITY",
        }
        for word, mine in here.items():
            text = text.replace(word, mine)
        return text

    def do(self, begins: str) -> str:
        """Run the one block of the page that begins so; it has to succeed."""
        (block,) = (each for each in self.commands if each.startswith(begins))
        # What compose runs would read the shell's further commands.
        printed = self.shell.run(f'{{ {self.in_place(block)} }} </dev/null; echo "exit $?"')
        assert printed.rstrip().endswith("exit 0"), printed
        return printed

    def start_peer(self, security: str, keys: str = "") -> None:
        """The agent of the first broker, which takes part already."""
        said = PEER.format(security=security, port=self.one, other=self.two, http=self.peer_http)
        (self.folder / "peer.toml").write_text(said + keys)
        self.shell.run("federator run -c peer.toml > peer.log 2>&1 &")

    def until_federated(self) -> None:
        """Publish at one broker until it arrives at the other, both ways."""
        for here, there in ((self.one, self.two), (self.two, self.one)):
            heard = f"heard-{there}"
            self.shell.run(f"mosquitto_sub -p {there} -q 1 -t 'hello/#' > {heard} &")
            publish = f"mosquitto_pub -p {here} -q 1 -t hello/world -m {here}; cat {heard}"
            until(
                lambda publish=publish, here=here: str(here) in self.shell.run(publish),
                f"what is published on {here} arrives on {there}",
                deadline_s=120,
            )


@pytest.fixture
def site(tmp_path: Path):
    folder = tmp_path / "deploy" / "compose" / "one-agent"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("config"))
    with Shell(folder, COMPOSE_PROJECT_NAME=tmp_path.name.replace("_", "-")) as shell:
        made = Site(folder, shell)
        (folder / ".env").write_text(f"FEDERATOR_HTTP__PORT={made.http}\n")
        try:
            yield made
        finally:
            shell.run(f"docker rm --force {made.name}; docker volume rm {made.name}")
            shell.run("docker-compose down -v")
            shell.run("chown -R $(id -u) .")


def test_one_line_puts_an_agent_beside_a_broker_without_keys_and_one_takes_it_away(site: Site):
    site.start_peer('security = "open"')

    site.do("docker run --detach")

    site.until_federated()
    status = site.shell.run(f"docker exec {site.name} federator status")
    assert "ready" in status, status
    site.do("docker rm --force")
    assert site.name not in site.shell.run("docker ps --all; docker volume ls")


def test_compose_puts_an_agent_with_a_key_beside_a_broker(site: Site):
    site.do("mkdir -p config")
    path = site.folder / "config" / "federator.toml"
    path.write_text(site.in_place(path.read_text()))
    site.do("mkdir -p office")
    site.shell.run("federator keys issue --dir office --broker 1")
    site.start_peer("", PEER_KEYS)

    site.do("cp office/agent-2.key")

    site.until_federated()
    look = "docker-compose ps </dev/null"
    until(lambda: "(healthy)" in site.shell.run(look), "it is healthy", deadline_s=60)
