"""How many reasons are given, and which addresses lead nowhere; the rest is in standing.txt."""

import pytest

from federator.protocol.links.standing import REASONS_MAX, LinkJudge, Way, leads_nowhere, stand
from tests.protocol.links.test_links import links


def test_a_crowd_makes_no_long_list():
    ways = [Way(f"b{n}", n, kept=True, conn=None, failure="away") for n in range(1_000)]

    assert len(stand(LinkJudge(links(), {}), ways, now_ms=9_000).reasons) == REASONS_MAX


@pytest.mark.parametrize(
    ("ours", "peer", "nowhere"),
    [
        ("mqtt://localhost", "192.168.1.9", True),
        ("mqtt://127.0.0.1:1884", "10.0.0.1", True),
        ("mqtt://127.0.0.1", "127.0.0.1", False),
        ("mqtt://[::1]", "10.0.0.1", True),
        ("mqtt://192.168.1.2", "8.8.8.8", True),
        ("mqtt://100.64.0.9", "8.8.8.8", True),
        ("mqtt://192.168.1.2", "10.0.0.1", False),
        ("mqtt://8.8.4.4", "8.8.8.8", False),
        ("mqtt://gateway-3", "8.8.8.8", False),
        ("mqtt://127.0.0.1", "", False),
        ("", "8.8.8.8", False),
    ],
)
def test_an_address_that_surely_leads_nowhere_from_there(ours, peer, nowhere):
    assert leads_nowhere(ours, peer) == nowhere
