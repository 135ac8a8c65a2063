"""Which topics have an entry when there are too many. docs/protocol.md 13."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.retained.places import ACCOUNTS_MAX, GUESTS_SHARE, Places, SortedNames
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import entries

ME, FLOODED, QUIET = 1, 2, 3
ROOM = 80
LASTING = ROOM - ROOM // GUESTS_SHARE


@pytest.fixture
def store():
    return RetainedStore(ME, topics_max=ROOM, tombstone_keep_us=1_000)


def put(store, origin, name, count):
    topics = [f"{name}/{number}" for number in range(count)]
    for number, topic in enumerate(topics):
        store.put(topic, Version(50, number, origin), 7, deleted=False, now_us=50)
    return topics


def lasting(store, topics):
    return [t for t in topics if store.get(t) is not None and not store.places.is_guest(t)]


def test_what_was_known_before_a_flood_stays(store):
    before = put(store, QUIET, "before", 10)

    put(store, FLOODED, "flood", 10 * ROOM)

    assert lasting(store, before) == before
    assert len(store) == ROOM


def test_what_another_broker_sets_behind_a_flood_takes_the_place_of_the_flood(store):
    put(store, FLOODED, "flood", 10 * ROOM)

    after = put(store, QUIET, "after", 10)

    assert lasting(store, after) == after


def test_what_our_own_clients_set_has_half_of_the_places_whoever_floods(store):
    for origin in range(10, 20):
        put(store, origin, f"flood{origin}", ROOM)

    ours = put(store, ME, "ours", LASTING // 2)

    assert lasting(store, ours) == ours


def test_what_is_set_behind_a_flood_on_its_own_broker_is_known_while_it_is_looked_for(store):
    put(store, FLOODED, "flood", 10 * ROOM)

    (after,) = put(store, FLOODED, "after", 1)

    assert store.get(after) is not None
    assert store.places.is_guest(after)
    assert [topic for topic, _ in entries(store, "after/#")] == [after]


def test_what_is_found_takes_nobodys_place(store):
    flood = put(store, FLOODED, "flood", LASTING)

    store.on_found({"found": 7}, since=store.touched, now_us=60)

    assert store.places.is_guest("found")
    assert lasting(store, flood) == flood


def test_guests_are_not_saved_and_who_becomes_one_is_saved_no_more(store):
    flood = put(store, FLOODED, "flood", LASTING)
    store.take_changes(1_000)

    (after,) = put(store, QUIET, "after", 1)
    put(store, FLOODED, "more", 1)

    saved = store.take_changes(1_000)
    assert [each if isinstance(each, str) else each.topic for each in saved] == [after, flood[-1]]
    assert isinstance(saved[1], str)
    assert {each.topic for each in store.save()()} == {*flood[:-1], after}


def test_it_is_told_whose_fault_it_is_until_there_is_room_again(store):
    put(store, QUIET, "home", 10)
    flood = put(store, FLOODED, "flood", ROOM)
    assert store.places.crowded
    assert store.places.culprit() == (FLOODED, LASTING - 10, "flood")

    for topic in flood:
        store.put(topic, Version(60, 0, FLOODED), 0, deleted=True, now_us=60)
    store.expire(60 + 1_001)

    assert not store.places.crowded


def test_whose_topics_found_no_place_is_to_blame_and_not_who_has_most(store):
    put(store, ME, "ours", LASTING // 2 + 10)
    put(store, FLOODED, "flood", ROOM)

    assert store.places.culprit() == (FLOODED, LASTING // 2 - 10, "flood")


def test_origins_that_somebody_invents_share_one_account():
    places = Places(ME, topics_max=8_000)
    for origin in range(2, 10_000):
        places.take(f"invented/{origin}", origin)

    ours = [f"ours/{number}" for number in range(3_000)]
    for topic in ours:
        places.take(topic, ME)

    assert not any(map(places.is_guest, ours))
    assert len(places._accounts) <= ACCOUNTS_MAX + 2


ORIGINS = (ME, FLOODED, QUIET)
MOVES = st.lists(
    st.tuples(st.integers(0, 40).map(str), st.sampled_from(ORIGINS), st.booleans()), max_size=300
)


@given(MOVES)
def test_there_are_never_more_than_there_is_room_for_and_shares_are_fair(moves):
    store = RetainedStore(ME, topics_max=16, tombstone_keep_us=1_000)
    for topic, origin, forget in moves:
        if forget and store.get(topic) is not None:
            store._forget(topic)
        else:
            store.put(topic, Version(1, 1, origin), 7, deleted=False, now_us=1)

        places = store.places
        kept = [t for t in store._entries if not places.is_guest(t)]
        assert len(store) <= 16
        assert len(kept) <= 12
        assert sorted([*kept, *places._guests]) == sorted(store._entries)
        held = Counter(places._lasting.values())
        assert held == Counter(store.get(t).version.origin for t in kept)
        claims = {origin: held[origin] - (6 if origin == ME else 0) for origin in held}
        assert places._largest in {ME, *held}
        assert claims.get(places._largest, -6) == max([-6, *claims.values()])


@given(st.lists(st.tuples(st.text("ab/", max_size=3), st.booleans())), st.text("ab", max_size=1))
def test_names_are_told_in_order_whatever_came_and_went(moves, start):
    names, true = SortedNames(), set()
    for name, ask in moves:
        (names.discard if name in true else names.add)(name)
        true ^= {name}
        if ask:
            told = list(names.beginning(start, after="a"))
            assert told == sorted(n for n in true if n.startswith(start) and n > "a")
