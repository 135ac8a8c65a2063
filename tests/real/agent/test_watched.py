"""The agent as systemd sees it: a real process, a real socket, signals."""

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.ports import free_ports
from tests.real.polling import until
from tests.runtime.process.test_service_manager import Manager

DEADLINE_S = 60.0
WATCHDOG_US = 1_000_000


@contextlib.asynccontextmanager
async def watched(folder, *verb):
    """A ``federator`` under a service manager: the process, what it said, and its log."""
    manager = Manager(str(folder / "notify"))
    environ = {
        **os.environ,
        "NOTIFY_SOCKET": str(folder / "notify"),
        "WATCHDOG_USEC": str(WATCHDOG_US),
    }
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "federator", *verb), env=environ, stderr=log
        )
    try:
        yield process, manager
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        manager.close()


async def hears(manager, line, times=1):
    await until(lambda: manager.said.count(line) >= times, f"{times} x {line}")


def agent_at(port, folder):
    path = folder / "federator.toml"
    path.write_text(
        f'security = "open"\nstate_dir = "{folder}/state"\n'
        f'[broker]\nid = 1\nurl = "mqtt://127.0.0.1:{port}"\n[http]\nport = 0\n'
    )
    return "run", "-c", str(path)


async def test_an_agent_serves_and_lives_without_its_broker_and_says_when_it_stops(tmp_path):
    (port,) = free_ports(1)
    async with watched(tmp_path, *agent_at(port, tmp_path)) as (process, manager):
        await hears(manager, "READY=1")
        why = f"broker mqtt://127.0.0.1:{port}: connection refused: is the broker running?"
        await hears(manager, f"STATUS=not ready: {why}")
        await hears(manager, "WATCHDOG=1", 5)
        async with BrokerProcess(tmp_path / "broker", port=port):
            await hears(manager, "STATUS=ready, alone")
        await hears(manager, "WATCHDOG=1", 8)

        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            code = await process.wait()

        assert code == 0
        assert manager.said[-2:] == ["STOPPING=1", "STATUS=leaving the federation"]
        assert manager.said.count("READY=1") == 1


async def test_a_stopped_agent_feeds_nothing_and_an_abort_shows_where_it_hung(tmp_path):
    (port,) = free_ports(1)
    async with watched(tmp_path, *agent_at(port, tmp_path)) as (process, manager):
        await hears(manager, "WATCHDOG=1", 2)
        process.send_signal(signal.SIGSTOP)
        await until(lambda: state_of(process.pid) == "T", "it is stopped")
        manager.forget()
        await asyncio.sleep(WATCHDOG_US / 1e6)
        assert manager.said == []

        process.send_signal(signal.SIGABRT)  # as systemd does
        process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(DEADLINE_S):
            code = await process.wait()

        # Seldom Python walks a moving stack, and dies of that in the middle of its account.
        assert code in (-signal.SIGABRT, -signal.SIGSEGV)
        log = (tmp_path / "log").read_text()
        assert "Fatal Python error: Aborted" in log
        assert code == -signal.SIGSEGV or "asyncio/runners.py" in log


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("verb", ["gateway", "collect"])
async def test_gateways_and_collectors_are_watched_too(verb, tmp_path):
    broker_port, port = free_ports(2)
    url = f'url = "mqtt://127.0.0.1:{broker_port}"'
    path = tmp_path / "it.toml"
    path.write_text(
        {
            "gateway": f'name = "g"\n[[listeners]]\nport = {port}\n[[brokers]]\nid = 1\n{url}\n',
            "collect": f'landing = "{tmp_path}/landing"\n[[brokers]]\n{url}\n',
        }[verb]
        + "[http]\nport = 0\n"
    )
    async with watched(tmp_path, verb, "-c", str(path)) as (process, manager):
        await hears(manager, "READY=1")
        await hears(manager, "WATCHDOG=1", 3)

        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            code = await process.wait()

        assert code == 0, (tmp_path / "log").read_text()
        assert manager.said[-2] == "STOPPING=1"
