"""Mosquitto's tests are fetched and judged as they should be, and our stand-in is a broker."""

import asyncio
import contextlib
import json
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.errors import ConfigError
from lab.cli.mosquitto_tests import command
from lab.conformance import source, suite
from lab.conformance.stand_in import MODE, translated
from lab.grid.processes.children import python
from lab.grid.processes.ports import free_ports
from tests.real.gateway.raw import Raw, connect

LIST = """
tests = [
    #(ports required, 'path'),
    (1, './01-good.py'),
    (2, './02-bad.py'),
    #(1, './03-off.py'),
    (1, './06-bridge.py'),
    (1, './07-will-missing.py'),
    (1, './12-prop-subpub-payload-format.py'),
    ]
"""
GOOD = "import sys; assert len(sys.argv) == 2"
BAD = "import sys; print('argh', len(sys.argv)); sys.exit(1)"


@pytest.fixture
def checkout(tmp_path):
    """A checkout with tests that need no broker."""
    folder = tmp_path / "mosquitto-2.0.11"
    broker = folder / "test" / "broker"
    broker.mkdir(parents=True)
    (folder / "test" / "mosq_test.py").write_text(suite.PATIENCE[0])
    (broker / "test.py").write_text(LIST)
    (broker / "01-good.py").write_text(GOOD)
    for name in ("02-bad", "12-prop-subpub-payload-format"):
        (broker / f"{name}.py").write_text(BAD)
    return folder


def run(*arguments):
    return CliRunner().invoke(command, [*map(str, arguments)], standalone_mode=False)


def test_the_code_is_0_unless_a_test_fails_that_need_not(checkout):
    good = run("--source", checkout, "01", "missing", "payload")
    bad = run("--source", checkout, "--attempts", 1)

    assert good.return_value == 0
    assert sorted(line.split()[:2] for line in good.output.splitlines()) == [
        ["1", "of"],
        ["known", "07-will-missing"],
        ["known", "12-prop-subpub-payload-format"],
        ["pass", "01-good"],
    ]
    assert bad.return_value == 1
    assert "argh 3" in bad.output
    assert bad.output.endswith("1 of 4 pass, 2 fail as they must, unexpected: 02-bad\n")


def test_straight_at_the_broker_nothing_that_is_there_is_excused(checkout):
    told = run("--source", checkout, "--direct", "--json", "--attempts", 1, "missing", "payload")

    assert told.return_value == 1
    missing, excused_before = sorted(json.loads(told.output), key=lambda row: row["name"])
    assert not missing["passed"]
    assert missing["known"]
    assert (excused_before["passed"], excused_before["known"]) == (False, None)


def test_an_archive_is_taken_and_one_that_is_damaged_is_not(checkout, tmp_path):
    archive = tmp_path / source.ARCHIVE
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(checkout, "mosquitto-2.0.11")

    assert run("--source", archive, "--list").output.split()[0] == "01-good"
    archive.write_bytes(archive.read_bytes()[:100])
    told = run("--source", archive)
    assert isinstance(told.exception, ConfigError)
    assert "--source" in str(told.exception)


def test_without_apt_one_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / source.ARCHIVE).write_bytes(b"not what it was")

    told = run("--cache", tmp_path)

    assert isinstance(told.exception, ConfigError)
    assert str(told.exception).startswith("Mosquitto's tests: no apt-get here: give ")
    assert told.exception.exit_code == 69


def test_the_brokers_ports_move_and_everything_else_stays():
    conf, ports = translated("listener 1 127.0.0.1\nport 2\n\nmax_qos 1\n", moved=True)

    assert ports.keys() == {1, 2}
    assert not {1, 2} & {*ports.values()}
    lines = [f"listener {ports[1]} 127.0.0.1", f"port {ports[2]}", "", "max_qos 1"]
    assert conf.splitlines()[:4] == lines


@pytest.mark.parametrize("mode", ["gateway", "broker"])
async def test_the_stand_in_serves_on_the_tests_port_and_ends_as_a_broker_does(
    mode, monkeypatch, tmp_path
):
    (port,) = free_ports(1)
    monkeypatch.setenv(MODE, mode)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    process = await asyncio.create_subprocess_exec(
        *python("lab.conformance.stand_in", "-v", "-p", str(port)),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    speaker = Raw()
                    assert not (await speaker.begin(port, connect(5, "c"))).session_present
                    break
                await asyncio.sleep(0.05)
        await speaker.leave()
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()

    assert process.returncode == 0
    assert (b"federator-gateway-" in log) == (mode == "gateway")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
