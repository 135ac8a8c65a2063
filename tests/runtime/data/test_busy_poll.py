"""A loop that is kept awake, and one that is not."""

import asyncio
import time

import pytest

from federator.runtime.data.busy_poll import BusyPoll


async def turns_within(seconds):
    """How often the loop turns, at most a thousand times."""
    loop, turns, end_s = asyncio.get_running_loop(), 0, time.monotonic() + seconds
    woken = asyncio.Event()
    loop.call_later(seconds, woken.set)
    selector = loop._selector
    select = selector.select

    def counted(timeout):
        nonlocal turns
        turns += 1
        return select(timeout)

    selector.select = counted
    await woken.wait()
    selector.select = select
    assert time.monotonic() >= end_s
    return turns


@pytest.mark.parametrize(("for_us", "least", "most"), [(0, 0, 20), (20_000, 100, 10**6)])
def test_the_loop_stays_awake_for_as_long_as_is_wanted_after_data(for_us, least, most):
    async def run():
        poll = BusyPoll(for_us)
        rounds = []
        for _ in range(10):  # in some of them others may have had the processor
            poll.on_data()
            poll.on_data()
            rounds.append(await turns_within(0.05))
        assert least <= max(rounds) <= most
        assert await turns_within(0.05) <= 20  # then it sleeps again

    asyncio.run(run())
