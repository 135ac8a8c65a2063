"""Verbs that set an agent up: init writes what check-config takes, doctor what brokers lack."""

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
FIVE = {
    "--id": "7",
    "--broker": "mqtt://127.0.0.1:1883",
    "--advertise": "mqtt://site-7",
    "--neighbour": "mqtt://site-1",
    "--keys": "open",
}


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


def options(**changed):
    told = FIVE | {f"--{name}": value for name, value in changed.items()}
    return [word for pair in told.items() for word in pair]


def test_what_init_writes_check_config_takes(tmp_path):
    told = (*options(), "--state-dir", "state \N{HOUSE BUILDING}")
    made = federator("init", "-c", "new/f.toml", *told, cwd=tmp_path)

    assert (made.returncode, made.stderr) == (0, "")
    checked = federator("check-config", "-c", "new/f.toml", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("broker 7 at mqtt://127.0.0.1:1883, federation fed, 1 neigh")


def test_init_names_keys_that_are_there_and_says_how_to_make_those_that_are_not(tmp_path):
    federator("keys", "init", "office", cwd=tmp_path)
    missing = federator("init", "-c", "f.toml", *options(keys="office"), cwd=tmp_path)
    federator("keys", "issue", "--dir", "office", "--broker", "7", cwd=tmp_path)
    made = federator("init", "-c", "f.toml", *options(keys="office"), cwd=tmp_path)

    assert missing.returncode == 66
    assert "agent-7.key: no such file: make it with federator keys issue" in missing.stderr
    assert made.returncode == 0
    written = tomllib.loads((tmp_path / "f.toml").read_text())
    assert written["keys"]["agent_file"] == "office/agent-7.key"


def test_init_writes_over_nothing(tmp_path):
    there = tmp_path / "f.toml"
    there.write_text("mine")

    refused = federator("init", "-c", there, *options(), cwd=tmp_path)

    assert refused.returncode == 73
    assert refused.stderr.count("\n") == 1
    assert there.read_text() == "mine"


def test_the_port_of_the_broker_is_that_which_others_are_offered(tmp_path):
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "init", "-c", "f.toml", "--id", "7", "--broker", "mqtt://127.0.0.1:1899"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    asked = subprocess.Popen(
        [*command, "--neighbour", "none", "--keys", "open"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.write(ours, b"\n")

    assert asked.wait(60) == 0
    written = tomllib.loads((tmp_path / "f.toml").read_text())
    assert written["broker"]["advertise"].endswith(":1899")


def test_without_a_terminal_init_says_in_one_line_what_is_missing(tmp_path):
    refused = federator("init", "-c", "f.toml", "--id", "7", cwd=tmp_path)

    assert refused.returncode == 64
    assert "--broker, --advertise, --neighbour, --keys wanted" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_what_cannot_be_a_broker_is_refused_and_nothing_written(tmp_path):
    refused = federator("init", "-c", "f.toml", *options(neighbour="site-1"), cwd=tmp_path)

    assert refused.returncode == 64
    assert "has no scheme we know" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_at_a_terminal_five_questions_are_asked(tmp_path):
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "init", "-c", "f.toml"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    asked = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.write(ours, b"7\n\nmqtt://site-7\nsite-1\nnone\nnowhere\nopen\n")  # two are asked again

    assert asked.wait(60) == 0

    printed = os.read(ours, 65_536).decode()
    assert printed.count("Any broker that takes part already") == 2
    assert printed.count("Folder of agent-ID.key") == 2
    assert "'site-1' has no scheme" in printed
    assert "nowhere/agent-7.key: no such file" in printed
    written = tomllib.loads((tmp_path / "f.toml").read_text())
    assert written["broker"] == {
        "id": 7, "url": "mqtt://127.0.0.1:1883", "advertise": "mqtt://site-7"
    }  # fmt: skip
    assert written["security"] == "open"


async def test_doctor_writes_what_the_broker_lacks_once_and_then_it_can_take_part(tmp_path):
    async with BrokerProcess(tmp_path / "broker", log_topics=False) as broker:
        config = ("-c", "f.toml")
        first = options(broker=broker.url, advertise="none", neighbour="none")
        assert federator("init", *config, *first, cwd=tmp_path).returncode == 0

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


def test_what_people_read_of_keys_and_configurations_machines_read_too(tmp_path):
    def told(*arguments):
        return json.loads(federator(*arguments, "--json", cwd=tmp_path).stdout)

    made = told("keys", "init", "office")
    issued = told("keys", "issue", "--dir", "office", "--broker", "7")
    written = told("init", "-c", "f.toml", *options(keys="office"), "--state-dir", "state")
    checked = told("check-config", "-c", "f.toml")
    revoked = told("keys", "revoke", "--dir", "office", "--broker", "7")
    shown = told("keys", "show", "office")

    assert issued["broker"] == 7
    assert written == {"written": "f.toml"}
    assert (checked["broker"], checked["neighbours"]) == (7, 1)
    assert "rules" in " ".join(checked["taken_by_reload"])
    assert revoked["serials"] == [issued["serial"]]
    assert [each["kind"] for each in shown["files"]] == [
        "federation key", "public key", "revocations"
    ]  # fmt: skip
    assert shown["files"][0]["fingerprint"] == made["fingerprint"]
    assert shown["issued"] == [{k: v for k, v in issued.items() if k != "file"} | {"revoked": True}]


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
