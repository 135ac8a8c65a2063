"""What a console makes of answers, of silence and of connections that break."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.console.picture import (
    BROKERS_MAX,
    DOUBTED_MS,
    SILENT_AFTER_MS,
    Picture,
    rates_between,
    read_live,
)
from federator.errors import DecodeError
from federator.protocol.messages.guide import Guide, GuideBroker, Takeover
from federator.protocol.telemetry.agent_status import LinkStatus, LivePage


def page(*links, **more):
    told = tuple(LinkStatus(neighbour=n, state="up" if up else "down") for n, up in links)
    return LivePage(ready=True, ready_reason="ready", epoch=1, links=told, **more)


def pair(now_ms=0):
    """Two brokers that are linked and answer."""
    picture = Picture()
    for broker, other in ((1, 2), (2, 1)):
        picture.on_connected(broker, f"mqtt://{broker}", now_ms=now_ms)
        picture.on_live(broker, page((other, True)), at_us=1, now_ms=now_ms)
    picture.look(1, now_ms=now_ms)
    return picture


def link(picture):
    (found,) = picture.since(0, 0)["links"]
    return found


def test_what_agents_answer_is_shown():
    picture = pair()

    assert (picture.state(1), picture.state(2)) == ("ready", "ready")
    assert (link(picture)["a"], link(picture)["b"], link(picture)["up"]) == (1, 2, True)


def test_a_broker_that_nobody_reaches_is_down_and_so_are_its_links():
    picture = pair()

    picture.on_gone(2, now_ms=10)
    assert picture.state(2) == "unreached"  # its neighbour still says that the link is up
    picture.on_live(1, page((2, False)), at_us=2, now_ms=20)

    assert picture.state(2) == "down"
    assert not link(picture)["up"]


def test_what_we_alone_do_not_reach_is_not_down():
    picture = pair()
    picture.on_gone(2, now_ms=10)
    picture.on_live(1, page((2, True)), at_us=2, now_ms=20)

    assert picture.state(2) == "unreached"
    assert link(picture)["up"]


def test_an_agent_that_does_not_answer_is_silent_and_its_word_no_longer_counts():
    picture = pair()
    later = SILENT_AFTER_MS
    assert picture.overdue(now_ms=later) == [1, 2]
    picture.on_live(1, page((2, True)), at_us=2, now_ms=later)

    assert (picture.state(1), picture.state(2)) == ("ready", "silent")
    assert picture.overdue(now_ms=later) == []


def test_an_agent_whose_broker_says_that_it_vanished_has_to_answer_soon():
    picture = pair()

    picture.on_doubt(2, now_ms=100)
    assert picture.overdue(now_ms=100 + DOUBTED_MS - 1) == []
    assert picture.overdue(now_ms=100 + DOUBTED_MS) == [2]
    picture.on_live(2, page((1, True)), at_us=2, now_ms=200)

    assert picture.overdue(now_ms=100 + DOUBTED_MS) == []


def test_one_end_that_says_down_is_enough():
    picture = pair()
    picture.on_live(2, page((1, False)), at_us=2, now_ms=10)

    assert not link(picture)["up"]


def test_a_link_of_which_both_ends_tell_no_more_is_gone_and_readers_are_shown_everything():
    picture = pair()
    seen = picture.since(0, 0)
    picture.on_live(1, page(), at_us=2, now_ms=10)
    assert picture.since(0, 0)["links"]  # the other end may be the one that is right
    picture.on_live(2, page(), at_us=2, now_ms=10)

    changes = picture.since(seen["version"], seen["generation"])
    assert changes["whole"]
    assert changes["links"] == []
    assert len(changes["brokers"]) == 2


def test_only_what_changed_is_told_to_who_has_seen_the_rest():
    picture = pair()
    seen = picture.since(0, 0)
    picture.on_live(1, page((2, True), clients=7), at_us=2, now_ms=10)

    changes = picture.since(seen["version"], seen["generation"])
    assert [(each["id"], each["clients"]) for each in changes["brokers"]] == [(1, 7)]
    assert changes["links"] == []


def test_rates_are_of_the_time_between_two_answers_of_one_life():
    picture = pair()
    picture.on_live(1, page((2, True), published=10), at_us=1_000_001, now_ms=10)
    picture.on_live(1, page((2, True), published=30), at_us=3_000_001, now_ms=20)

    (first, _) = picture.since(0, 0)["brokers"]
    assert first["published"] == 10


def test_guides_tell_of_brokers_and_takeovers_and_old_ones_are_passed_by():
    picture = Picture()
    brokers = (GuideBroker(1), GuideBroker(2, state="gone", substitutes=(1,)))
    guide = Guide(
        1, "fed", 1, 1, epoch=5, number=2, brokers=brokers, takeovers=(Takeover(2, 1, 5, 2),)
    )
    picture.on_guide(guide, now_ms=0)
    picture.on_guide(Guide(1, "fed", 2, 2, epoch=4, number=9), now_ms=0)
    picture.on_guide(Guide(1, "fed", 2, 2, epoch=0, number=0), now_ms=0)  # a Will

    told = picture.since(0, 0)
    assert told["takeovers"] == [{"broker": 2, "substitute": 1}]
    assert {each["id"]: each["state"] for each in told["brokers"]} == {1: "unreached", 2: "down"}


def test_who_invents_brokers_does_not_fill_us():
    picture = Picture()
    for broker in range(BROKERS_MAX + 5):
        picture.on_connected(broker, "mqtt://x", now_ms=0)

    assert len(list(picture.brokers())) == BROKERS_MAX
    assert picture.left_out == 5


def test_whom_we_reach_has_room_before_those_that_a_liar_made_up():
    picture = Picture()
    picture.on_connected(1, "mqtt://liar", now_ms=0)
    picture.on_live(1, page(*((n, True) for n in range(10_000, 14_000))), at_us=1, now_ms=0)
    assert len(list(picture.brokers())) == BROKERS_MAX
    seen = picture.since(0, 0)

    for broker in range(2, 12):
        picture.on_connected(broker, "mqtt://honest", now_ms=0)
        picture.on_live(broker, page((1, True)), at_us=1, now_ms=0)

    assert [picture.state(broker) for broker in range(2, 12)] == ["ready"] * 10
    assert len(list(picture.brokers())) == BROKERS_MAX
    changes = picture.since(seen["version"], seen["generation"])
    shown = {each["id"] for each in changes["brokers"]}
    assert changes["whole"]
    assert {end for each in changes["links"] for end in (each["a"], each["b"])} <= shown


def test_a_link_that_is_down_has_no_round_trip():
    picture = pair()
    told = LinkStatus(neighbour=2, state="down", rtt_ms=3)
    down = LivePage(ready=True, ready_reason="", epoch=1, links=(told,))
    picture.on_live(1, down, at_us=2, now_ms=1)

    assert link(picture)["delay_ms"] is None


def test_rates_between_two_answers_are_those_of_one_life():
    early, late = page(published=5, delivered=10), page(published=25, delivered=50)
    other_life = LivePage(ready=True, ready_reason="", epoch=2, published=99)

    assert rates_between((early, 0), (late, 2_000_000)) == (10, 20)
    assert rates_between((early, 0), (early, 0)) == (None, None)
    assert rates_between((early, 0), (other_life, 2_000_000)) == (None, None)
    assert rates_between((late, 0), (early, 2_000_000)) == (0, 0)


def test_it_counts_what_is_down_and_knows_how_old_it_is():
    picture = pair()
    assert picture.age_ms(700) == 700
    picture.on_gone(2, now_ms=10)
    picture.on_live(1, page((2, False)), at_us=2, now_ms=20)

    assert picture.counts() == {"brokers": 2, "brokers_down": 1, "links": 1, "links_down": 1}
    assert picture.age_ms(720) == 700
    assert Picture().age_ms(5) is None


WHOLE = {"ready": True, "ready_reason": "ready", "epoch": 1}
FULL = {"neighbour": 1, "state": "up", "load": 1e300}


@pytest.mark.parametrize(
    "more", [{"published": 10**400}, {"clients": -1}, {"epoch": 2**60}, {"links": [FULL]}]
)
def test_what_no_agent_can_count_is_malformed(more):
    with pytest.raises(DecodeError, match="page live"):
        read_live(WHOLE | more)


@pytest.mark.parametrize(
    "body", [{}, {"ready": 1}, {"ready": True, "ready_reason": "x" * 2_000, "epoch": 1}]
)
def test_what_is_no_page_is_malformed(body):
    with pytest.raises(DecodeError, match="page live"):
        read_live(body)


BROKER = st.integers(0, 4)
STEP = st.one_of(
    st.tuples(st.just("up"), BROKER, st.just(())),
    st.tuples(st.just("gone"), BROKER, st.just(())),
    st.tuples(st.just("live"), BROKER, st.lists(st.tuples(BROKER, st.booleans()), max_size=4)),
    st.tuples(st.just("wait"), BROKER, st.just(())),
)


@given(st.lists(STEP, max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_a_reader_however_slow_ends_with_what_one_sees_who_is_shown_everything(steps, reads):
    picture, now_ms, seen, brokers, links = Picture(), 0, (0, 0), {}, {}
    for number, (what, broker, told) in enumerate([*steps, ("read", 0, ())]):
        match what:
            case "up":
                picture.on_connected(broker, "mqtt://x", now_ms=now_ms)
            case "gone":
                picture.on_gone(broker, now_ms=now_ms)
            case "live":
                picture.on_live(broker, page(*told), at_us=number, now_ms=now_ms)
            case "wait":
                now_ms += SILENT_AFTER_MS
        for late in picture.overdue(now_ms=now_ms):
            picture.look(late, now_ms=now_ms)
        if number in reads or what == "read":
            changes = picture.since(*seen)
            if changes["whole"]:
                brokers, links = {}, {}
            brokers |= {each["id"]: each for each in changes["brokers"]}
            links |= {(each["a"], each["b"]): each for each in changes["links"]}
            seen = changes["version"], changes["generation"]

    everything = picture.since(0, 0)
    assert brokers == {each["id"]: each for each in everything["brokers"]}
    assert links == {(each["a"], each["b"]): each for each in everything["links"]}
