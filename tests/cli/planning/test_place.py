"""``federator place``: what it prints and writes, and how it refuses."""

import json
import subprocess
import sys
import tomllib

import pytest

from federator.cli.planning.place_cores import parse_links
from federator.command_line import wheel
from federator.config.reading import load_gateway
from federator.errors import ConfigError

TRAFFIC = {
    "hub": 1,
    "collects": ["#"],
    "brokers": [
        {"id": 1, "subscribes": {"a/wanted": 1}},
        {"id": 2, "publishes": {"a/wanted": 1, 'a/"kept"': 2}, "subscribes": {'a/"kept"': 1}},
    ],
}


def run(*arguments):
    command = [sys.executable, "-m", "federator", "place", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_delegate_writes_rules_that_a_configuration_accepts(tmp_path):
    (tmp_path / "traffic.json").write_text(json.dumps(TRAFFIC))

    ended = run("delegate", "--from", tmp_path / "traffic.json", "--write", tmp_path / "rules")

    assert ended.returncode == 0, ended.stderr
    assert "broker  owns  keeps" in ended.stdout
    written = (tmp_path / "rules" / "rules-2.toml").read_text()
    assert tomllib.loads(written) == {"rules": {"keep": ['a/"kept"']}}
    config = tmp_path / "federator.toml"
    config.write_text(f'security = "open"\n[broker]\nid = 2\nurl = "mqtt://127.0.0.1:1"\n{written}')
    check = [sys.executable, "-m", "federator", "check-config", "-c", str(config)]
    assert subprocess.run(check, capture_output=True, timeout=300, check=False).returncode == 0


def test_delegate_writes_upstreams_that_a_gateway_accepts(tmp_path):
    (tmp_path / "traffic.json").write_text(json.dumps(TRAFFIC))

    ended = run("delegate", "--from", tmp_path / "traffic.json", "--write", tmp_path)

    assert ended.returncode == 0, ended.stderr
    brokers = "".join(f'[[brokers]]\nid = {id}\nurl = "mqtt://b{id}"\n' for id in (1, 2))
    config = tmp_path / "gateway.toml"
    config.write_text(f'name = "g"\n{brokers}{(tmp_path / "upstreams-2.toml").read_text()}')
    (upstream,) = load_gateway(config, {}).upstreams
    assert (upstream.broker, set(upstream.filters)) == (2, {"a/wanted", 'a/"kept"'})


def test_a_missing_extra_is_named_in_one_line():
    """As on a gateway: numpy cannot be imported."""
    script = (
        "import sys; sys.modules['numpy'] = None; "
        "from federator.cli import main; main(['place', 'cores', 'x'])"
    )
    command = [sys.executable, "-c", script]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 69
    missing = f"numpy is not installed: run pip install '{wheel('planner')}'"
    assert ended.stderr == f"federator: {missing}\n"


def test_links_are_pairs_or_the_state_of_a_grid():
    assert parse_links("[[1, 2]]", name="x") == [(1, 2)]
    assert parse_links('{"links": [{"a": 1, "b": 2, "delay_ms": 5}]}', name="x") == [(1, 2)]
    for bad in ("{", "{}", '{"links": 1}', "[[1]]", '[["a", 2]]'):
        with pytest.raises(ConfigError, match=r"^x: "):
            parse_links(bad, name="x")
