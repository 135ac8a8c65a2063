"""What a service manager hears, on a real unix datagram socket."""

import asyncio
import contextlib
import socket
import time

import pytest
import structlog.testing

from federator.config.service_manager import ServiceManager, service_manager
from federator.runtime.mqtt.connection import MqttConnection
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from federator.runtime.process import service_manager as talk
from lab.grid.processes.ports import free_ports
from tests.real.polling import until
from tests.tcp_server import serving

PID = 4242


class Manager:
    """A service manager's end of the socket; ``said`` are the lines heard so far."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(address)
        self._said = []

    @property
    def said(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self._said += self._socket.recv(65_536).decode().split("\n")
        return self._said

    def forget(self):
        self.said.clear()

    def close(self):
        self._socket.close()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    listening = Manager(path)
    yield listening
    listening.close()


class Silent(LinkObserver):
    """A link's handler that nothing concerns."""


def link_to(port, **options):
    return MqttLink(Endpoint("127.0.0.1", port), Silent(), client_id="federator-1-ctl", **options)


@contextlib.asynccontextmanager
async def kept(link):
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ("", None),
        ("NOTIFY_SOCKET=", None),
        ("NOTIFY_SOCKET=@", None),
        ("NOTIFY_SOCKET=run/notify", None),
        ("NOTIFY_SOCKET=/run/notify", ("/run/notify", None)),
        ("NOTIFY_SOCKET=@notify", ("\0notify", None)),
        ("NOTIFY_SOCKET=/n WATCHDOG_USEC=30000000", ("/n", 30.0)),
        (f"NOTIFY_SOCKET=/n WATCHDOG_USEC=500000 WATCHDOG_PID={PID}", ("/n", 0.5)),
        ("NOTIFY_SOCKET=/n WATCHDOG_USEC=500000 WATCHDOG_PID=1", ("/n", None)),
        ("NOTIFY_SOCKET=/n WATCHDOG_USEC=0", ("/n", None)),
        ("NOTIFY_SOCKET=/n WATCHDOG_USEC=-5", ("/n", None)),
        ("NOTIFY_SOCKET=/n WATCHDOG_USEC=soon", ("/n", None)),
    ],
)
def test_the_environment_tells_who_listens_and_who_watches(environ, wanted):
    found = service_manager(dict(word.split("=") for word in environ.split()), pid=PID)

    assert found == (None if wanted is None else ServiceManager(*wanted))


async def test_it_is_told_when_we_read_the_configuration_again_and_that_we_serve_by_it(manager):
    asked_us = time.monotonic_ns() // 1_000

    async with talk.told(lambda: (True, "ready"), list) as reloading:
        await until(lambda: "READY=1" in manager.said, "we serve")
        manager.forget()
        with reloading():
            meanwhile = [line for line in manager.said if line.startswith(("REL", "MONO", "READY"))]
        after = manager.said[-1:]

    assert meanwhile[0] == "RELOADING=1"
    assert asked_us <= int(meanwhile[1].removeprefix("MONOTONIC_USEC=")) < asked_us + 10**8
    assert (len(meanwhile), after) == (2, ["READY=1"])


async def test_it_is_told_that_we_serve_live_and_stop(manager):
    state = [(False, "broker mqtt://b: connection refused\nREADY=2")]

    async with talk.told(lambda: state[0], list):
        await until(lambda: manager.said.count("WATCHDOG=1") >= 3, "the watchdog is fed")
        first = list(manager.said)
        state[0] = (True, "ready")
        await until(lambda: "STATUS=ready" in manager.said, "the new status")
        assert "STOPPING=1" not in manager.said

    assert first[0] == "READY=1"
    assert first.count("READY=1") == 1
    assert first.count("STATUS=not ready: broker mqtt://b: connection refused?READY=2") == 1
    assert manager.said[-2:] == ["STOPPING=1", "STATUS=leaving the federation"]


