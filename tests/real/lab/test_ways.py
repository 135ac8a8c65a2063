"""Links by several ways beside each other: all carry everything, and are told beside plain TCP."""

import pytest

from lab.cli.ways import exact, table
from lab.ways.run import SITES, run


@pytest.mark.full
async def test_every_way_carries_everything_once_and_in_order(tmp_path):
    outcome = await run(
        tmp_path, burst=500, rounds=1, seconds=4, rate_hz=100, progress=lambda line: None
    )

    assert list(outcome) == list(SITES)
    assert exact(outcome), outcome
    assert {each.arrivals.sent for both in outcome.values() for each in both} == {400}
    lines = table(outcome)
    assert len(lines) == 2 + len(SITES)
    assert lines[2].count("(1.00)") == 2
