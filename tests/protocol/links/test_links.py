"""docs/protocol.md 4, by hand."""

import pytest

from federator.protocol.effects import Dial, NeighbourReachable, Notice, Send
from federator.protocol.links.links import (
    BEHIND_TIMEOUTS,
    DIAL_BACK_HELLOS,
    DIALS_PER_S_MAX,
    SHELVED_MS,
    UNCONNECTED_MAX,
    Links,
)
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.messages.control import Bye, HeardNeighbour, Hello
from federator.protocol.parameters import Parameters
from federator.protocol.signals import LinkDown, LinkUp, OwnIdHeard

PARAMETERS = Parameters()
NEWS = (LinkUp, LinkDown)


def links(*, self_id=1, epoch=100):
    made = Links(self_id, epoch, f"b{self_id}", PARAMETERS)
    made.on_local_up(now_ms=0)
    return made


def hello(sender=2, *, epoch=50, conn=1, hears=(), sent_at_ms=0, address=None, version=1):
    return Hello(version, sender, epoch, conn, sent_at_ms, address or f"b{sender}", tuple(hears))


def heard(conn, *, id=1, epoch=100, sent_at_ms=0, held_ms=0, ups=1):
    return HeardNeighbour(id, epoch, conn, sent_at_ms, held_ms, ups)


def up_links():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)
    made.on_hello(hello(hears=[heard(1)]), now_ms=10)
    return made


def news(steps):
    return [s for s in steps if isinstance(s, NEWS)]


def test_link_is_up_once_each_side_hears_the_other():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)

    assert news(made.on_hello(hello(), now_ms=10)) == []
    steps = made.on_hello(hello(hears=[heard(1)]), now_ms=20)

    assert news(steps) == [LinkUp(2)]
    assert NeighbourReachable(2, 1) in steps


def test_neighbour_is_told_everything_once_its_own_end_is_up():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)

    waiting = made.on_hello(hello(hears=[heard(1, ups=0)]), now_ms=10)
    told = made.on_hello(hello(hears=[heard(1, ups=1)]), now_ms=20)

    assert (news(waiting), made.up.keys()) == ([], {2}), "it would throw away what we say now"
    assert news(told) == [LinkUp(2)]
    assert news(made.on_hello(hello(hears=[heard(1, ups=1)]), now_ms=30)) == []


def test_neighbour_whose_end_came_up_anew_is_told_everything_again():
    made = up_links()

    steps = made.on_hello(hello(hears=[heard(1, ups=2)]), now_ms=20)

    assert news(steps) == [LinkUp(2)]


def test_hellos_say_how_often_our_end_came_up():
    made = up_links()
    made.on_bye(Bye(2, 50, 1))
    made.on_hello(hello(hears=[heard(1)]), now_ms=30)

    [greeting] = [s.message for s in made.on_local_up(now_ms=40) if isinstance(s, Send)]

    assert [h.ups for h in greeting.hears] == [2]


def test_hearing_without_a_way_back_is_no_link():
    made = links()

    assert news(made.on_hello(hello(hears=[heard(1)]), now_ms=10)) == []


def test_first_hello_of_a_neighbour_is_answered_at_once():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)

    steps = made.on_hello(hello(conn=9, sent_at_ms=3), now_ms=10)

    sent = [s.message for s in steps if isinstance(s, Send)]
    assert [m.hears for m in sent] == [(HeardNeighbour(2, 50, 9, 3, 0, 0),)]
    assert [s for s in made.on_hello(hello(conn=9), now_ms=11) if isinstance(s, Send)] == []


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (lambda made: made.on_disconnected(1), "its broker does not answer"),
        (lambda made: made.on_bye(Bye(2, 50, 1)), "said bye or died"),
        (lambda made: made.on_hello(hello(hears=[]), now_ms=20), "does not hear us"),
        (lambda made: made.on_deadline(now_ms=10 + PARAMETERS.hello_timeout_ms), "silent"),
        (lambda made: made.on_local_down(now_ms=20), "own broker is down"),
    ],
)
def test_link_goes_down(happens, reason):
    made = up_links()

    steps = happens(made)

    assert news(steps) == [LinkDown(2)]
    assert made.neighbours[2].reason == reason
    assert made.up == {}


