"""Real Mosquitto processes for tests: `broker` for one, `start_broker` for as many as wanted."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from federator.grid.broker_process import BrokerProcess

StartBroker = Callable[..., Awaitable[BrokerProcess]]


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
