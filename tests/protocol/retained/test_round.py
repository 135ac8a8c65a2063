"""One comparison, step by step. docs/protocol.md 13."""

import pytest

from federator.protocol.messages.control import (
    RETAINED_ENTRIES_MAX,
    RetainedEntry,
    RetainedNews,
    RetainedPull,
    RetainedValues,
)
from federator.protocol.retained.long_values import PART_BYTES
from federator.protocol.retained.round import (
    ASK_TOPICS_MAX,
    PULLS_AT_ONCE_MAX,
    Round,
    answer_pull,
    make_offer,
)
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import Peer, buckets_of, entries

NOW_US = 10_000


def test_a_late_joiner_gets_the_newest_of_all_values_and_only_that_and_tells_who_is_behind():
    first, second, joiner = Peer(1), Peer(2), Peer(3)
    first.set("a", b"old", 100)
    second.set("a", b"new", 200)

    joiner.compare([first, second], NOW_US)

    assert joiner.deliveries == [("a", b"new")]
    assert first.deliveries == [("a", b"new")]


def test_a_peer_that_holds_an_older_value_is_told_and_gets_the_newer_one():
    first, second, joiner = Peer(1), Peer(2), Peer(3)
    first.set("a", b"old", 100)
    joiner.set("a", b"new", 200)

    joiner.compare([first, second], NOW_US)

    assert first.deliveries == [("a", b"new")]
    assert second.deliveries == joiner.deliveries == []


def test_a_peer_that_holds_what_was_deleted_is_told():
    first, second = Peer(1), Peer(2)
    first.set("a", b"old", 100)
    second.set("a", b"", 200)

    second.compare([first], NOW_US)

    assert first.broker == {}
    assert first.store.get("a").deleted


def test_the_same_value_under_an_older_version_is_adopted_and_not_published_again():
    first, second = Peer(1), Peer(2)
    version = first.set("a", b"same", 100)
    second.set_unseen("a", b"same")

    second.compare([first], NOW_US)

    assert second.deliveries == []
    assert second.store.get("a").version == version


def test_values_that_nobody_wants_here_are_not_fetched():
    first, second = Peer(1), Peer(2, wants=lambda topic: topic == "a")
    first.set("a", b"1", 100)
    first.set("b", b"2", 100)

    second.compare([first], NOW_US)

    assert second.broker == {"a": b"1"}


@pytest.fixture
def many():
    store = RetainedStore(1, tombstone_keep_us=10**9)
    for number in range(2 * RETAINED_ENTRIES_MAX):
        store.put(f"t/{number}", Version(5, 0, 1), 7, deleted=False, now_us=5)
    return store


def read(round_, way, store, filter="t/#"):
    """Offer and pages; how many pages it took."""
    post, pages = round_.on_offer(way, make_offer(filter, buckets_of(store, filter))), 0
    while post:
        ((_, pull),) = post
        pages += 1
        post = round_.on_page(way, answer_pull(store, pull))
    return pages


def test_long_lists_come_in_pages_and_values_in_parts(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)

    assert read(round_, (2, 1), many) == 2
    round_.decide(NOW_US)
    assert round_.undecided, "a part of them was looked at"
    round_.decide(NOW_US)
    assert not round_.undecided
    asked = []
    while (ask := round_.next_ask()) is not None:
        asked.append(len(ask[1].topics))

    assert asked == [ASK_TOPICS_MAX] * 4


def test_only_buckets_that_differ_are_read(many):
    other = RetainedStore(2, tombstone_keep_us=10**9)
    other.load(many.save()())
    other.put("t/1", Version(6, 0, 1), 8, deleted=False, now_us=5)
    round_ = Round(many, wanted=lambda topic: True, own={"t/#": buckets_of(many, "t/#")})

    ((_, pull),) = round_.on_offer((1, 2), make_offer("t/#", buckets_of(other, "t/#")))

    assert isinstance(pull, RetainedPull)
    assert pull.mask == 1 << other.get("t/1").bucket


