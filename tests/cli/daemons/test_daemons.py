"""The verbs of daemons: what they ask for, and what they say where something is missing.

Their configurations are judged in tests/config/bad_*.txt.
"""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from federator.cli.daemons import collect, console, frame, steer
from federator.command_line import wheel
from federator.console.operators import matches

STATUS = {
    "federation": "fed",
    "landing": "/var/lib/landing",
    "ready": False,
    "ready_reason": "no broker: mqtt://one: connection refused",
    "files": 12,
    "bytes": 3_456,
    "unreached": [4],
    "brokers": [{"url": "mqtt://one", "id": None, "connected": False, "error": "refused"}],
    "spools": [{"broker": 1, "spool": "a" * 16, "landed": 41, "lag": 7}],
    "counters": {"asked": 9, "lost": 0},
}


VERBS = (collect, console, steer)
"""Imported before the usual folder is another one, for their help names it."""


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(frame, "CONFIG_FOLDER", tmp_path / "none")
    for daemon in ("COLLECTOR", "CONSOLE", "STEERER"):
        monkeypatch.delenv(f"FEDERATOR_{daemon}_CONFIG", raising=False)
    for name in ("FEDERATOR_LANDING", "FEDERATOR_BROKERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("line", "code", "wanted"),
    [
        ("collect", 64, "--to FOLDER is missing"),
        ("collect --to here", 64, "--broker URL is missing"),
        ("collect --to here --broker one", 78, "--broker: brokers[0].url = 'one' has no scheme"),
        ("collect --to /proc/none --broker mqtt://localhost:1", 73, "landing: /proc/none: "),
        ("collect --status http://127.0.0.1:1", 69, "http://127.0.0.1:1: connection refused"),
        ("console", 64, "--broker URL is missing"),
        ("console --broker one", 78, "--broker: brokers[0].url = 'one' has no scheme"),
        ("console --add-operator a:b", 64, "of A-Z a-z 0-9"),
        ("steer", 64, "--broker URL is missing"),
    ],
)
def test_a_mistake_is_one_line_and_its_code(line, code, wanted, ended, capsys):
    assert ended(*line.split()) == code

    printed = capsys.readouterr()
    assert wanted in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("collect --to {}", "to {} from mqtt://one"),
        *((v, "from mqtt://one") for v in ("console", "steer")),
    ],
)
def test_check_reads_the_configuration_and_stops(line, wanted, ended, tmp_path, capsys):
    assert ended(*line.format(tmp_path).split(), "--broker", "mqtt://one", "--check") == 0

    line = f"{wanted.format(tmp_path)}: the configuration can be used\n"
    assert capsys.readouterr().out == line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("by", ["variable", "folder"])
def test_a_configuration_is_found_by_its_variable_or_in_its_folder(
    by, ended, tmp_path, capsys, monkeypatch
):
    path = tmp_path / "steer.toml"
    path.write_text('[[brokers]]\nurl = "mqtt://named"\n')
    if by == "variable":
        monkeypatch.setenv("FEDERATOR_STEERER_CONFIG", str(path))
    else:
        monkeypatch.setattr(frame, "CONFIG_FOLDER", tmp_path)

    assert ended("steer", "--check") == 0

    assert capsys.readouterr().out == "from mqtt://named: the configuration can be used\n"


@pytest.mark.parametrize(
    ("verb", "package", "extra"),
    [("console", "starlette", "console"), ("steer", "numpy", "planner")],
)
def test_without_its_packages_it_says_which_extra_brings_them(verb, package, extra):
    program = (
        f"import sys; sys.modules['{package}'] = None; from federator.cli import main; "
        f"main(['{verb}', '--broker', 'mqtt://127.0.0.1:1', '--check'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    line = f"federator: {package} is not installed: run pip install '{wheel(extra)}'\n"
    assert (done.returncode, done.stderr) == (69, line)


def test_the_status_of_a_collector_tells_first_what_hinders():
    text = collect.as_text(STATUS)

    assert text[0].endswith("NOT READY: no broker: mqtt://one: connection refused")
    assert text[1:3] == [
        "12 files, 3456 bytes",
        "no address that works is known of brokers 4",
    ]
    assert any("41" in line and "7" in line for line in text)
    assert "lost" not in "\n".join(text[3:])


def test_an_operators_line_holds_a_hash_and_no_password():
    typed = "a long password\na long password\n"
    result = CliRunner().invoke(console.command, ["--add-operator", "ada"], input=typed)

    name, _, line = result.stdout.strip().splitlines()[-1].partition(":")
    assert name == "ada"
    assert matches(line, "a long password")
    assert "a long password" not in result.stdout


def test_a_short_password_is_refused():
    result = CliRunner().invoke(console.command, ["--add-operator", "ada"], input="short\nshort\n")

    assert result.exit_code != 0
    assert "10 to 1024 characters" in result.output
