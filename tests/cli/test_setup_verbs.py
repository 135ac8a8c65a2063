"""Verbs that set an agent up, at a terminal and with a broker; the others are in setup.txt."""

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from federator.cli.setup import doctor
from federator.config.reading import load
from federator.runtime.doctor.diagnosis import Report
from federator.runtime.storage import state_dir
from lab.grid.processes.broker import BrokerProcess

PROGRAM = [sys.executable, "-m", "federator"]


def federator(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def at_a_terminal(folder, typed, *arguments):
    """What ``federator init`` prints to somebody who types that, and what it writes."""
    ours, theirs = pty.openpty()
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [*PROGRAM, "init", "-c", "f.toml", *arguments]
    asked = subprocess.Popen(command, cwd=folder, env=environment, **terminal)
    os.write(ours, typed)

    assert asked.wait(60) == 0
    return os.read(ours, 65_536).decode(), tomllib.loads((folder / "f.toml").read_text())


def test_the_port_of_the_broker_is_that_which_others_are_offered(tmp_path):
    given = ("--id", "7", "--broker", "mqtt://127.0.0.1:1899", "--neighbour", "none")
    _, written = at_a_terminal(tmp_path, b"\n", *given, "--keys", "open")

    assert written["broker"]["advertise"].endswith(":1899")


def test_at_a_terminal_five_questions_are_asked(tmp_path):
    typed = b"7\n\nmqtt://site-7\nsite-1\nnone\nnowhere\nopen\n"  # two are asked again
    printed, written = at_a_terminal(tmp_path, typed)

    assert printed.count("Any broker that takes part already") == 2
    assert printed.count("Folder of agent-ID.key") == 2
    assert "'site-1' has no scheme" in printed
    assert "nowhere/agent-7.key: no such file" in printed
    assert written["broker"] == {
        "id": 7, "url": "mqtt://127.0.0.1:1883", "advertise": "mqtt://site-7"
    }  # fmt: skip
    assert written["security"] == "open"


async def test_doctor_writes_what_the_broker_lacks_once_and_then_it_can_take_part(tmp_path):
    async with BrokerProcess(tmp_path / "broker", log_topics=False) as broker:
        config = ("-c", "f.toml")
        (tmp_path / "f.toml").write_text(f'[broker]\nid = 7\nurl = "{broker.url}"\n')

        lacks = federator("doctor", *config, "--write", "lines.conf", cwd=tmp_path)
        again = federator("doctor", *config, "--write", "lines.conf", cwd=tmp_path)

    assert lacks.returncode == 78
    assert "\nlog_dest topic\n" in (tmp_path / "lines.conf").read_text()
    assert again.returncode == 73
    assert "lines.conf: is there already" in again.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell, tmp_path):
    printed = federator("completion", shell, cwd=tmp_path)

    assert printed.returncode == 0
    assert "_FEDERATOR_COMPLETE" in printed.stdout


def test_a_schema_is_printed_by_its_daemons_name(tmp_path):
    printed = federator("check-config", "--schema", "gateway", cwd=tmp_path)

    assert json.loads(printed.stdout)["title"] == "Configuration of federator: gateway"


def test_a_damaged_line_of_what_was_issued_is_said_and_costs_no_other(tmp_path):
    federator("keys", "init", "office", cwd=tmp_path)
    for broker in (7, 8):
        federator("keys", "issue", "--dir", "office", "--broker", broker, cwd=tmp_path)
    path = tmp_path / "office" / "issued.jsonl"
    content = bytearray(path.read_bytes())
    content[content.index(b"serial") + len(b'serial": "')] ^= 1
    path.write_bytes(content[:-5])  # a cut, too, leaves no room for what comes next
    federator("keys", "issue", "--dir", "office", "--broker", "9", cwd=tmp_path)

    shown = federator("keys", "show", "office", cwd=tmp_path)
    revoked = federator("keys", "revoke", "--dir", "office", "--broker", "9", cwd=tmp_path)

    assert "issued.jsonl: 2 of 3 lines are damaged: revoke by serial" in shown.stderr
    assert "broker 9" in shown.stdout
    assert "broker 7" not in shown.stdout
    assert (shown.returncode, revoked.returncode) == (0, 0)


def test_the_doctor_says_when_the_state_folder_is_full(tmp_path, monkeypatch):
    file = tmp_path / "f.toml"
    file.write_text('state_dir = "state"\n[broker]\nid = 1\nurl = "mqtt://127.0.0.1:1"\n')
    settings = load(file, {})
    assert doctor.room(settings).outcome == "ok"

    monkeypatch.setattr(state_dir, "ROOM_BYTES_MIN", 2**63)
    told = doctor.room(settings)

    assert told.outcome == "fail"
    assert "state_dir: " in told.found
    assert "No space left on device: make room there" in told.found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("max_queued_messages 100000", True), ("max_packet_size 9", True), ("log_dest topic", False)],
)
def test_a_broker_is_to_be_restarted_for_what_a_reload_does_not_change(line, wanted):
    assert Report((), ("sys_interval 10", line)).takes_restart is wanted
