"""What became of a link, and in which word the agent stands; by hand."""

import pytest
from msgspec.structs import replace

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.links.standing import (
    MISSED_MS,
    REASONS_MAX,
    LinkJudge,
    Standing,
    TurnedAway,
    Way,
    Word,
    leads_nowhere,
    stand,
)
from federator.protocol.parameters import Parameters
from tests.protocol.links.test_links import heard, hello, links, up_links

LATE_MS = 3 * Parameters().hello_timeout_ms
KEPT = Way("b2", None, kept=True, conn=1)
DIALLED = Way("b2", 2, kept=False, conn=1)


def standing(made: Links, *ways: Way, turned=(), now_ms=LATE_MS, **more) -> Standing:
    judge = LinkJudge(made, {each.id: each for each in turned})
    return stand(judge, ways, now_ms=now_ms, **more)


def connected(**options):
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1, **options), now_ms=0)
    return made


def test_who_has_no_neighbour_is_alone_and_well():
    alone = standing(links())

    assert (alone, alone.well) == (Standing(Word.ALONE), True)


def test_a_link_that_is_up_joins_us():
    assert standing(up_links(), KEPT) == Standing(Word.JOINED)


def test_one_of_two_makes_us_partly_joined_and_is_named():
    away = Way("b3", 3, kept=True, conn=None, failure="connection refused")

    found = standing(up_links(), KEPT, away)

    assert (found.word, found.well) == (Word.PARTLY, False)
    assert found.reasons == ("broker 3 at b3: connection refused",)


def test_a_broker_that_lets_us_not_in_degrades_us_though_others_are_up():
    away = Way("b3", None, kept=True, conn=None, failure="refused: no", refused=True)

    assert standing(up_links(), KEPT, away) == Standing(Word.DEGRADED, ("b3: refused: no",))


def test_a_connection_over_which_nothing_comes_back_names_where_we_are():
    found = standing(connected(), KEPT)

    assert found.word is Word.ALONE
    assert "b2: connected, but its agent is not heard" in found.reasons[0]
    assert "at b1?" in found.reasons[0]


def test_the_first_moments_are_no_trouble():
    assert standing(connected(), KEPT, now_ms=5).reasons == ("b2: shaking hands",)


def test_a_neighbour_that_speaks_and_never_lists_us_refuses_us():
    made = connected()
    for now_ms in range(0, LATE_MS, 1_000):
        made.on_hello(hello(), now_ms=now_ms)

    found = standing(made, KEPT)

    assert found.word is Word.DEGRADED
    assert "broker 2 at b2: it speaks and does not hear us" in found.reasons[0]


def test_one_that_hears_us_again_is_joined_at_once():
    made = connected()
    for now_ms in range(0, LATE_MS, 1_000):
        made.on_hello(hello(), now_ms=now_ms)
    made.on_hello(hello(hears=[heard(1)]), now_ms=LATE_MS)

    assert standing(made, KEPT) == Standing(Word.JOINED)


@pytest.mark.parametrize("address", ["b2", "another name of it"])
def test_whom_we_turn_away_is_told_with_why(address):
    found = standing(connected(), KEPT, turned=[TurnedAway(2, address, "it is revoked")])

    assert found.word is Word.DEGRADED
    assert found.reasons == (
        "broker 2 at b2: who speaks as broker 2 is turned away: it is revoked",
    )


def test_what_strangers_say_makes_a_link_that_stands_no_worse():
    stranger = TurnedAway(2, "b2", "without a seal")

    assert standing(up_links(), KEPT, turned=[stranger]) == Standing(Word.JOINED)


def test_our_own_address_and_a_wrong_id_are_told():
    made = connected(found=1)
    wrong = connected(found=3)

    own = standing(made, KEPT)
    other = standing(wrong, Way("b2", 7, kept=True, conn=1))

    assert own.reasons == ("b2: this address leads to our own broker",)
    assert other == Standing(Word.DEGRADED, ("broker 7 at b2: broker 3 is there, not 7",))


def test_a_second_address_of_a_neighbour_that_is_up_is_no_trouble():
    made = up_links()
    made.on_connected(LinkConnection(2, "again", None, 1, found=2), now_ms=0)

    assert standing(made, KEPT, Way("again", None, kept=True, conn=2)).word is Word.JOINED


def test_who_found_us_by_itself_is_missed_for_a_while_only():
    made = up_links()
    made.on_disconnected(1)
    made.on_deadline(now_ms=LATE_MS)
    away = Way("b2", 2, kept=False, conn=None, failure="connection refused")

    soon, later = (standing(made, away, now_ms=ms) for ms in (LATE_MS, MISSED_MS + LATE_MS))

    assert soon == Standing(Word.ALONE, ("broker 2 at b2: connection refused",))
    assert later == Standing(Word.ALONE)


def test_who_speaks_and_names_no_address_is_told():
    made = links()
    for now_ms in range(0, LATE_MS, 1_000):
        made.on_hello(replace(hello(), address=""), now_ms=now_ms)

    assert "broker 2: its agent speaks here, and names no address" in standing(made).reasons[0]


def test_two_agents_of_one_id_are_named_while_they_speak():
    made = up_links()
    made.on_hello(hello(hears=[heard(1)]), now_ms=LATE_MS)
    made.on_hello(hello(epoch=60, address="copy"), now_ms=LATE_MS)
    told = standing(made, KEPT)

    assert told.word is Word.DEGRADED
    assert told.reasons == ("two agents have id 2, at b2 and copy: stop one of them",)
    made.on_hello(hello(hears=[heard(1)]), now_ms=2 * LATE_MS)
    assert standing(made, KEPT, now_ms=2 * LATE_MS) == Standing(Word.JOINED)


def test_another_agent_with_our_id_is_named():
    made = up_links()
    made.on_hello(hello(1, epoch=200, address="copy"), now_ms=LATE_MS)

    assert standing(made, KEPT).reasons == (
        "another agent has our id 1, at copy: stop one of them",
    )


def test_a_hindrance_at_our_broker_degrades_us():
    found = standing(up_links(), KEPT, hindrances=["no log topics"])

    assert found == Standing(Word.DEGRADED, ("no log topics",))


def test_a_crowd_makes_no_long_list():
    ways = [Way(f"b{n}", n, kept=True, conn=None, failure="away") for n in range(1_000)]

    assert len(standing(links(), *ways).reasons) == REASONS_MAX


def test_half_a_link_is_told_as_what_it_is_by_who_hears_and_is_not_heard():
    made = links()
    made.on_hello(hello(2, conn=7), now_ms=0)
    away = Way("b2", 2, kept=False, conn=None, failure="no route")

    (reason,) = standing(made, away, now_ms=LATE_MS).reasons

    assert reason.startswith("broker 2 at b2: one way only: its agent speaks here")
    assert "(no route)" in reason
    assert 'links.dial = "out" there' in reason


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
