"""Rules of links hold for letters about retained values, too. docs/protocol.md 13."""

from federator.protocol.messages.control import (
    RetainedAsk,
    RetainedEntry,
    RetainedLetter,
    RetainedNews,
    RetainedPage,
    RetainedValues,
)
from federator.protocol.policy.link_policies import sift
from federator.protocol.retained.round import Round, answer_pull, make_offer
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import buckets_of

OPEN, SECRET = (RetainedEntry(t, 5, 0, 1, 7, deleted=False) for t in ("open", "secret"))


def crossed(body):
    return sift(RetainedLetter(1, (1, 2), 0, body), lambda topic: topic != "secret").body


def test_entries_and_values_that_may_not_cross_are_taken_out():
    both = (SECRET, OPEN)

    assert crossed(RetainedNews("#", both)) == RetainedNews("#", (OPEN,))
    page = crossed(RetainedPage("#", "", "secret", True, both))
    assert page == RetainedPage("#", "", "secret", True, (OPEN,))
    values = crossed(RetainedValues("#", both, (b"1", b"2")))
    assert values == RetainedValues("#", (OPEN,), (b"2",))


def test_what_may_cross_and_questions_stay_as_they_are():
    for body in (RetainedNews("#", (OPEN,)), RetainedAsk("#", ("secret",))):
        assert crossed(body) is body


def test_a_page_of_which_nothing_is_left_does_not_end_the_reading():
    store = RetainedStore(1, tombstone_keep_us=10**9)
    topics = [f"secret/{number:04}" for number in range(1_000)] + ["z"]
    for topic in topics:
        store.put(topic, Version(5, 0, 1), 7, deleted=False, now_us=5)
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)

    post = round_.on_offer((2, 1), make_offer("#", buckets_of(store, "#")))
    while post:
        letter = RetainedLetter(1, (1, 2), 0, answer_pull(store, post[0][1]))
        page = sift(letter, lambda topic: topic == "z").body
        post = round_.on_page((2, 1), page)
    round_.decide(10)

    assert round_.next_ask()[1].topics == ("z",)