def test_what_did_not_fit_into_an_answer_is_asked_for_next(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    read(round_, (2, 1), many)
    round_.decide(NOW_US)
    way, ask = round_.next_ask()
    entry = RetainedEntry(ask.topics[0], 5, 0, 1, 7, deleted=False)

    taken = round_.on_values(way, RetainedValues("t/#", (entry,), (b"packet",)))

    assert taken == [(entry, b"packet")]
    assert round_.next_ask()[1].topics == ask.topics[1:]


def test_what_was_asked_for_with_a_value_that_comes_in_parts_comes_after_it(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    read(round_, (2, 1), many)
    round_.decide(NOW_US)
    way, ask = round_.next_ask()
    first, second, *rest = ask.topics
    assert ask.at == 0

    whole = bytes(range(256)) * 1_000
    entry, came = RetainedEntry(second, 5, 0, 1, 7, deleted=False), []
    while not came:  # the first one is gone
        part = whole[ask.at : ask.at + PART_BYTES]
        came = round_.on_values(way, RetainedValues("t/#", (entry,), (part,), ask.at, len(whole)))
        _, ask = round_.next_ask()

    assert came == [(entry, whole)]
    assert first not in ask.topics
    assert ask.topics == tuple(rest)
    assert ask.at == 0


def test_what_is_wanted_no_more_when_its_turn_comes_is_not_asked_for(many):
    wanted = {f"t/{number}" for number in range(2 * RETAINED_ENTRIES_MAX)}
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=wanted.__contains__)
    read(round_, (2, 1), many)
    while round_.undecided:
        round_.decide(NOW_US)
    first = round_.next_ask()[1].topics
    assert len(first) == ASK_TOPICS_MAX

    wanted.intersection_update(sorted(wanted.difference(first))[::100])

    asked = []
    while (ask := round_.next_ask()) is not None:
        asked += ask[1].topics
    assert set(asked) == wanted


def test_few_values_are_asked_for_before_many_and_what_is_set_aside_is_not(many):
    many.put("few/1", Version(5, 0, 1), 7, deleted=False, now_us=5)
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    read(round_, (2, 1), many)
    read(round_, (2, 1), many, "few/#")
    while round_.undecided:
        round_.decide(NOW_US)

    round_.few_first()
    assert round_.next_ask()[1].filter == "few/#"
    assert round_.next_ask()[1].filter == "t/#"
    round_.set_aside("t/#")
    assert round_.next_ask() is None


def test_what_waits_is_read_when_something_is_set_aside(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    for peer in range(3, 3 + PULLS_AT_ONCE_MAX):
        assert round_.on_offer((2, peer), make_offer("t/#", buckets_of(many, "t/#")))
    assert round_.on_offer((2, 1), make_offer("+/1", buckets_of(many, "+/1"))) == []

    ((way, pull),) = round_.set_aside("t/#")

    assert (way, pull.filter) == ((2, 1), "+/1")
    assert round_.reading


def test_an_answer_that_nobody_asked_for_changes_nothing(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    values = RetainedValues("t/#", (), ())

    assert round_.on_values((2, 1), values) is None
    read(round_, (2, 1), many)
    round_.decide(NOW_US)
    round_.next_ask()
    assert round_.on_values((2, 9), values) is None
    assert round_.on_values((2, 1), values) == []


def test_a_peer_that_answers_with_nothing_is_not_asked_for_ever(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    read(round_, (2, 1), many)
    while round_.undecided:
        round_.decide(NOW_US)

    asks = 0
    while (ask := round_.next_ask()) is not None:
        asks += 1
        round_.on_values(ask[0], RetainedValues("t/#", (), ()))

    assert asks == 2 * RETAINED_ENTRIES_MAX / ASK_TOPICS_MAX


def heard(round_, way, time_us, digest=7):
    """A peer has a version of the topic a."""
    entry = RetainedEntry("a", time_us, 0, way[-1], digest, deleted=False)
    round_.on_news(way, RetainedNews("#", (entry,)))


def test_nobody_is_told_of_a_version_that_is_not_newer_than_his():
    store = RetainedStore(1, tombstone_keep_us=10**9)
    store.put("a", Version(5, 0, 1), 7, deleted=False, now_us=5)
    round_ = Round(store, wanted=lambda topic: True)
    heard(round_, (1, 2), 4)
    heard(round_, (1, 3), 6)
    heard(round_, (1, 4), 7)

    told = {way[-1]: [e.time_us for e in news.entries] for way, news in round_.news()}

    assert told[2] == [5]  # the value of 7 was not fetched
    assert told.get(3, []) == []
    assert 4 not in told


def test_what_became_known_while_lists_were_read_is_not_asked_for():
    store = RetainedStore(1, tombstone_keep_us=10**9)
    round_ = Round(store, wanted=lambda topic: True)
    heard(round_, (1, 2), 4)
    store.put("a", Version(5, 0, 1), 7, deleted=False, now_us=5)

    round_.decide(NOW_US)

    assert round_.next_ask() is None
    assert store.get("a").version == Version(5, 0, 1)


def test_a_known_value_that_our_broker_may_not_hold_is_fetched_again():
    store = RetainedStore(1, tombstone_keep_us=10**9)
    store.put("a", Version(3, 0, 1), 7, deleted=False, here=False, now_us=5)
    round_ = Round(store, wanted=lambda topic: True)
    heard(round_, (1, 2), 4)

    round_.decide(NOW_US)

    assert round_.next_ask()[1].topics == ("a",)


def test_a_value_that_our_broker_refused_is_not_fetched_until_it_changes_or_the_broker_restarts():
    store = RetainedStore(1, tombstone_keep_us=10**9)

    def fetched(time_us):
        round_ = Round(store, wanted=lambda topic: True)
        heard(round_, (1, 2), time_us)
        round_.decide(NOW_US)
        return round_.next_ask() is not None

    assert fetched(4)
    store.refuse("a", 7)
    assert not fetched(4)
    store.refuse("a", 8)
    assert fetched(5)
    store.refuse("a", 7)
    store.broker_restarted()
    assert fetched(4)


def test_pages_out_of_turn_and_topics_beside_the_filter_change_nothing(many):
    round_ = Round(RetainedStore(2, tombstone_keep_us=10**9), wanted=lambda topic: True)
    ((_, pull),) = round_.on_offer((2, 1), make_offer("t/#", buckets_of(many, "t/#")))
    second = answer_pull(many, RetainedPull("t/#", pull.mask, "t/9"))

    assert round_.on_page((2, 1), second) == []
    beside = RetainedEntry("secret", 5, 0, 1, 7, deleted=False)
    round_.on_news((2, 1), RetainedNews("t/#", (beside,)))
    assert round_.give_up_reading() == 1
    round_.decide(NOW_US)
    assert round_.next_ask() is None


def test_what_a_peer_offered_and_no_longer_knows_is_asked_for_another_time(many):
    round_ = Round(RetainedStore(3, tombstone_keep_us=1_000), wanted=lambda topic: True)
    [(_, pull)] = round_.on_offer((3, 1), make_offer("#", buckets_of(many, "#")))
    forgetful = RetainedStore(1, tombstone_keep_us=1_000)

    round_.on_page((3, 1), answer_pull(forgetful, pull))

    assert not round_.reading
    assert round_.give_up_reading() == 1


def test_a_value_that_our_broker_has_without_a_place_for_its_version_is_not_fetched(many):
    has = {topic: entry.digest for topic, entry in entries(many)}
    changed = next(iter(has))
    has[changed] += 1
    full = RetainedStore(3, topics_max=1, tombstone_keep_us=1_000)
    round_ = Round(full, wanted=lambda topic: True, found=has.get)
    post = round_.on_offer((3, 1), make_offer("#", buckets_of(many, "#")))
    while post:
        [(_, pull)] = post
        post = round_.on_page((3, 1), answer_pull(many, pull))

    round_.decide(NOW_US)

    assert round_.next_ask()[1].topics == (changed,)
