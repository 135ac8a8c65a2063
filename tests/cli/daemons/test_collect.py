"""The verb ``collect``: what it asks for, and how it tells of another collector."""

import pytest

from federator import cli
from federator.cli.daemons.collect import as_text

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


def ended(arguments):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return raised.value.code


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr("federator.cli.daemons.collect.DEFAULT_CONFIG", tmp_path / "none.toml")
    for name in ("FEDERATOR_COLLECTOR_CONFIG", "FEDERATOR_LANDING", "FEDERATOR_BROKERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 64, "--to FOLDER is missing"),
        (["--to", "here"], 64, "--broker URL is missing"),
        (["--to", "here", "--broker", "one"], 78, "--broker: brokers[0].url = 'one' has no scheme"),
        (["-c", "/none.toml"], 66, "/none.toml: no such file: name the configuration"),
        (["--to", "/proc/none", "--broker", "mqtt://localhost:1"], 73, "landing: /proc/none: "),
        (["--status", "http://127.0.0.1:1"], 69, "http://127.0.0.1:1: connection refused"),
    ],
)
def test_a_mistake_is_one_line_and_its_code(arguments, code, told, capsys):
    assert ended(["collect", *arguments]) == code

    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1


def test_check_reads_the_configuration_and_stops(tmp_path, capsys):
    assert ended(["collect", "--to", str(tmp_path), "--broker", "mqtt://one", "--check"]) == 0

    assert f"to {tmp_path} from mqtt://one: the conf" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_status_tells_first_what_hinders():
    text = as_text(STATUS)

    assert text[0].endswith("NOT READY: no broker: mqtt://one: connection refused")
    assert text[1:3] == [
        "12 files, 3456 bytes",
        "no address that works is known of brokers 4",
    ]
    assert any("41" in line and "7" in line for line in text)
    assert "lost" not in "\n".join(text[3:])
