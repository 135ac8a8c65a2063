"""Real Mosquitto processes for tests: `broker` for one, `start_broker` for as many as wanted.

With agents beside them and gateways before them: `stage`; agents that a test configures itself:
`plain`. Certificates: `keys`.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.grid.processes import warm
from lab.grid.processes.broker import BrokerProcess
from tests.certificates import make_keys
from tests.real import turns
from tests.real.gateway.stage import Stage, standing
from tests.real.plain_agents import Plain

StartBroker = Callable[..., Awaitable[BrokerProcess]]


@pytest.fixture(scope="session", autouse=True)
def agents_are_forked():
    """Event loops of agents and gateways can be watched: see ``turns``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm, "PROGRAM", "tests.real.warm")
        yield


@pytest.fixture
def turns_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder to which agents and gateways that are started from now on tell their turns."""
    folder = tmp_path / "turns"
    folder.mkdir()
    monkeypatch.setenv(turns.FOLDER, str(folder))
    return folder


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """``await start_broker(**BrokerProcess arguments)``; all are stopped when the test ends."""
    async with contextlib.AsyncExitStack() as brokers:
        started = 0

        async def start(**arguments: Any) -> BrokerProcess:
            nonlocal started
            started += 1
            folder = tmp_path / f"broker-{started}"
            return await brokers.enter_async_context(BrokerProcess(folder, **arguments))

        yield start


@pytest.fixture
async def broker(start_broker: StartBroker) -> BrokerProcess:
    """One broker with log topics on, anonymous clients allowed, and default limits."""
    return await start_broker()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Plain]:
    """Brokers and agents, made as a test asks for them, and ended in the right order."""
    async with Plain(tmp_path) as made:
        yield made


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Brokers 1, 2 and 3 in a line, their agents, and the gateways that are asked for."""
    async with standing(tmp_path) as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with broker.pem for 127.0.0.1, client.pem and other.pem, and their keys."""
    return make_keys(tmp_path)
