"""A site behind real NAT whose address changes: nothing is lost, and ``federator-lab nat`` says so.

It makes network namespaces, so it runs as root, as CI does.
"""

import pytest

from lab.cli.nat import told
from lab.nat.run import WAYS, run


@pytest.mark.full
async def test_a_site_behind_nat_gets_and_sends_everything_once_and_in_order(tmp_path):
    how = {"seconds": 14, "rate_hz": 100, "move_every_s": 6, "burst": 500, "rounds": 1}

    outcome = await run(tmp_path, **how, progress=lambda line: None)

    assert outcome.moves >= 2
    assert outcome.exact, outcome.arrivals
    assert {way: each.sent for way, each in outcome.arrivals.items()} == dict.fromkeys(WAYS, 1_400)
    lines, _ = told(outcome)
    assert lines[0] == f"the router's address changed {outcome.moves} times"
