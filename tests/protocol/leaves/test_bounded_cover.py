"""The bounded cover: never narrower than what is wanted, never more than so many filters."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.filters import contains
from federator.protocol.leaves.bounded_cover import BoundedCover, widenings
from federator.protocol.leaves.level_names import FanOuts, LevelNames

LEVELS = st.sampled_from(["a", "b", "c", "+", ""])
FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]) or "a",
    st.lists(LEVELS, min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
)
CHANGES = st.lists(st.tuples(st.booleans(), FILTERS), max_size=40)


def least(wanted):
    """Those of ``wanted`` that no other one contains, by the definition."""
    return {f for f in wanted if not any(contains(g, f) and g != f for g in wanted)}


@given(CHANGES, st.integers(1, 12), st.data())
@settings(max_examples=400)
def test_it_contains_what_is_wanted_within_its_bound_whatever_is_learned_of_names(
    changes, most, data
):
    names = LevelNames()
    cover, wanted, told = BoundedCover(most, names), set(), set()
    for adds, filter_ in changes:
        if data.draw(st.integers(0, 3)) == 0:
            level = (data.draw(st.sampled_from(["", "a", "b"])), data.draw(st.integers(0, 3)))
            found = names.fan_outs.by_level | {level: data.draw(st.sampled_from([8, 64, 512]))}
            names.fan_outs = FanOuts(found)
        (wanted.add if adds else wanted.discard)(filter_)

        change = cover.update([filter_] if adds else [], [] if adds else [filter_])

        assert not told & set(change.subscribe)
        assert told >= set(change.unsubscribe)
        told = (told | set(change.subscribe)) - set(change.unsubscribe)
        assert told == set(cover.filters)
        assert len(told) <= most
        assert all(any(contains(wide, f) for wide in told) for f in wanted)
        assert all(any(contains(wide, f) for f in wanted) for wide in told)
        assert not any(contains(f, g) for f in told for g in told if f != g)


@given(st.sets(FILTERS, max_size=20))
def test_while_there_is_room_it_asks_for_nothing_more(wanted):
    cover = BoundedCover(64)

    cover.update(sorted(wanted), [])

    covered = set(cover.filters)
    assert covered <= wanted
    assert all(any(contains(f, g) for f in covered) for g in least(wanted))


@given(st.sets(FILTERS, max_size=30), st.sets(FILTERS, min_size=1, max_size=4))
def test_when_the_crowd_is_gone_it_is_as_narrow_as_it_was(crowd, stays):
    cover = BoundedCover(8)
    alone = BoundedCover(8)
    alone.update(sorted(stays), [])

    cover.update(sorted(crowd | stays), [])
    cover.update([], sorted(crowd - stays))

    assert set(cover.filters) == set(alone.filters)


@given(FILTERS)
def test_a_widening_contains_its_filter_and_is_another(filter_):
    for wider in widenings(filter_):
        assert contains(wider, filter_)
        assert wider != filter_


def test_what_asks_for_the_least_more_becomes_one():
    cover = BoundedCover(3)

    cover.update(["site/1/a", "site/1/b", "site/2/a", "other"], [])

    assert cover.filters == ("other", "site/1/+", "site/2/a")


@pytest.mark.parametrize("count", [101, 1_000])
def test_sites_are_widened_before_the_world_is(count):
    cover = BoundedCover(100)

    cover.update((f"site/{n % 50}/{n}" for n in range(count)), [])

    assert len(cover.filters) <= 100
    assert all(f.startswith("site/") and f != "site/#" for f in cover.filters)


def test_one_change_moves_few_filters_in_a_full_cover():
    cover = BoundedCover(200)
    cover.update((f"site/{n // 20}/{n}/value" for n in range(4_000)), [])

    moved = []
    for n in range(4_000, 4_200):
        goes = n - 4_000
        change = cover.update([f"site/{n // 20}/{n}/value"], [f"site/{goes // 20}/{goes}/value"])
        moved.append(len(change.subscribe) + len(change.unsubscribe))

    assert sum(moved) / len(moved) < 4


def test_what_was_wide_for_one_client_falls_apart_little_by_little():
    cover = BoundedCover(50)
    cover.update(["site/#", *(f"site/{n // 20}/{n}" for n in range(1_000))], [])
    assert cover.filters == ("site/#",)

    steps = cover.steps([], ["site/#"])
    pauses = sum(1 for _ in steps)

    assert pauses >= 1_000
    assert 40 < len(cover.filters) <= 50


def test_a_full_cover_is_not_searched_for_each_filter_that_goes():
    cover = BoundedCover(2_000)
    names = [f"site/{n // 50}/{n}/value" for n in range(100_000)]
    cover.update(names, [])
    began_s = time.process_time()

    for name in names[::100]:
        cover.update([], [name])

    assert time.process_time() - began_s < 0.5, "0.05 ms each; 1.3 ms when it was searched"


@pytest.mark.parametrize("most", [200, 400, 1_000, 4_000])
def test_sites_stay_apart_when_devices_are_called_alike_everywhere(most):
    cover = BoundedCover(most)

    for site in range(100):
        cover.update([f"site/{site}/door-{n}/{w}" for n in range(40) for w in ("set", "ask")], [])

    assert len(cover.filters) <= most
    assert not any(f.startswith("site/+") for f in cover.filters)


def test_what_turns_out_to_be_too_wide_falls_apart():
    names = LevelNames()
    cover = BoundedCover(999, names)
    rng = random.Random(1)
    for site in range(100):
        cover.update([f"site/{site}/dev-{n}/set" for n in rng.sample(range(1_000), 100)], [])
    assert any(f.startswith("site/+") for f in cover.filters), "devices have more names than sites"

    for site in range(5_000):
        names.note(f"site/{site}/dev-1/set")
    change = cover.update([], [])

    assert set(cover.filters) >= {f"site/{site}/+/set" for site in range(50)}
    assert not any(f.startswith("site/+") for f in cover.filters)
    assert len(cover.filters) <= 999
    assert change.subscribe
