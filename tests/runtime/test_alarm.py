"""One deadline on the event loop."""

from federator.protocol.types import Millis
from federator.runtime.alarm import Alarm
from federator.runtime.clocks import monotonic_ms
from tests.real.polling import until


async def test_it_rings_once_and_not_before_its_time():
    rung, later = [], []
    alarm = Alarm(lambda: rung.append(monotonic_ms()))
    other = Alarm(lambda: later.append(None))
    at_ms = Millis(monotonic_ms() + 30)

    alarm.set(at_ms)
    other.set(Millis(at_ms + 40))

    await until(lambda: later, "the later one rings")
    assert len(rung) == 1
    assert rung[0] >= at_ms - 2  # the loop counts in its own milliseconds


async def test_it_rings_for_the_last_instant_set_only():
    rung = []
    alarm = Alarm(lambda: rung.append(monotonic_ms()))
    now_ms = monotonic_ms()

    for delay_ms in (60_000, 10, 40):
        alarm.set(Millis(now_ms + delay_ms))

    await until(lambda: rung, "it rings")
    assert rung[0] >= now_ms + 38


async def test_one_that_is_put_off_for_good_is_silent():
    rung = []
    alarm, other = Alarm(lambda: rung.append("alarm")), Alarm(lambda: rung.append("other"))
    now_ms = monotonic_ms()

    alarm.set(now_ms)
    alarm.set(None)
    other.set(Millis(now_ms + 20))

    await until(lambda: rung, "the other rings")
    assert rung == ["other"]


async def test_what_is_past_rings_soon_and_may_be_set_again_from_within():
    rung = []

    def ring():
        rung.append(None)
        if len(rung) < 3:
            alarm.set(Millis(0))

    alarm = Alarm(ring)

    alarm.set(Millis(0))

    await until(lambda: len(rung) == 3, "it rings as often as it is set")
