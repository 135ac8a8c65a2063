"""What an agent makes of what it finds on its broker. docs/protocol.md 13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import matches
from federator.protocol.forwarding.keeping import Keeping, KeepPolicy
from federator.protocol.retained.store import (
    PAGE_STEPS_MAX,
    STEP_TOPICS_MAX,
    RetainedStore,
    digest_of_buckets,
)
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import buckets_of, entries

ME, OTHER = 1, 2
KEEP_US = 1_000


@pytest.fixture
def store():
    return RetainedStore(ME, tombstone_keep_us=KEEP_US)


def known(store, topic, time_us, digest=0, *, deleted=False, here=True, origin=OTHER):
    version = Version(time_us, 0, origin)
    store.put(topic, version, digest, deleted=deleted, here=here, now_us=time_us)
    return version


def look(store, filter, **found):
    since = store.touched
    erase = store.on_found(found, since=since, now_us=100)
    for _ in store.on_scanned([filter], found.keys(), since=since, now_us=100):
        pass
    return erase


def test_what_is_kept_is_no_news_until_somebody_wants_it():
    kept = {"new", "set", "gone"}
    keeping = Keeping()
    keeping.policy = KeepPolicy.NS
    store = RetainedStore(
        ME, tombstone_keep_us=KEEP_US, kept=lambda topic: topic in kept, keeping=keeping
    )
    for topic in ("set", "gone"):
        known(store, topic, 50, 7, origin=ME)
    look(store, "#", new=1, set=2)
    assert store.get("new") is None
    assert [store.get(topic).digest for topic in ("set", "gone")] == [7, 7]
    assert not store.get("gone").deleted

    kept.clear()
    look(store, "#", new=1, set=2)

    assert [store.get(topic).digest for topic in ("new", "set")] == [1, 2]
    assert store.get("gone").deleted


def test_a_successor_knows_what_its_predecessor_saved_in_whole_and_in_parts(store):
    known(store, "a", 50, 7)
    known(store, "b", 50, deleted=True)
    whole = store.save()
    known(store, "a", 60, 8)
    known(store, "c", 60, 8, here=False)
    store.expire(51 + KEEP_US)
    parts = [*store.take_changes(1), *store.take_changes(10)]

    successor = RetainedStore(ME, tombstone_keep_us=KEEP_US)
    successor.load(whole())
    successor.load(parts)

    assert store.take_changes(10) == []
    assert successor.save()() == store.save()()
    assert successor.newest() == Version(60, 0, OTHER)


LEVELS = st.sampled_from(["a", "b", "", "aa"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map("/".join).filter(bool)
FILTERS = st.one_of(
    TOPICS,
    st.tuples(TOPICS).map(lambda t: t[0] + "/#"),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3).map("/".join).filter(bool),
    st.just("#"),
)


@given(st.sets(TOPICS, max_size=12), FILTERS, st.one_of(st.just(""), TOPICS))
def test_entries_below_a_filter_are_those_that_it_matches_in_order(topics, filter, after):
    store = RetainedStore(ME, tombstone_keep_us=KEEP_US)
    for topic in topics:
        known(store, topic, 50, 7)

    found = [topic for topic, _ in entries(store, filter, after)]

    assert found == sorted(t for t in topics if matches(filter, t) and t > after)


@given(st.sets(TOPICS, max_size=12), st.integers(1, 4), st.integers(1, 8))
def test_pages_hold_everything_of_their_buckets_once(topics, count, chars):
    store = RetainedStore(ME, tombstone_keep_us=KEEP_US)
    for topic in topics:
        known(store, topic, 50, 7)
    mask = 0x5555_5555_5555_5555

    read, after, upto = [], "", "?"
    while upto:
        page, upto = store.page("#", mask=mask, after=after, count=count, chars=chars)
        assert not upto or upto > after
        read += [topic for topic, _ in page]
        after = upto

    assert read == [t for t, e in entries(store) if mask >> e.bucket & 1]


@given(st.dictionaries(TOPICS, st.integers(1, 3), max_size=6), st.data())
def test_digests_agree_exactly_when_the_entries_do(times, data):
    one, two = (RetainedStore(id, tombstone_keep_us=KEEP_US) for id in (ME, OTHER))
    for topic, time_us in times.items():
        known(one, topic, time_us, 7)
        known(two, topic, data.draw(st.sampled_from([time_us, 4])), 7, here=False)

    same = all(one.get(t).version == two.get(t).version for t in times)

    assert (buckets_of(one, "#") == buckets_of(two, "#")) is same
    assert (
        digest_of_buckets(buckets_of(one, "#")) == digest_of_buckets(buckets_of(two, "#"))
    ) is same


MANY = 5 * STEP_TOPICS_MAX


@pytest.fixture
def full(store):
    for number in range(MANY):
        known(store, f"{number}/x", 50, 7)
    return store


def test_no_step_through_a_large_table_looks_at_more_than_a_part_of_it(full):
    filters = ["#", "+/x", "+/y", "1/+", "1/x"]
    before = {f: buckets_of(full, f) for f in filters}

    *steps, digests = full.digests(filters)

    assert len(steps) > MANY / STEP_TOPICS_MAX
    assert digests == before
    assert before["#"] == before["+/x"] != before["+/y"] == {}
    assert before["1/+"] == before["1/x"] != {}
    assert len(list(full.on_scanned(["#"], (), since=full.touched, now_us=100))) > 4
    assert full.tombstones == MANY
    assert len(list(full.on_scanned([], (), since=full.touched, now_us=10**9))) > 4
    assert len(full) == 0


def test_a_table_that_changes_between_two_steps_is_gone_through_all_the_same(full):
    there = {f"{number}/x" for number in range(0, MANY, 2)}
    changed = set()
    for number, _ in enumerate(full.on_scanned(["#"], there, since=full.touched, now_us=100)):
        known(full, f"0{number}", 60)
        known(full, f"{number}/x", 60, 8)
        changed.add(f"{number}/x")

    assert full.tombstones == MANY // 2 - len(changed - there)


def test_who_asks_for_topics_that_nobody_has_gets_a_page_without_any_and_goes_on(store):
    for number in range((PAGE_STEPS_MAX + 1) * STEP_TOPICS_MAX):
        known(store, f"{number:05}/x", 50, 7)
    known(store, "last/y", 50, 7)

    page, upto = store.page("+/y", mask=-1, after="", count=10, chars=1_000)
    rest, end = store.page("+/y", mask=-1, after=upto, count=10, chars=1_000)

    assert (page, upto) == ([], f"{PAGE_STEPS_MAX * STEP_TOPICS_MAX - 1:05}/x")
    assert ([topic for topic, _ in rest], end) == (["last/y"], "")


def test_a_restart_of_the_broker_costs_no_walk_and_is_on_disk_all_the_same(store):
    for topic in "abc":
        known(store, topic, 50, 7)
    store.take_changes(10)
    whole = store.save()

    store.broker_restarted()
    known(store, "c", 60, 7)
    look(store, "b", b=7)

    assert {t: store.get(t).here for t in "abc"} == {"a": False, "b": True, "c": True}
    assert {s.topic: s.here for s in store.take_changes(10)} == {"a": False, "b": True, "c": True}
    assert {s.topic: s.here for s in store.save()()} == {"a": False, "b": True, "c": True}
    assert all(saved.here for saved in whole())


def test_a_value_that_may_have_lost_its_place_is_not_taken_for_a_new_one():
    full = RetainedStore(1, topics_max=4, tombstone_keep_us=10**9)
    for number in range(8):
        full.put(f"t/{number}", Version(5, 0, 1), 1, deleted=False, now_us=5)

    full.on_found({"again": 1}, since=full.touched, now_us=200, seen_us=100)

    assert full.get("again").version == Version(0, 0, 1)
