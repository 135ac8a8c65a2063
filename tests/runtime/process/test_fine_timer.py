"""Waits of less than a millisecond, on both event loops."""

import asyncio
import os
import time

import pytest

from federator.runtime.process import fine_timer
from federator.runtime.process.fine_timer import FineTimer


@pytest.fixture
async def fired():
    return []


@pytest.fixture
async def timer(fired):
    made = FineTimer(lambda: fired.append(time.monotonic()))
    yield made
    made.close()


async def test_it_fires_once_each_time_that_it_is_set(timer, fired):
    for _ in range(3):
        began_s = time.monotonic()
        timer.set(0.0003)
        assert timer.is_set
        await asyncio.sleep(0.02)
        assert not timer.is_set
        assert fired[-1] - began_s >= 0.0003

    assert len(fired) == 3


async def test_one_that_is_set_goes_on(timer, fired):
    timer.set(0.001)
    timer.set(0.0005)
    await asyncio.sleep(0.05)

    assert len(fired) == 1


async def test_one_that_is_closed_never_fires_and_leaves_no_file(fired):
    before = len(os.listdir("/proc/self/fd"))
    timer = FineTimer(lambda: fired.append(0.0))
    timer.set(0.001)
    timer.close()
    timer.close()
    await asyncio.sleep(0.02)

    assert fired == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_where_the_system_has_none_the_loop_wakes_it(fired, monkeypatch):
    monkeypatch.setattr(fine_timer.ctypes, "CDLL", lambda name: object())
    timer = FineTimer(lambda: fired.append(0.0))
    timer.set(0.001)
    await asyncio.sleep(0.05)
    timer.close()

    assert len(fired) == 1
