"""The timer of one deadline on the event loop."""

from federator.protocol.types import Millis
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from tests.real.polling import until


async def test_it_fires_once_and_not_before_its_time():
    fired, later = [], []
    timer = DeadlineTimer(lambda: fired.append(monotonic_ms()))
    other = DeadlineTimer(lambda: later.append(None))
    at_ms = Millis(monotonic_ms() + 30)

    timer.set(at_ms)
    other.set(Millis(at_ms + 40))

    await until(lambda: later, "the later one fires")
    assert len(fired) == 1
    assert fired[0] >= at_ms - 2  # the loop counts in its own milliseconds


async def test_it_fires_for_the_last_instant_set_only():
    fired = []
    timer = DeadlineTimer(lambda: fired.append(monotonic_ms()))
    now_ms = monotonic_ms()

    for delay_ms in (60_000, 10, 40):
        timer.set(Millis(now_ms + delay_ms))

    await until(lambda: fired, "it fires")
    assert fired[0] >= now_ms + 38


async def test_one_that_is_put_off_for_good_is_silent():
    fired = []
    timer, other = (
        DeadlineTimer(lambda: fired.append("timer")),
        DeadlineTimer(lambda: fired.append("other")),
    )
    now_ms = monotonic_ms()

    timer.set(now_ms)
    timer.set(None)
    other.set(Millis(now_ms + 20))

    await until(lambda: fired, "the other fires")
    assert fired == ["other"]


async def test_what_is_past_fires_soon_and_may_be_set_again_from_within():
    fired = []

    def ring():
        fired.append(None)
        if len(fired) < 3:
            timer.set(Millis(0))

    timer = DeadlineTimer(ring)

    timer.set(Millis(0))

    await until(lambda: len(fired) == 3, "it fires as often as it is set")
