"""Links by several ways beside each other: all carry everything, and are told beside plain TCP."""

import pytest

from lab.ways import SITES, Settings, run


@pytest.mark.full
async def test_every_way_carries_everything_once_and_in_order(tmp_path):
    settings = Settings(burst=500, rounds=1, seconds=4, rate_hz=100)

    outcome = await run(settings, tmp_path, lambda line: None)

    assert list(outcome.ways) == list(SITES)
    assert outcome.held, outcome
    assert {each.arrivals.sent for both in outcome.ways.values() for each in both} == {400}
    lines = [*outcome.lines()]
    assert len(lines) == 2 + len(SITES)
    assert lines[2].count("(1.00)") == 2
