"""``federator place``: what it prints and writes, and how it refuses."""

import json
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from federator.cli.line_chart import line_chart
from federator.cli.place_cores import parse_links
from federator.cli.place_paper import read_table
from federator.cli.place_solve import command as solve
from federator.config import load_gateway
from federator.errors import ConfigError

TRAFFIC = {
    "hub": 1,
    "collects": ["#"],
    "brokers": [
        {"id": 1, "subscribes": {"a/wanted": 1}},
        {"id": 2, "publishes": {"a/wanted": 1, 'a/"kept"': 2}, "subscribes": {'a/"kept"': 1}},
    ],
}
PROBLEM = {
    "devices": [{"capacity": 100, "power": 1}, {"capacity": 100, "power": 2}],
    "links": [[0, 1]],
    "network_power": 3,
    "broker_work": 2,
    "topics": [{"clients": [1, 2]}],
    "services": [{"users": [4, 0], "work": 3, "user_work": 7, "topics": {"0": 5}}],
}
OWING = {"users": [4, 0], "work": 3, "user_work": 7, "topics": {"0": -5}}


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


@pytest.mark.parametrize("method", ["search", "exact"])
def test_solve_says_where_and_how_sure_it_is(tmp_path, method):
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))

    result = CliRunner().invoke(solve, [str(tmp_path / "problem.json"), "--method", method])

    assert result.exit_code == 0, result.output
    assert "broker of topic 0  0" in result.output
    assert "power 65 mW, proven within 0 %" in result.output


def test_a_missing_extra_is_named_in_one_line():
    """As on a gateway: numpy cannot be imported."""
    script = (
        "import sys; sys.modules['numpy'] = None; "
        "from federator.cli import main; main(['place', 'solve', 'x'])"
    )
    command = [sys.executable, "-c", script]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 69
    missing = "numpy is not installed: run pip install federator[planner]"
    assert ended.stderr == f"federator: {missing}\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"devices": []}, "topics of the file must be a list"),
        ({**PROBLEM, "links": []}, "links: no way leads from device 0 to [1]"),
        ({**PROBLEM, "version": 2}, "the file: 'version' is unknown, one of ['broker_work', "),
        ({**PROBLEM, "topics": [{"client": []}]}, "topics[0]: 'client' is unknown"),
        ({**PROBLEM, "network_power": -1}, "network_power must be finite and not negative, got -1"),
        ({**PROBLEM, "broker_work": 10**400}, "int too large"),
        ({**PROBLEM, "devices": [{"capacity": -1, "power": 1}] * 2}, "capacity must be finite and"),
        ({**PROBLEM, "services": [OWING]}, "shared_traffic must be finite and not negative"),
        ({**PROBLEM, "links": [[0, 2]]}, "[0, 2] is no pair of devices 0 to 1"),
        ({**PROBLEM, "network_power": "much"}, "network_power: 'much' is no number"),
    ],
)
def test_a_bad_problem_is_told_in_one_line(tmp_path, content, complaint):
    (tmp_path / "problem.json").write_text(json.dumps(content))

    ended = run("solve", tmp_path / "problem.json")

    assert ended.returncode == 65
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_links_are_pairs_or_the_state_of_a_grid():
    assert parse_links("[[1, 2]]", name="x") == [(1, 2)]
    assert parse_links('{"links": [{"a": 1, "b": 2, "delay_ms": 5}]}', name="x") == [(1, 2)]
    for bad in ("{", "{}", '{"links": 1}', "[[1]]", '[["a", 2]]'):
        with pytest.raises(ConfigError, match=r"^x: "):
            parse_links(bad, name="x")


def test_a_table_without_every_figure_is_refused(tmp_path):
    table = tmp_path / "part.csv"
    table.write_text("figure,series,x,seed,value\n8,lp,0.5,0,1.0\n")

    with pytest.raises(ConfigError, match="no rows for figures"):
        read_table(table)


def test_a_chart_is_xml_with_a_line_per_curve_inside_its_frame():
    curves = {"a < b": {0.0: 1.0, 1.0: 3.0}, "flat": {0.0: 0.0, 1.0: 0.0}}

    root = ET.fromstring(line_chart("t & t", "x", "y", curves))

    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    for line in lines:
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 90 <= x <= 490
            assert 40 <= y <= 350
    assert "a < b" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