def test_silence_is_measured_from_the_last_hello():
    made = up_links()
    made.on_hello(hello(hears=[heard(1)]), now_ms=2_000)

    assert news(made.on_deadline(now_ms=2_000 + PARAMETERS.hello_timeout_ms - 1)) == []
    assert news(made.on_deadline(now_ms=2_000 + PARAMETERS.hello_timeout_ms)) == [LinkDown(2)]


def test_a_neighbour_whose_hello_may_wait_behind_others_is_given_time_but_not_for_ever():
    made = up_links()
    due_ms = made.next_deadline_ms()
    silent_ms = 10 + PARAMETERS.hello_timeout_ms
    given_up_ms = 10 + BEHIND_TIMEOUTS * PARAMETERS.hello_timeout_ms

    while due_ms < given_up_ms:
        assert news(made.on_deadline(behind=True, now_ms=due_ms)) == [], due_ms
        due_ms = made.next_deadline_ms()
    assert due_ms - given_up_ms < PARAMETERS.hello_interval_ms
    assert silent_ms < given_up_ms
    assert news(made.on_deadline(behind=True, now_ms=due_ms)) == [LinkDown(2)]


def test_a_neighbour_is_silent_once_all_was_read():
    made = up_links()
    silent_ms = 10 + PARAMETERS.hello_timeout_ms
    assert news(made.on_deadline(behind=True, now_ms=silent_ms)) == []

    again_ms = silent_ms + PARAMETERS.hello_interval_ms
    assert news(made.on_deadline(now_ms=again_ms)) == [LinkDown(2)]


def test_will_of_a_replaced_connection_is_ignored():
    made = up_links()
    made.on_hello(hello(conn=2, hears=[heard(1)]), now_ms=20)

    assert made.on_bye(Bye(2, 50, 1)) == []
    assert news(made.on_bye(Bye(2, 50, 2))) == [LinkDown(2)]


def test_restarted_neighbour_starts_a_new_link():
    made = up_links()

    steps = made.on_hello(hello(epoch=51, hears=[heard(1)]), now_ms=20)

    assert news(steps) == [LinkDown(2), LinkUp(2)]


def test_second_agent_with_a_neighbours_id_is_refused_and_named():
    made = up_links()

    steps = made.on_hello(hello(epoch=99, address="elsewhere", hears=[heard(1)]), now_ms=20)

    assert [(s.name, s.level) for s in steps if isinstance(s, Notice)] == [
        ("neighbour.id_conflict", "error")
    ]
    assert made.up.keys() == {2}
    assert made.neighbours[2].epoch == 50


def test_of_two_with_one_id_the_one_that_is_believed_is_told_where_the_other_is():
    made, double = up_links(), hello(epoch=99, address="elsewhere")
    assert made.has_namesake(double, now_ms=20)
    made.on_hello(double, now_ms=20)

    told = made.on_deadline(now_ms=PARAMETERS.hello_interval_ms)

    (said,) = [s.message for s in told if isinstance(s, Send)]
    (about,) = said.hears
    assert about.namesakes == ("b2", "elsewhere")
    theirs = links(self_id=2, epoch=50)
    (notice,) = [s for s in theirs.on_hello(said, now_ms=0) if isinstance(s, Notice)]
    assert notice.name == "neighbour.has_own_id"
    assert notice.details == {"id": 2, "address": "b2", "other_address": "elsewhere"}


@pytest.mark.parametrize("address", ["b2", "elsewhere"])
def test_who_comes_back_elsewhere_has_no_namesake_once_the_former_is_silent(address):
    made = up_links()
    again = hello(epoch=99, address=address)

    silent_ms = 10 + 2 * PARAMETERS.hello_interval_ms

    assert made.has_namesake(again, now_ms=20) == (address == "elsewhere")
    assert not made.has_namesake(again, now_ms=silent_ms)


def test_neighbour_with_its_clock_set_back_learns_its_last_epoch():
    made = up_links()
    made.on_bye(Bye(2, 50, 1))

    steps = made.on_hello(hello(epoch=40), now_ms=30)

    assert [h.epoch for s in steps if isinstance(s, Send) for h in s.message.hears] == [50]


def test_neighbour_with_its_clock_set_back_is_dialled_though_another_connection_is_nobodys():
    made = links()
    made.on_connected(LinkConnection(1, "b3", 3, 1), now_ms=0)  # where nobody answers
    made.on_hello(hello(), now_ms=10)
    made.on_bye(Bye(2, 50, 1))

    assert Dial(2, "b2") in made.on_hello(hello(epoch=40), now_ms=30)
    assert Dial(2, "b2") not in made.on_hello(hello(epoch=40), now_ms=40)