async def test_without_a_watchdog_there_is_no_feeding(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_PID", "1")

    async with talk.told(lambda: (True, "ready"), list):
        await until(lambda: "STATUS=ready" in manager.said, "the status")

    assert "WATCHDOG=1" not in manager.said


async def test_a_manager_that_does_not_listen_is_told_ready_once_it_does(manager, tmp_path):
    manager.close()
    (tmp_path / "notify").unlink()
    async with talk.told(lambda: (True, "ready"), list):
        await asyncio.sleep(0)
        back = Manager(str(tmp_path / "notify"))
        await until(lambda: "WATCHDOG=1" in back.said, "the watchdog is fed")

        assert back.said[:2] == ["READY=1", "STATUS=ready"]
        back.close()


async def test_a_loop_that_hangs_feeds_nothing(manager):
    async with talk.told(lambda: (True, "ready"), list):
        await until(lambda: "WATCHDOG=1" in manager.said, "the watchdog is fed")
        manager.forget()
        time.sleep(0.5)  # noqa: ASYNC251 - this is the hang

        assert manager.said == []
        await until(lambda: "WATCHDOG=1" in manager.said, "it is fed again")


async def test_nobody_is_told_without_a_manager(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)

    async with talk.told(lambda: (True, "ready"), list):
        pass


async def test_what_runs_within_may_fail(manager):
    with pytest.raises(ExceptionGroup) as raised:
        async with talk.told(lambda: (True, "ready"), list):
            raise ValueError("ours")

    assert raised.group_contains(ValueError, match="ours")
    assert manager.said[-2] == "STOPPING=1"


@pytest.fixture
def quick(monkeypatch):
    """A link is overdue soon."""
    monkeypatch.setattr(talk, "OVERDUE_S_MAX", 1.0)


async def say_nothing(reader, _writer):
    await reader.read()


@contextlib.asynccontextmanager
async def fed_while_tried(manager, link, attempts):
    """The watchdog is fed after so many attempts to connect, and what the block does."""
    async with kept(link), talk.told(lambda: (True, "ready"), lambda: [link]):
        await until(lambda: link.counters.attempts >= attempts, "tried again and again")
        yield
        manager.forget()
        await until(lambda: manager.said.count("WATCHDOG=1") >= 3, "the watchdog is fed")


@pytest.mark.usefixtures("quick")
async def test_a_broker_that_is_away_and_a_wait_of_our_own_choice_are_no_hang(manager):
    link = link_to(free_ports(1)[0], connect_timeout_s=0.1, reconnect_max_ms=100, give_way_s=600)
    async with fed_while_tried(manager, link, 10):
        pass
    assert link.last_error is not None

    async with fed_while_tried(manager, link, 1):
        link.give_way()
        await asyncio.sleep(1.5)


@pytest.mark.usefixtures("quick")
async def test_a_server_that_never_answers_is_no_hang(manager):
    async with serving(say_nothing) as port:
        link = link_to(port, connect_timeout_s=0.2, reconnect_max_ms=100)
        async with fed_while_tried(manager, link, 5):
            pass


def is_stuck(line):
    return line["event"] == "service.stuck"


async def forget(connection):
    """Do nothing for a connection that stands: a bug of ours."""
    await asyncio.Event().wait()


async def test_a_link_that_nobody_looks_after_starves_the_watchdog(manager, monkeypatch):
    monkeypatch.setattr(talk, "OVERDUE_S_MAX", 0.2)
    monkeypatch.setattr(MqttConnection, "keep_alive", forget)

    async def greet(reader, writer):
        await reader.read(1)
        writer.write(b"\x20\x03\x00\x00\x00")  # CONNACK: welcome
        await reader.read()

    async with serving(greet) as port, kept(link_to(port, connect_timeout_s=2.0)) as link:
        with structlog.testing.capture_logs() as logs:
            async with talk.told(lambda: (True, "ready"), lambda: [link]):
                await until(lambda: "WATCHDOG=1" in manager.said, "fed while it may be slow")
                await until(lambda: any(map(is_stuck, logs)), "it is noticed")
                manager.forget()
                await asyncio.sleep(0.5)  # ten feeds
                assert "WATCHDOG=1" not in manager.said

    assert [line["connections"] for line in filter(is_stuck, logs)] == [("federator-1-ctl",)]
