"""Home Assistant's app as it is started there: options in, an agent beside a real Mosquitto out."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.home_assistant_apps import supervisor
from tests.real.logins import SECRET, write_passwords, write_secret
from tests.real.plain_agents import QUICK
from tests.real.polling import until

ROOT = Path(__file__).parents[3]
START = ROOT / "deploy" / "home-assistant-addon" / "federator" / "start_agent.py"


@contextmanager
def app(folder, options, url):
    """The app, started as its image does it, until it is told to stop."""
    for name in ("data", "config", "ssl"):
        (folder / name).mkdir(parents=True)
    (folder / "data" / "options.json").write_text(json.dumps(options))
    folders = [f"--{name}={folder / name}" for name in ("data", "config", "ssl")]
    environment = os.environ | {
        "SUPERVISOR_TOKEN": "t", "PYTHONPATH": str(ROOT), "FEDERATOR_HTTP__PORT": "0",
        "FEDERATOR_HTTP__HOST": "127.0.0.1",
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, str(START), f"--user={os.geteuid()}", f"--supervisor={url}", *folders],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(timeout=30)


@contextmanager
def listening(broker, user, topic, into):
    """A client that writes what it hears to the file ``into``."""
    login = ("-u", user, "-P", SECRET, "-p", str(broker.port))
    with into.open("wb") as heard:
        command = ["mosquitto_sub", *login, "-q", "1", "-v", "-t", topic]
        client = subprocess.Popen(command, stdout=heard)
    try:
        yield
    finally:
        client.terminate()
        client.wait(timeout=10)


def publish(broker, user, topic, payload):
    login = ("-u", user, "-P", SECRET, "-p", str(broker.port))
    subprocess.run(
        ["mosquitto_pub", *login, "-q", "1", "-t", topic, "-m", payload], check=True, timeout=30
    )


async def test_home_assistants_broker_becomes_one_with_another_over_connections_that_it_dials(
    plain, tmp_path
):
    """With what the app Mosquitto broker tells of itself; devices are told to Home Assistant."""
    passwords = write_passwords(tmp_path / "passwords", "addons", "homeassistant", "home", "site")
    guarded = (*QUICK, f"password_file {passwords}")
    own, site = [await plain.broker(allow_anonymous=False, extra_config=guarded) for _ in range(2)]
    secret = write_secret(tmp_path / "site.password")
    await plain.agent(1, site, broker={"username": "site", "password_file": str(secret)})
    options = {
        "broker_id": 7, "broker_name": "home", "security": "open", "neighbours": [site.url],
        "links_username": "home", "links_password": SECRET, "keep": ["secret/#"],
    }  # fmt: skip
    heard, there = tmp_path / "heard", tmp_path / "there"

    with (
        supervisor(host="127.0.0.1", port=own.port, password=SECRET) as url,
        app(tmp_path / "app", options, url) as started,
        listening(own, "homeassistant", "zigbee/#", heard),
        listening(site, "site", "homeassistant/#", there),
        listening(site, "site", "secret/#", tmp_path / "secret"),
    ):

        def arrives():
            publish(own, "homeassistant", "secret/a", "x")
            publish(site, "site", "zigbee/lamp", "ON")
            return b"zigbee/lamp ON" in heard.read_bytes()

        await until(arrives, "what is published at the site is heard at home")
        await until(
            lambda: b"homeassistant/device/federator_fed_7/config" in there.read_bytes(),
            "the broker is a device, at the site, too",
        )
        assert (tmp_path / "secret").read_bytes() == b""

    assert started.returncode == 0
    plain.assert_calm()


async def test_wrong_options_end_the_app_with_one_line(tmp_path):
    with (
        supervisor() as url,
        app(tmp_path / "app", {"broker_id": "seven"}, url) as started,
    ):
        assert started.wait(timeout=60) == 78

    log = (tmp_path / "app" / "log").read_text()
    assert log.count("\n") == 1
    assert "options: broker_id = 'seven': it should be a whole number" in log
