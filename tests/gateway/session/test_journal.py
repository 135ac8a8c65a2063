"""What a gateway keeps of publications beyond their PUBACK."""

from federator.gateway import wire
from federator.gateway.session.journal import OVERHEAD_BYTES, Journal
from federator.gateway.wire import V311


def packet(payload, topic="t"):
    return wire.write_publish(topic, payload, version=V311, qos=1, packet_id=7)


def put(journal, *payloads, broker=1, client="c", now_ms=0, again=False):
    packets = [packet(payload) for payload in payloads]
    journal.acknowledged(
        packets, client=client, version=V311, broker=broker, now_ms=now_ms, again=again
    )


def payloads(publications):
    return [each.payload for each in publications]


def test_a_mark_covers_what_was_acknowledged_before_it_and_nothing_later():
    journal = Journal(recent_ms=1_000, bytes_max=10_000)
    put(journal, b"1", b"2")
    mark = journal.mark(1)
    put(journal, b"3")

    journal.on_taken(1, mark)

    assert payloads(journal.take_unsafe(1)["c"]) == [b"3"]


def test_marks_are_sent_only_for_something_new_unless_one_was_lost():
    journal = Journal(recent_ms=1_000, bytes_max=10_000)
    assert journal.mark(1) is None
    put(journal, b"1")
    first = journal.mark(1)

    assert journal.mark(1) is None
    again = journal.mark(1, anew=True)

    assert again == first + 1 == journal.last_mark(1)
    journal.on_taken(1, again)
    assert journal.unsafe(1) == 0
    assert journal.mark(1, anew=True) is None


def test_an_answer_to_a_mark_that_was_never_sent_says_nothing():
    journal = Journal(recent_ms=1_000, bytes_max=10_000, first_mark=100)
    put(journal, b"1")

    journal.on_taken(1, 99)
    journal.on_taken(1, 100)
    journal.on_taken(2, 100)

    assert journal.unsafe(1) == 1


def test_what_is_unsafe_is_told_once_by_client_and_broker():
    journal = Journal(recent_ms=1_000, bytes_max=10_000)
    put(journal, b"1", client="a")
    put(journal, b"2", client="b")
    put(journal, b"3", client="a")
    put(journal, b"4", client="a", broker=2)

    taken = journal.take_unsafe(1)

    assert {client: payloads(each) for client, each in taken.items()} == {
        "a": [b"1", b"3"],
        "b": [b"2"],
    }
    assert journal.take_unsafe(1) == {}
    assert journal.unsafe(2) == 1


def test_what_was_published_again_is_unsafe_but_not_a_publication_of_its_own():
    journal = Journal(recent_ms=1_000, bytes_max=10_000)
    put(journal, b"1")
    put(journal, b"1", broker=2, again=True)

    assert payloads(journal.between(0, 10)) == [b"1"]
    assert journal.unsafe(2) == 1


def test_the_journal_forgets_by_age_and_by_size():
    journal = Journal(recent_ms=100, bytes_max=3 * (len(packet(b"x")) + OVERHEAD_BYTES))
    for number in range(5):
        put(journal, b"%d" % number, now_ms=number)
    assert payloads(journal.between(0, 10)) == [b"2", b"3", b"4"]
    assert journal.unsafe(1) == 3

    journal.forget(103)

    assert payloads(journal.between(0, 10)) == [b"3", b"4"]
    assert journal.unsafe(1) == 2
    journal.forget(1_000)
    assert len(journal) == journal.bytes == journal.unsafe(1) == 0
