"""What became of a link, and in which word the agent stands; by hand."""

import pytest

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.links.standing import (
    REASONS_MAX,
    LinkJudge,
    Standing,
    Way,
    Word,
    leads_nowhere,
    stand,
)
from federator.protocol.parameters import Parameters
from tests.protocol.links.test_links import links

LATE_MS = 3 * Parameters().hello_timeout_ms
KEPT = Way("b2", None, kept=True, conn=1)


def standing(made: Links, *ways: Way, turned=(), now_ms=LATE_MS, **more) -> Standing:
    judge = LinkJudge(made, {each.id: each for each in turned})
    return stand(judge, ways, now_ms=now_ms, **more)


def connected(**options):
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1, **options), now_ms=0)
    return made


def test_a_crowd_makes_no_long_list():
    ways = [Way(f"b{n}", n, kept=True, conn=None, failure="away") for n in range(1_000)]

    assert len(standing(links(), *ways).reasons) == REASONS_MAX


@pytest.mark.parametrize(
    ("way", "takes_outbox", "word", "told"),
    [
        (Way("b2", None, kept=True, conn=1), False, Word.ALONE, 'links.dial = "out"'),
        (Way("b2", None, kept=True, conn=1), True, Word.ALONE, "may we read it"),
        (Way("b2", None, kept=True, conn=1, peer="8.8.8.8"), False, Word.DEGRADED, "one way only"),
        (Way("b2", None, kept=True, conn=1, peer="8.8.8.8"), True, Word.ALONE, "may we read it"),
        (Way("b2", None, kept=True, conn=1, outbox_refused=True), True, Word.DEGRADED, "--acl"),
    ],
)
def test_who_is_not_heard_and_what_is_known_of_why(way, takes_outbox, word, told):
    made = Links(1, 10, "mqtt://10.0.0.1", Parameters())
    made.on_local_up(now_ms=0)
    made.on_connected(LinkConnection(1, "b2", None, 1, takes_outbox=takes_outbox), now_ms=0)

    found = LinkJudge(made, {}).find(way, now_ms=LATE_MS)

    assert told in found.reason
    as_leaf = LinkJudge(made, {}, leaf=True).find(way, now_ms=LATE_MS)
    if word is Word.ALONE:
        assert "A leaf is heard by its hub alone" in found.reason
        assert f"has it [[leaves]] with id = {made.self_id} (a leaf has none" in as_leaf.reason
    assert found.unheard == (word is Word.DEGRADED)
    assert standing(made, way).word is word


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
