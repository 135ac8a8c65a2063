"""Addresses of outboxes, and how much may be under way in one."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.links.outbox import Credit, is_outbox, outbox_of, place_of

AT = "mqtt://10.0.0.2"


def test_an_address_of_an_outbox_still_tells_where_the_broker_is():
    assert is_outbox(outbox_of(AT))
    assert not is_outbox(AT)
    assert place_of(outbox_of(AT)) == place_of(AT) == AT


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
