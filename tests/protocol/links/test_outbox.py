"""Outboxes: what agents say of them in hellos, and how much may be on its way in one."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.links.outbox import Credit, is_outbox, outbox_of, place_of
from federator.protocol.messages.control import Hello
from federator.protocol.parameters import Parameters
from federator.protocol.signals import OwnIdHeard

AT = "mqtt://10.0.0.2"


def links(**parameters):
    made = Links(1, 10, "b1", Parameters(**parameters))
    made.on_local_up(now_ms=0)
    return made


def hello(address, *, sender=2, epoch=5, conn=7, hears=()):
    return Hello(1, sender, epoch, conn, 0, address, hears)


def test_an_address_of_an_outbox_still_tells_where_the_broker_is():
    assert is_outbox(outbox_of(AT))
    assert not is_outbox(AT)
    assert place_of(outbox_of(AT)) == place_of(AT) == AT


def test_two_agents_with_one_id_are_told_apart_though_nobody_can_dial_either():
    made = links()
    made.on_hello(hello(outbox_of(AT)), now_ms=5)

    assert made.has_namesake(hello(outbox_of("mqtt://10.9.9.9"), epoch=6), now_ms=6)
    assert not made.has_namesake(hello(AT, epoch=6), now_ms=6)


def test_our_own_hello_that_we_hear_again_is_nobody_with_our_id():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1, takes_outbox=True), now_ms=0)

    steps = made.on_hello(hello(outbox_of("b1"), sender=1, epoch=9, conn=1), now_ms=1)

    assert not any(isinstance(step, OwnIdHeard) for step in steps)
    assert made.double is None


# Credit


def test_no_more_is_on_its_way_than_the_window_and_one_packet():
    credit = Credit(window_bytes=100, window_packets=10)

    while credit.open:
        credit.on_sent(30)

    assert credit.owed_bytes == 120
    credit.on_taken(*credit.mark())
    assert credit.open
    assert credit.owed_bytes == 0


def test_a_window_of_packets_ends_before_that_of_bytes():
    credit = Credit(window_bytes=10_000, window_packets=3)

    for _ in range(3):
        assert credit.open
        credit.on_sent(1)

    assert not credit.open


def test_a_mark_is_due_when_the_window_is_full_whatever_was_marked_before():
    credit = Credit(window_bytes=800, window_packets=100)
    credit.on_sent(99)
    credit.mark()

    assert not credit.on_sent(1)
    assert credit.on_sent(99)
    credit.mark()
    assert credit.on_sent(700)


def test_an_answer_that_came_late_or_to_no_mark_of_ours_says_nothing():
    credit = Credit()
    credit.on_sent(10)
    credit.on_taken(*credit.mark())
    credit.on_sent(10)

    credit.on_taken(10, 1)
    credit.on_taken(0, 0)
    credit.on_taken(2**40, 1)
    credit.on_taken(11, 2**40)

    assert (credit.owed_bytes, credit.owed_packets) == (10, 1)


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), max_size=200))
def test_whatever_is_lost_the_window_holds_and_the_next_answer_mends_it(moves):
    """Packets of any length; marks and answers get lost or come late, and one comes in the end."""
    credit = Credit(window_bytes=200, window_packets=20)
    sent_bytes, answers = 0, []
    for size, lost, late in moves:
        if credit.open:
            sent_bytes += size
            if credit.on_sent(size) and not lost:
                answers.append(credit.mark())
        assert 0 <= credit.owed_bytes < 200 + 60
        assert 0 <= credit.owed_packets <= 20
        if answers and not late:
            credit.on_taken(*answers.pop(0))

    credit.on_taken(*credit.mark())

    assert credit.owed_bytes == credit.owed_packets == 0
    assert credit.sent_bytes == sent_bytes
    assert credit.open
