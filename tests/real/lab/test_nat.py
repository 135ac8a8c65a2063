"""A site behind real NAT whose address changes: nothing is lost, and ``federator-lab nat`` says so.

It makes network namespaces, so it runs as root, as CI does.
"""

import pytest

from lab.nat.run import WAYS, Settings, run


@pytest.mark.full
async def test_a_site_behind_nat_gets_and_sends_everything_once_and_in_order(tmp_path):
    settings = Settings(seconds=14, rate_hz=100, move_every_s=6, burst=500, rounds=1)

    outcome = await run(settings, tmp_path, lambda line: None)

    assert outcome.moves >= 2
    assert outcome.exact, outcome.arrivals
    assert {way: each.sent for way, each in outcome.arrivals.items()} == dict.fromkeys(WAYS, 1_400)
    assert next(outcome.lines()) == f"the router's address changed {outcome.moves} times"