def test_own_id_under_a_newer_epoch_is_reported():
    made = up_links()

    assert OwnIdHeard(101, 2, proven=False, greeted=True) in made.on_hello(
        hello(hears=[heard(1, epoch=101)]), now_ms=20
    )


@pytest.mark.parametrize(
    "told",
    [
        heard(9, epoch=101),
        heard(1, epoch=101, sent_at_ms=21),
        heard(1, epoch=101, held_ms=2**63 - 1),
        heard(1, id=3, epoch=101),
    ],
    ids=["no connection of ours", "not sent yet", "long held", "another id"],
)
def test_own_id_under_a_newer_epoch_is_not_believed_of_what_we_never_sent(told):
    made = up_links()

    steps = made.on_hello(hello(hears=[heard(1), told]), now_ms=20)

    assert [s for s in steps if isinstance(s, OwnIdHeard)] == []


def test_another_agent_with_our_id_is_named_once():
    made = up_links()

    steps = [made.on_hello(hello(1, epoch=101, address="b9"), now_ms=t) for t in (20, 1_020)]

    (notice,) = steps[0]
    assert (notice.name, notice.details["other_address"]) == ("neighbour.has_own_id", "b9")
    assert steps[1] == []
    assert made.on_hello(hello(1, epoch=99, address="b1"), now_ms=20) == []


def test_nobody_takes_over_the_connection_of_a_neighbour_that_speaks():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)
    made.on_hello(hello(2, hears=[heard(1)]), now_ms=10)

    made.on_hello(hello(3, hears=[heard(1)]), now_ms=11)

    assert {n: c.conn for n, c in made.up.items()} == {2: 1}


def test_neighbour_that_changed_its_id_takes_its_connection_along():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)
    made.on_hello(hello(2, hears=[heard(1)]), now_ms=10)
    made.on_bye(Bye(2, 50, 1))

    made.on_hello(hello(3, address="b2", hears=[heard(1)]), now_ms=11)
    assert {n: c.conn for n, c in made.up.items()} == {3: 1}

    assert news(made.on_disconnected(1)) == [LinkDown(3)]
    assert news(made.on_hello(hello(2, hears=[heard(9)]), now_ms=12)) == []
    assert made.up == {}


def test_invented_strangers_are_bounded_and_keep_nobody_out():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)
    senders = [hello(i, address=f"x{i}") for i in range(100, 100 + 4 * UNCONNECTED_MAX)]

    dialled = [s for h in senders for s in made.on_hello(h, now_ms=10) if isinstance(s, Dial)]
    steps = made.on_hello(hello(2, hears=[heard(1)]), now_ms=20)

    assert len(made.neighbours) <= UNCONNECTED_MAX + 1
    assert dialled == []  # each may be behind the connection that is open
    assert news(steps) == [LinkUp(2)]
    later = made.on_deadline(now_ms=10 + DIAL_BACK_HELLOS * PARAMETERS.hello_interval_ms)
    assert len([s for s in later if isinstance(s, Dial)]) <= DIALS_PER_S_MAX
    made.on_deadline(now_ms=10_000)  # no timer of a forgotten sender is left


def greeted(steps):
    """Over which connections a hello goes out."""
    return {s.conn for s in steps if isinstance(s, Send) and isinstance(s.message, Hello)}


def test_own_broker_among_the_neighbours_is_told_and_let_alone_for_a_while():
    made = links()
    made.on_connected(LinkConnection(1, "b1 by another name", None, 1), now_ms=0)

    steps = made.on_hello(hello(1, epoch=100, conn=1, address="b1"), now_ms=5)

    assert [s.name for s in steps if isinstance(s, Notice)] == ["neighbour.is_own_broker"]
    assert greeted(made.on_deadline(now_ms=1_000)) == set()
    assert greeted(made.on_deadline(now_ms=5 + SHELVED_MS + 1_000)) == {1}


def test_neighbour_is_found_though_somebody_said_our_greeting_at_our_own_broker():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)

    made.on_hello(hello(1, epoch=100, conn=1, address="b1"), now_ms=5)
    steps = made.on_hello(hello(hears=[heard(1)]), now_ms=10)

    assert news(steps) == [LinkUp(2)]


