import gc
import random
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import Cover, CoverChange, canonical, contains, join, overlaps
from federator.protocol.filters.trie import levels_to_keep
from tests.protocol.filters.small_world import TOPICS, plain_filters, topics_of

filter_sets = st.frozensets(plain_filters, max_size=8)
updates = st.lists(st.tuples(filter_sets, filter_sets), max_size=12)


def stupid_cover(wanted):
    """While two overlap, put their join in their place."""
    cover = {canonical(filter) for filter in wanted}
    while pair := next(((a, b) for a in cover for b in cover if a < b and overlaps(a, b)), None):
        cover = cover - set(pair) | {join(*pair)}
    return tuple(sorted(cover))


@given(updates)
def test_after_every_update_the_cover_is_the_one_built_from_nothing(steps):
    cover = Cover()
    wanted: set[str] = set()
    subscribed: set[str] = set()

    for added, removed in steps:
        change = cover.update(added, removed)

        wanted = (wanted - removed) | added
        assert cover.filters == stupid_cover(wanted)
        assert subscribed.isdisjoint(change.subscribe)
        assert subscribed.issuperset(change.unsubscribe)
        assert list(change.subscribe) == sorted(set(change.subscribe))
        assert list(change.unsubscribe) == sorted(set(change.unsubscribe))
        subscribed = subscribed - set(change.unsubscribe) | set(change.subscribe)
        assert subscribed == set(cover.filters)
        assert all(contains(cover.covering(filter) or "", filter) for filter in wanted)


@given(filter_sets)
def test_a_wanted_topic_is_matched_exactly_once_and_the_order_does_not_matter(wanted):
    forth, back = Cover(), Cover()

    forth.update(sorted(wanted))
    for filter in sorted(wanted, reverse=True):
        back.update([filter])

    assert forth.filters == back.filters
    asked = {topic for filter in wanted for topic in topics_of(filter)}
    for topic in TOPICS:
        copies = sum(topic in topics_of(filter) for filter in forth.filters)
        assert copies == 1 if topic in asked else copies <= 1
        assert copies == 0 or not topic.startswith("$")


@given(filter_sets, filter_sets)
def test_undoing_an_update_undoes_its_change(before, more):
    cover = Cover()
    cover.update(before)
    first = cover.filters

    change = cover.update(more)
    undone = cover.update(removed=more - before)

    assert undone == CoverChange(change.unsubscribe, change.subscribe)
    assert cover.filters == first


def test_overlapping_filters_are_replaced_by_their_join_and_come_back():
    cover = Cover()

    assert cover.update(["a/+"]) == CoverChange(("a/+",), ())
    assert cover.update(["+/b", "x"]) == CoverChange(("+/+", "x"), ("a/+",))
    assert cover.update(["c/d", "c/d"]) == CoverChange()
    assert cover.update(["a/+"], ["a/+"]) == CoverChange()
    assert cover.update([], ["a/+"]) == CoverChange(("+/b", "c/d"), ("+/+",))


def test_a_join_that_meets_others_swallows_them():
    cover = Cover()
    cover.update(["p/q", "u/v/w", "a/+"])

    change = cover.update(["+/b"])

    assert change == CoverChange(("+/+",), ("a/+", "p/q"))
    assert cover.filters == ("+/+", "u/v/w")


def test_both_names_of_match_all_are_one_subscription():
    cover = Cover()

    assert cover.update(["+/#"]) == CoverChange(("#",), ())
    assert cover.update(["a"]) == CoverChange()
    assert cover.update(["#"]) == CoverChange()
    assert cover.update([], ["+/#"]) == CoverChange()
    assert cover.update([], ["#"]) == CoverChange(("a",), ("#",))


def test_removing_what_nobody_wants_changes_nothing():
    cover = Cover()
    cover.update(["a/+", "+/b"])

    assert cover.update([], ["+/+", "a/b", "z", "$SYS/x"]) == CoverChange()
    assert not cover.update([], [])


def test_a_dollar_filter_is_refused_and_nothing_of_that_update_happens():
    cover = Cover()
    cover.update(["a"])

    with pytest.raises(ValueError, match="does not travel"):
        cover.update(["b", "$SYS/#"], ["a"])

    assert cover.filters == ("a",)
    assert cover.update([], []) == CoverChange()


def test_wanted_filters_know_what_covers_them():
    cover = Cover()
    cover.update(["a/+", "+/b", "x"])

    assert cover.covering("a/+") == "+/+"
    assert cover.covering("x") == "x"
    assert cover.covering("a/b") is None
    assert cover.covering("+/+") is None


def changed_one_by_one(added, removed):
    """Seconds for ``added`` and then ``removed``, one update each; and the cover."""
    cover = Cover()
    started = time.process_time()
    for filter in added:
        cover.update([filter])
    for filter in removed:
        cover.update([], [filter])
    return time.process_time() - started, cover


def test_disjoint_filters_come_and_go_one_by_one_without_a_scan():
    names = [f"site/{i}/temp" for i in range(20_000)]

    seconds, cover = changed_one_by_one(names, names)

    assert cover.filters == ()
    assert seconds < 10  # 0.25 s on an idle machine; pairwise comparison takes minutes


def test_filters_below_a_wide_one_come_and_go_without_rebuilding_it():
    names = [f"a/{i}" for i in range(20_000)]
    random.Random(1).shuffle(names)

    seconds, cover = changed_one_by_one(["a/+", "+/0", *names], names)

    assert cover.filters == ("+/+",)
    assert seconds < 10  # 0.2 s on an idle machine; rebuilding the group takes many minutes


def test_a_wide_filter_swallows_and_releases_thousands():
    names = [f"a/{i}" for i in range(20_000)]
    cover = Cover()
    cover.update(names)

    assert cover.update(["a/#"]) == CoverChange(("a/#",), tuple(sorted(names)))
    assert cover.update([], ["a/#"]) == CoverChange(tuple(sorted(names)), ("a/#",))


def test_a_cover_that_emptied_holds_no_memory():
    tracemalloc.start()
    try:
        cover = Cover()
        before, _ = tracemalloc.get_traced_memory()
        cover.update([f"a/{i}" for i in range(5_000)] + ["a/#", "b/+", "+/c"])
        cover.update([], [f"a/{i}" for i in range(5_000)] + ["a/#", "b/+", "+/c"])
        levels_to_keep.cache_clear()
        gc.collect()  # and with them what the interpreter keeps for tuples to come
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert cover.filters == ()
    assert after - before < 10_000


def test_a_wanted_filter_that_is_alone_again_costs_as_little_as_before():
    wide = [f"a{i}/#" for i in range(2_000)]
    below = [f"a{i}/b" for i in range(2_000)]
    tracemalloc.start()
    try:
        cover = Cover()
        cover.update(wide)
        alone, _ = tracemalloc.get_traced_memory()
        cover.update(wide)
        again, _ = tracemalloc.get_traced_memory()
        cover.update(below)
        cover.update([], below)
        released, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert cover.filters == tuple(sorted(wide))
    assert again < 1.1 * alone
    assert released < 1.1 * alone


def test_a_group_that_shrank_gives_back_its_room():
    below = [f"a/{i}" for i in range(20_000)]
    tracemalloc.start()
    try:
        cover = Cover()
        cover.update(["a/#"])
        before, _ = tracemalloc.get_traced_memory()
        cover.update(below)
        cover.update([], below[1:])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert cover.covering("a/0") == cover.covering("a/#") == "a/#"
    assert after - before < 20_000
