"""A machine between agents that does all the harm it can without a key; the brokers are reached."""

import pytest

from lab.on_path.moods import Mood
from lab.on_path.run import SILENCE_S_MAX, Settings, run
from tests.real.undisturbed import tell

BUSY = 10
"""A machine may be as much slower than a calm one."""


@pytest.mark.full
async def test_nothing_of_qos_1_is_lost_on_a_path_that_drops_delays_repeats_and_makes_up(tmp_path):
    moods = (Mood.SWALLOW, Mood.SILENT, *Mood)

    settings = Settings(minutes=0.6, rate_hz=40, seed=4, moods=moods)
    outcome = await run(settings, tmp_path, lambda line: None)

    told = "\n".join(outcome.lines())
    streams = outcome.arrivals.values()
    tell(
        row="on the path of direct links and datagrams",
        sent=sum(each.sent for each in streams),
        lost=outcome.lost,
        twice=sum(each.duplicates for each in streams),
    )
    assert outcome.lost == 0, told
    assert all(sum(done.values()) > 20 for done in outcome.harm.values()), told
    assert len(outcome.given_up_s) > 0, told
    assert max(outcome.given_up_s) < BUSY * SILENCE_S_MAX, told