def test_stranger_that_greets_us_is_dialled_back_once():
    made = links()

    assert Dial(2, "b2") in made.on_hello(hello(), now_ms=10)
    assert [s for s in made.on_hello(hello(), now_ms=20) if isinstance(s, Dial)] == []


def test_stranger_is_not_dialled_while_it_may_be_behind_an_open_connection():
    made = links()
    made.on_connected(LinkConnection(1, "some address", None, 1), now_ms=0)

    assert Dial(2, "b2") not in made.on_hello(hello(), now_ms=10)
    assert Dial(2, "b2") not in made.on_hello(hello(hears=[heard(1)]), now_ms=20)
    assert made.connections[1].neighbour == 2


def test_stranger_is_dialled_when_no_open_connection_turns_out_to_lead_to_it():
    made = links()
    made.on_connected(LinkConnection(1, "some address", None, 1), now_ms=0)
    made.on_hello(hello(), now_ms=10)

    due_ms = 10 + 2 * PARAMETERS.hello_interval_ms

    assert Dial(2, "b2") in made.on_deadline(now_ms=due_ms)


def test_second_connection_to_one_neighbour_is_let_alone_for_a_while():
    made = up_links()
    made.on_connected(LinkConnection(2, "b2 by another name", None, 1), now_ms=20)

    steps = made.on_hello(hello(hears=[heard(2)]), now_ms=30)

    assert news(steps) == []
    assert made.neighbours[2].conn == 1
    assert greeted(made.on_deadline(now_ms=1_000)) == {1}
    assert greeted(made.on_deadline(now_ms=30 + SHELVED_MS + 1_000)) == {1, 2}


def test_neighbour_is_found_though_another_one_heard_our_greeting_to_it():
    made = up_links()
    made.on_connected(LinkConnection(2, "b3", None, 1), now_ms=20)

    made.on_hello(hello(2, hears=[heard(2)]), now_ms=30)
    steps = made.on_hello(hello(3, hears=[heard(2)]), now_ms=40)

    assert news(steps) == [LinkUp(3)]
    assert made.neighbours[2].conn == 1


def test_connection_of_another_is_not_taken_by_who_says_to_hear_us_there():
    made = up_links()

    made.on_hello(hello(3, hears=[heard(1)]), now_ms=20)

    assert made.connections[1].neighbour == 2
    assert list(made.up) == [2]


def test_who_does_not_hear_us_any_more_is_not_where_it_seemed_to_be():
    made = links()
    made.on_connected(LinkConnection(1, "b3", None, 1), now_ms=0)
    made.on_hello(hello(2, hears=[heard(1)]), now_ms=10)  # somebody said our greeting there

    for now_ms in range(1_000, 2_000 + PARAMETERS.hello_timeout_ms, 500):
        made.on_hello(hello(2), now_ms=now_ms)

    assert made.addressee(1) is None
    assert news(made.on_hello(hello(3, hears=[heard(1)]), now_ms=9_000)) == [LinkUp(3)]


def test_nobody_in_particular_is_greeted_where_it_has_become_silent():
    made = up_links()
    assert made.addressee(1) == 2

    made.on_bye(Bye(2, 50, 1))

    assert made.addressee(1) is None


def test_neighbour_with_another_id_than_configured_is_no_link():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 7, 1), now_ms=0)

    steps = made.on_hello(hello(hears=[heard(1)]), now_ms=10)

    assert news(steps) == []
    assert "neighbour.unexpected_id" in [s.name for s in steps if isinstance(s, Notice)]


def test_round_trip_leaves_out_the_time_that_the_neighbour_held_it():
    made = up_links()

    made.on_hello(hello(hears=[heard(1, sent_at_ms=100, held_ms=850)]), now_ms=1_000)

    assert made.neighbours[2].round_trip_ms == 50


def test_another_protocol_version_is_reported_and_no_link():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)

    steps = made.on_hello(hello(version=2, hears=[heard(1)]), now_ms=10)

    assert [s.name for s in steps] == ["neighbour.version"]


def test_deaf_agent_says_bye_and_believes_nothing():
    made = up_links()

    steps = made.on_local_down(now_ms=20)

    assert Send(1, Bye(1, 100, 1)) in steps
    assert made.on_hello(hello(hears=[heard(1)]), now_ms=30) == []
