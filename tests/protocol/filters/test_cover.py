import random
import time

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import Cover, CoverChange, canonical, contains, join, overlaps
from tests.protocol.filters.small_world import TOPICS, plain_filters, topics_of, traced

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
    with traced() as held_bytes:
        cover = Cover()
        before = held_bytes()
        cover.update([f"a/{i}" for i in range(5_000)] + ["a/#", "b/+", "+/c"])
        cover.update([], [f"a/{i}" for i in range(5_000)] + ["a/#", "b/+", "+/c"])
        after = held_bytes()

    assert cover.filters == ()
    assert after - before < 10_000


def test_a_wanted_filter_that_is_alone_again_costs_as_little_as_before():
    wide = [f"a{i}/#" for i in range(2_000)]
    below = [f"a{i}/b" for i in range(2_000)]
    with traced() as held_bytes:
        cover = Cover()
        cover.update(wide)
        alone = held_bytes()
        cover.update(wide)
        again = held_bytes()
        cover.update(below)
        cover.update([], below)
        released = held_bytes()

    assert cover.filters == tuple(sorted(wide))
    assert again < 1.1 * alone
    assert released < 1.1 * alone


def test_a_group_that_shrank_gives_back_its_room():
    below = [f"a/{i}" for i in range(20_000)]
    with traced() as held_bytes:
        cover = Cover()
        cover.update(["a/#"])
        before = held_bytes()
        cover.update(below)
        cover.update([], below[1:])
        after = held_bytes()

    assert cover.covering("a/0") == cover.covering("a/#") == "a/#"
    assert after - before < 20_000
