"""Home Assistant's app, packed as for a release and built and started as the Supervisor does it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.grid.processes.broker import LOG_TOPIC_LINES
from lab.grid.processes.ports import free_ports
from tests.containers.compose_grid import until

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / "script" / "release"
TOLD = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
AGENT_USER = "10001"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The app's image, made of the archive of a release and nothing else."""
    folder = tmp_path_factory.mktemp("app")
    environment = os.environ | {"FEDERATOR_PYTHON": sys.executable}
    run(RELEASE / "dists", "--output", folder, env=environment)
    (wheel,) = folder.glob("mqtt_federator-*.whl")
    with zipfile.ZipFile(run(RELEASE / "home-assistant-addon", wheel, folder).strip()) as archive:
        archive.extractall(folder)
    name = f"federator-test-addon:{os.getpid()}"
    told = [word for each in TOLD if each in os.environ for word in ("--build-arg", each)]
    run(
        "docker", "build", *told, "--build-arg", "BUILD_VERSION=0", "-t", name, folder / "federator"
    )
    yield name
    run("docker", "rmi", name)


def broker(folder):
    """A Mosquitto of this host, and its port."""
    (port,) = free_ports(1)
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", *LOG_TOPIC_LINES, ""]
    (folder / f"{port}.conf").write_text("\n".join(lines))
    return subprocess.Popen(["mosquitto", "-c", folder / f"{port}.conf"]), port


def test_it_federates_as_a_user_without_rights_and_stops_in_order(image, tmp_path):
    (mosquitto, port), (site, site_port) = broker(tmp_path), broker(tmp_path)
    (tmp_path / "peer.toml").write_text(
        f'security = "open"\nstate_dir = "peer"\n[broker]\nid = 1\n'
        f'url = "mqtt://127.0.0.1:{site_port}"\n[http]\nport = 0\n'
    )
    peer = subprocess.Popen(["federator", "run", "-c", tmp_path / "peer.toml"], cwd=tmp_path)
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    options = data / "options.json"
    options.touch(mode=0o600)
    urls = [f"mqtt://127.0.0.1:{each}" for each in (port, site_port)]
    told = {"broker_id": 7, "security": "open", "broker_url": urls[0], "neighbours": urls[1:]}
    options.write_text(json.dumps(told))
    name = f"federator-test-addon-{port}"
    loopback = ("--env", "FEDERATOR_HTTP__PORT=0", "--env", "FEDERATOR_HTTP__HOST=127.0.0.1")
    mapped = ("--volume", f"{data}:/data", "--tmpfs", "/tmp")
    try:
        run(
            "docker",
            "run",
            "--detach",
            "--init",
            "--name",
            name,
            "--network",
            "host",
            *loopback,
            *mapped,
            image,
        )
        heard = tmp_path / "heard"
        with heard.open("wb") as output:
            command = ["mosquitto_sub", "-p", str(port), "-v", "-t", "hello/#"]
            listener = subprocess.Popen(command, stdout=output)

        def arrives():
            run("mosquitto_pub", "-p", str(site_port), "-q", "1", "-t", "hello/home", "-m", "hi")
            return b"hello/home hi" in heard.read_bytes()

        until(arrives, "what is published at the site arrives at home", deadline_s=60)
        processes = run("docker", "top", name, "-eo", "pid,uid,args").splitlines()[1:]
        (agent,) = (line.split() for line in processes if "federator.runtime.agent" in line)
        assert agent[1] == AGENT_USER
        run("docker", "stop", "--time", "10", name)
        assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"
    finally:
        subprocess.run(["docker", "logs", name], check=False)
        subprocess.run(["docker", "rm", "--force", name], check=False, stdout=subprocess.DEVNULL)
        for each in (listener, peer, mosquitto, site):
            each.terminate()
            each.wait(timeout=20)
