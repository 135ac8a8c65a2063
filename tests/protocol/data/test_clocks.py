"""Whose clock is ahead of ours is told, and nobody for what was kept for a day."""

from msgspec.structs import replace

from federator.protocol.data.delivery import CLOCK_AHEAD_US, CLOCK_GAP_MS
from federator.protocol.types import Millis, Now
from tests.protocol.data.test_marker import delivery
from tests.protocol.leaves.test_stamps import FAR, HUB, frame, run_of

DAY_US = 86_400_000_000


def dated(origin, time_us):
    return replace(frame(origin, 1), origin_time_us=time_us, body=memoryview(run_of(b"x")))


def test_a_clock_that_is_ahead_is_told_now_and_then():
    told = []
    out = delivery(None)
    out.tell = told.append
    now_us = 10 * DAY_US

    def arrive(origin, ahead_us, ms):
        out.deliver(dated(origin, now_us + ahead_us), Now(Millis(ms), now_us))

    for ahead_us in (0, -DAY_US, CLOCK_AHEAD_US):
        arrive(FAR, ahead_us, 0)
    assert told == []

    for ms in (0, 1, CLOCK_GAP_MS - 1):
        arrive(FAR, 400 * DAY_US, ms)
    arrive(HUB, 2 * CLOCK_AHEAD_US, 1)

    assert [(each.name, each.details) for each in told] == [
        ("clock.ahead", {"origin": FAR, "ahead_s": 400 * 86_400}),
        ("clock.ahead", {"origin": HUB, "ahead_s": 120}),
    ]
    arrive(FAR, 400 * DAY_US, CLOCK_GAP_MS)
    assert len(told) == 3
