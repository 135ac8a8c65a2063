"""The files for one agent in a container: as confined as the grid's, and usable as they stand."""

import shlex
from pathlib import Path

import pytest
import yaml

from federator.config.reading import load
from tests.docs.page import steps

ROOT = Path(__file__).parents[2]
HERE = ROOT / "deploy" / "compose" / "one-agent"
PAGE = ROOT / "docs" / "how-to" / "one-agent-in-a-container.md"
GRID = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["agent-0"]
AGENT = yaml.safe_load((HERE / "docker-compose.yml").read_text())["services"]["agent"]
CONFINED = (
    "image", "init", "read_only", "cap_drop", "security_opt", "restart", "stop_grace_period",
    "pids_limit", "mem_limit", "logging", "tmpfs",
)  # fmt: skip


@pytest.mark.parametrize("key", CONFINED)
def test_it_is_confined_as_an_agent_of_the_grid(key: str):
    assert AGENT[key] == GRID[key]


def test_the_line_of_the_page_says_what_the_compose_file_says():
    line = steps(PAGE)[0].commands
    words = set(zip(shlex.split(line), shlex.split(line)[1:], strict=False))

    assert {
        ("--network", "host"), ("--tmpfs", AGENT["tmpfs"][0]), ("--cap-drop", AGENT["cap_drop"][0]),
        ("--security-opt", AGENT["security_opt"][0]), ("--memory", AGENT["mem_limit"]),
        ("--pids-limit", str(AGENT["pids_limit"])), ("--restart", AGENT["restart"]),
    } <= words  # fmt: skip
    assert {"--init", "--read-only"} <= set(shlex.split(line))


@pytest.mark.parametrize("name", ["signed", "open"])
def test_its_configurations_can_be_used(name: str, tmp_path: Path):
    text = (HERE / f"{name}.toml").read_text().replace("/etc/federator", str(tmp_path))
    for file in ("federator.toml", "agent-2.key", "federation.pub"):
        (tmp_path / file).write_text(text if file == "federator.toml" else "x\n")
        (tmp_path / file).chmod(0o600)

    settings = load(tmp_path / "federator.toml", {})

    assert settings.security == name
    assert settings.neighbours[0].url == "mqtt://site-1:1883"
