"""The verb ``steer``: what it asks for, and what it says where something is missing."""

import subprocess
import sys

import pytest

from federator import cli
from federator.command_line import wheel


def ended(arguments):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return raised.value.code


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr("federator.cli.daemons.steer.DEFAULT_CONFIG", tmp_path / "none.toml")
    monkeypatch.delenv("FEDERATOR_STEERER_CONFIG", raising=False)


def test_without_a_broker_it_says_what_is_missing(capsys):
    assert ended(["steer"]) == 64
    assert "--broker URL is missing" in capsys.readouterr().err


def test_check_reads_the_configuration_and_stops_there(tmp_path, capsys):
    path = tmp_path / "steer.toml"
    path.write_text('[[brokers]]\nurl = "mqtt://one"\n[steering]\nthreshold_percent = 70\n')

    assert ended(["steer", "-c", str(path), "--check"]) == 0
    assert capsys.readouterr().out == "from mqtt://one: the configuration can be used\n"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("[steering]\nthreshold_percent = 96\n", ":4: steering.threshold_percent"),
        ("[keys]\nsteerer_file = 'x'\n", ":4: steerer_file alone: add federation_files"),
        ("[keep]\nhub = 1\n", ":3: collects is empty: name what clients of the hub collect"),
        ("[keep]\ncollects = ['a/#']\n", ":3: hub is empty: name the broker"),
        ("[keep]\nhub = 4294967296\ncollects = ['a']\n", ":4: hub = 4294967296 is no broker id"),
        (f"[keep]\nhub = 1\ncollects = ['{'x' * 9_000}']\n", ":5: collects is too long: at most"),
        ("[keep]\nhub = 1\ncollects = ['a']\npolicy = 'sf'\n", ":6: keep.policy = 'sf'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, more, complaint):
    path = tmp_path / "steer.toml"
    path.write_text(f'[[brokers]]\nurl = "mqtt://one"\n{more}')

    assert ended(["steer", "-c", str(path)]) == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_without_the_extra_it_says_which_one_brings_what_is_missing():
    program = "import sys; sys.modules['numpy'] = None; from federator.cli import main; "
    program += "main(['steer', '--broker', 'mqtt://127.0.0.1:1'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 69
    assert f"numpy is not installed: run pip install '{wheel('planner')}'" in done.stderr
    assert "Traceback" not in done.stderr
